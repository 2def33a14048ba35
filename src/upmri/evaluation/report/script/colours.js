// Colour maps, and the overlay of colours.

// A colour in the memory layout of ImageData.
const packColour = (r, g, b) => ((255 << 24) | ((b & 255) << 16) | ((g & 255) << 8) | (r & 255)) >>> 0;
const fromTriples = (text) => {
  const bytes = fromBase64(text);
  return Uint32Array.from({ length: 256 }, (_, i) => packColour(bytes[3 * i], bytes[3 * i + 1], bytes[3 * i + 2]));
};
const GREY = Uint32Array.from({ length: 256 }, (_, i) => packColour(i, i, i));
const INFERNO = fromTriples(study.colours.inferno);
const CYCLIC = fromTriples(study.colours.twilight_shifted);
const SIGNED = Uint32Array.from({ length: 256 }, (_, i) => {
  const t = (i - 127.5) / 127.5; // too dark is blue, right is black, too bright is orange
  const s = Math.abs(t);
  return t < 0 ? packColour(70 * s * s, 170 * s, 255 * s) : packColour(255 * s, 150 * s, 40 * s * s);
});
const BLACK = packColour(0, 0, 0);
const UNSAMPLED = packColour(16, 34, 66);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const mix = (a, b, t) => {
  const part = (shift) => ((a >> shift) & 255) * (1 - t) + ((b >> shift) & 255) * t;
  return packColour(part(0), part(8), part(16));
};

// A deviation over an image: transparent where it is small, so that anatomy stays visible. The dark end of the map is
// not used, because it would look like a darker image.
const overlay = (below, t) => mix(below, INFERNO[80 + ((t * 175) / 255) | 0], (t / 255) ** state.exponent);
// Not sampled: bluer, but not darker.
const bluish = (grey) => packColour(0.7 * (grey & 255), 0.84 * (grey & 255), Math.min(255, 20 + (grey & 255)));
