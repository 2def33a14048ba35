// The views of a source: magnitude, error, uncertainty, samples, phase, k-space.

const MEASURED = { id: -1, name: "measured", has: { kspace: measured?.kspace }, scores: {}, isMeasured: true };
const against = () => sources[state.against];
const errorTop = () => white / state.window.gain;

// `of`: whether a source has this view; `needs`: its arrays; `paint`: codes to colours; `stamp`: all values that the
// picture depends on, except the slice; `drag`: effect of dragging, dx to the right and dy up, as fractions.
const VIEWS = {
  magnitude: {
    label: "Magnitude",
    of: (source) => Boolean(source.has.magnitude),
    needs: (source) => [source.has.magnitude],
    paint(out, source, [codes]) {
      const { step, offset } = arrays[source.has.magnitude];
      const { low, high } = state.window;
      const k = 255.999 / (high - low);
      for (let i = 0; i < out.length; i++) {
        const t = (offset + step * codes[i] - low) * k;
        out[i] = GREY[t < 0 ? 0 : t > 255 ? 255 : t | 0];
      }
    },
    stamp: () => [state.window.low, state.window.high],
    drag: dragWindow,
    scale: () => ({ label: "magnitude", colours: GREY, ticks: ends(state.window.low, state.window.high) }),
  },
  error: {
    label: "Error",
    of: (source) => Boolean(source.has.magnitude) && state.against !== null && source !== against(),
    needs: (source) => [source.has.magnitude, against().has.magnitude],
    paint(out, source, [codes, others]) {
      const a = arrays[source.has.magnitude];
      const b = arrays[against().has.magnitude];
      const k = 255.999 / errorTop();
      const shift = a.offset - b.offset;
      for (let i = 0; i < out.length; i++) {
        const e = (shift + a.step * codes[i] - b.step * others[i]) * k;
        if (state.signed) out[i] = SIGNED[clamp(127.5 + e / 2, 0, 255) | 0];
        else {
          const t = e < 0 ? -e : e;
          out[i] = INFERNO[t > 255 ? 255 : t | 0];
        }
      }
    },
    stamp: () => [state.window.gain, state.signed, state.against],
    drag: (dx, dy, from) => (state.window.gain = clamp(from.gain * Math.exp(3 * dx + 3 * dy), 0.5, 200)),
    scale: () => {
      const top = 100 / state.window.gain;
      return {
        label: `error ×${digits(state.window.gain, 2)}`,
        colours: state.signed ? SIGNED : INFERNO,
        ticks: ends(state.signed ? -top : 0, top).map((tick) => `${tick} %`),
      };
    },
  },
  uncertainty: {
    label: "Uncertainty",
    of: (source) => Boolean(source.has.std),
    needs: (source) => [source.has.magnitude, source.has.std],
    paint(out, source, [codes, deviations]) {
      VIEWS.magnitude.paint(out, source, [codes]);
      const { step, offset } = arrays[source.has.std];
      const k = 255.999 / state.window.std;
      for (let i = 0; i < out.length; i++) {
        const t = (offset + step * deviations[i]) * k;
        out[i] = overlay(out[i], t > 255 ? 255 : t | 0);
      }
    },
    stamp: () => [state.window.low, state.window.high, state.window.std, state.opacity],
    drag: (dx, dy, from) => (state.window.std = clamp(from.std * Math.exp(-3 * dx - 3 * dy), white / 1e4, white)),
    scale: () => ({
      label: "± deviation",
      colours: Uint32Array.from({ length: 256 }, (_, t) => overlay(GREY[110], t)),
      ticks: ends(0, (100 * state.window.std) / white).map((tick) => `${tick} %`),
    }),
  },
  samples: {
    label: "Samples",
    of: (source) => Boolean(source.has.samples),
    needs: (source) => [source.has.magnitude, source.has.samples[state.sample % source.has.samples.length]],
    paint(out, source, [codes, changes]) {
      const a = arrays[source.has.magnitude];
      const b = arrays[source.has.samples[state.sample % source.has.samples.length]];
      const { low, high } = state.window;
      const k = 255.999 / (high - low);
      const offset = a.offset + b.offset - low;
      for (let i = 0; i < out.length; i++) {
        const t = (offset + a.step * codes[i] + b.step * changes[i]) * k;
        out[i] = GREY[t < 0 ? 0 : t > 255 ? 255 : t | 0];
      }
    },
    stamp: () => [state.window.low, state.window.high, state.sample],
    drag: dragWindow,
    scale: () => VIEWS.magnitude.scale(),
  },
  phase: {
    label: "Phase",
    of: (source) => Boolean(source.has.phase),
    needs: (source) => [source.has.magnitude, source.has.phase],
    paint(out, source, [codes, angles]) {
      const { step, offset } = arrays[source.has.magnitude];
      const k = 1 / (0.06 * white);
      const turn = Math.round(state.window.turn * 254);
      for (let i = 0; i < out.length; i++) {
        if (!angles[i]) out[i] = BLACK;
        else {
          // Where there is little signal, the phase is noise: it fades to black.
          const seen = Math.min(1, (offset + step * codes[i]) * k);
          const colour = CYCLIC[((((angles[i] - 1 + turn) % 254) + 254) % 254) + 1];
          out[i] = seen < 1 ? mix(BLACK, colour, seen) : colour;
        }
      }
    },
    stamp: () => [state.window.turn],
    drag: (dx, dy, from) => (state.window.turn = from.turn + dx + dy),
    scale: () => {
      const shift = -360 * (state.window.turn - Math.round(state.window.turn));
      return {
        label: "phase",
        colours: CYCLIC,
        ticks: [-180, 180].map((tick) => digits(Math.round(tick + shift), 4) + "°"),
      };
    },
  },
  kspace: {
    label: "k-space",
    of: (source) => Boolean(source.has.kspace),
    needs: (source) => [source.has.kspace, ...(measured ? [measured.mask] : [])],
    paint(out, source, [codes, mask]) {
      const { step, offset } = arrays[source.has.kspace];
      const { kLow, kHigh } = state.window;
      const k = 255.999 / (kHigh - kLow);
      const tinted = mask && (state.mask || source.isMeasured);
      for (let i = 0; i < out.length; i++) {
        const t = codes[i] ? (offset + step * codes[i] - kLow) * k : 0;
        const grey = GREY[t < 0 ? 0 : t > 255 ? 255 : t | 0];
        if (!tinted || mask[i]) out[i] = grey;
        else out[i] = source.isMeasured ? UNSAMPLED : bluish(grey);
      }
    },
    stamp: () => [state.window.kLow, state.window.kHigh, state.mask],
    drag(dx, dy, from) {
      const middle = (from.kLow + from.kHigh) / 2 - 4 * dy;
      const half = Math.max(0.1, ((from.kHigh - from.kLow) / 2) * Math.exp(2 * dx));
      state.window.kLow = middle - half;
      state.window.kHigh = middle + half;
    },
    scale: () => ({
      label: "log₁₀ of peak",
      colours: GREY,
      ticks: ends(state.window.kLow, state.window.kHigh),
    }),
  },
};

function dragWindow(dx, dy, from) {
  const width = Math.max(white / 500, (from.high - from.low) * Math.exp(2 * dx));
  const level = (from.low + from.high) / 2 - white * dy; // up is brighter
  state.window.low = level - width / 2;
  state.window.high = level + width / 2;
}
