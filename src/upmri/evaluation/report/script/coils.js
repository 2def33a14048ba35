// Coil images and maps, each coil as a source of its own; and the views that this page has.

const COILS = study.coils.map((has, index) => ({
  id: -2 - index,
  name: `coil ${index + 1}`,
  has,
  scores: {},
  isCoil: true,
}));
const brightest = COILS.length ? 255 * arrays[COILS[0].has.coil].step : 1;

VIEWS.coils = {
  label: "Coils",
  alone: true, // magnitudes are not shown with it
  of: (source) => Boolean(source.has.coil),
  needs: (source) => [source.has.coil],
  paint(out, source, [codes]) {
    const k = state.window.coil;
    for (let i = 0; i < out.length; i++) out[i] = GREY[Math.min(255, (codes[i] * k) | 0)];
  },
  stamp: () => [state.window.coil],
  drag: (dx, dy, from) => (state.window.coil = clamp(from.coil * Math.exp(2 * dx + 2 * dy), 0.1, 100)),
  scale: () => ({ label: "coil image", colours: GREY, ticks: ends(0, brightest / state.window.coil) }),
};

VIEWS.maps = {
  label: "Maps",
  alone: true,
  of: (source) => Boolean(source.has.map),
  needs: (source) => source.has.map,
  // Colour is the phase, brightness the root of the magnitude: maps of many coils are small numbers.
  paint(out, source, [codes, angles]) {
    const turn = Math.round(state.window.turn * 254);
    for (let i = 0; i < out.length; i++) {
      const colour = CYCLIC[((((angles[i] - 1 + turn) % 254) + 254) % 254) + 1];
      out[i] = angles[i] ? mix(BLACK, colour, Math.sqrt(codes[i] / 255)) : BLACK;
    }
  },
  stamp: () => [state.window.turn],
  drag: VIEWS.phase.drag,
  scale: () => ({ ...VIEWS.phase.scale(), label: "phase, brightness √|S|" }),
};

const everything = () => [...(measured ? [MEASURED] : []), ...sources, ...COILS];
const available = Object.keys(VIEWS).filter((view) => {
  if (view === "error") return sources.length > 1;
  return everything().some((source) => VIEWS[view].of(source));
});

// What flicker and split show instead of a source, as [source, view], or null.
function other(source, view) {
  if (state.against === null || source === against() || view === "error" || !source.has.magnitude) return null;
  return [against(), VIEWS[view].of(against()) ? view : "magnitude"];
}
