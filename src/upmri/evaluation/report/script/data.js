// Packed planes of the page, decoded when they are needed.

// Decoded planes by "array/slice". The least recently used are dropped when there are too many.
const planes = new Map();
const loading = new Map();
const MOST_BYTES = 256e6;
let heldBytes = 0;
const parsed = new Promise((resolve) => {
  if (document.readyState !== "loading") resolve();
  else document.addEventListener("DOMContentLoaded", resolve);
});

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function decode(key) {
  if (!document.getElementById(key)) await parsed; // the rest of the page is still loading
  const text = document.getElementById(key).textContent;
  const stream = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const { bits, shape: [rows, columns] = [H, W] } = arrays[key.split("/")[0]];
  const size = rows * columns;
  const codes = bits === 16 ? new Uint16Array(size) : new Uint8Array(size);
  for (let row = 0, i = 0; row < rows; row++) {
    for (let column = 0, code = 0; column < columns; column++, i++) {
      code += bits === 16 ? (bytes[i] << 8) | bytes[size + i] : bytes[i];
      codes[i] = code; // a typed array keeps the lowest bits: the wrap-around of the differences
    }
  }
  return codes;
}

function load(key) {
  if (!loading.has(key)) {
    loading.set(
      key,
      decode(key).then(
        (codes) => {
          planes.set(key, codes);
          heldBytes += codes.byteLength;
          for (const [old, plane] of planes) {
            if (heldBytes <= MOST_BYTES) break;
            if (old.endsWith(`/${state.slice}`)) continue; // it is on the screen
            planes.delete(old);
            heldBytes -= plane.byteLength;
          }
          loading.delete(key);
        },
        (error) => fail(error),
      ),
    );
  }
  return loading.get(key);
}

// The slice of an array that is shown for a slice of the page: arrays of coils hold a few slices only.
const heldSlice = (array, slice = state.slice) =>
  (arrays[array].slices ?? [slice]).reduce((a, b) => (Math.abs(b - slice) < Math.abs(a - slice) ? b : a));

// The plane of an array in a slice, or null while it is decoded; everything is drawn again when that is done.
function plane(array, slice = state.slice) {
  const key = `${array}/${heldSlice(array, slice)}`;
  const found = planes.get(key);
  if (found) {
    planes.delete(key);
    planes.set(key, found); // now the most recently used
    return found;
  }
  load(key).then(invalidate);
  return null;
}

// After the first picture, decode what is likely to be needed next: near slices first.
async function decodeAhead() {
  await parsed;
  const near = [...Array(study.slices).keys()].sort((a, b) => Math.abs(a - study.start) - Math.abs(b - study.start));
  const wanted = sources.map((source) => source.has.magnitude);
  const budget = MOST_BYTES / 2 / (H * W * 2 * wanted.length);
  for (const slice of near.slice(0, budget)) {
    for (const array of wanted) if (!planes.has(`${array}/${slice}`)) await load(`${array}/${slice}`);
  }
  document.documentElement.dataset.decoded = "";
}

// Decode what the panels need for the next and the previous slice, so that scrolling does not wait.
function decodeNeighbours() {
  for (const slice of [state.slice + 1, state.slice - 1]) {
    if (slice < 0 || slice >= study.slices || document.readyState === "loading") continue;
    for (const { source, view, canvas } of panels) {
      if (!canvas) continue;
      for (const array of VIEWS[view].needs(source)) {
        const key = `${array}/${heldSlice(array, slice)}`;
        if (!planes.has(key)) load(key);
      }
    }
  }
}

function fail(error) {
  $("panels").textContent = `The images cannot be decoded: ${error.message ?? error}. A newer browser may help.`;
  throw error;
}
