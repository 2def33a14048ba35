// Actions of the reader.

let playing = null;

function goTo(slice) {
  state.slice = clamp(slice, 0, study.slices - 1) || 0;
  $("slice").value = state.slice + 1;
  $("slice-number").textContent = `${state.slice + 1} of ${study.slices}`;
  $("slice").setAttribute("aria-valuetext", `slice ${state.slice + 1} of ${study.slices}`);
  if (!playing) announce(`Slice ${state.slice + 1} of ${study.slices}. ${spokenScores()}`);
  drawScores();
  drawPlot();
  invalidate();
}

function show(view) {
  if (!available.includes(view)) return;
  play(false);
  state.view = view;
  for (const button of $("views").children) button.setAttribute("aria-pressed", button.dataset.view === view);
  buildOptions();
  buildPanels();
  announce(`${VIEWS[view].label}: ${panels.length} image${panels.length === 1 ? "" : "s"}`);
}

// The scores of the slice for screen readers.
const spokenScores = () =>
  scored
    .filter((source) => typeof source.scores.psnr[state.slice] === "number")
    .map((source) => `${source.name} ${source.scores.psnr[state.slice].toFixed(1)} dB`)
    .join(", ");

// Move the cross by pixels; without one it begins in the middle. For the keyboard.
function stepCursor(rows, columns) {
  const { row, column } = state.cursor ?? { row: Math.floor(H / 2), column: Math.floor(W / 2) };
  state.cursor = state.cursor
    ? { row: clamp(row + rows, 0, H - 1), column: clamp(column + columns, 0, W - 1) }
    : { row, column };
  const at = state.cursor;
  const values = sources.map((source) => {
    const codes = planes.get(`${source.has.magnitude}/${state.slice}`);
    const { step, offset } = arrays[source.has.magnitude];
    return codes ? `${source.name} ${digits(offset + step * codes[at.row * W + at.column], 3)}` : "";
  });
  announce(`Row ${at.row}, column ${at.column}, ${inMillimetres(at.row, at.column)}: ${values.join(", ")}`);
  invalidate();
}

// What a drag on an image does. A region or a line that is not there yet is made in the middle of the image.
const TOOLS = {
  window: { label: "Window", title: "Drag: contrast and brightness (c)" },
  pan: { label: "Pan", title: "Drag: move the enlarged image (p)" },
  region: { label: "Region", title: "Drag: region with mean, deviation and SNR (a)" },
  profile: { label: "Profile", title: "Drag: line with its profile (l)" },
};

function choose(tool) {
  state.tool = tool;
  for (const made of $("tools").children) made.setAttribute("aria-pressed", made.dataset.tool === tool);
  if (tool === "region" && !state.region) setRegion(middleRegion());
  if (tool === "profile" && !state.line) setLine(middleLine());
  if (tool === "region" || tool === "profile") {
    if ($("sidebar").hidden) toggleSidebar();
    // In a narrow window the numbers are below the images, and the page stays where it is.
    if (matchMedia("(min-width: 901px)").matches) $(tool).scrollIntoView({ block: "nearest" });
  }
  announce(TOOLS[tool].title);
}

function zoomBy(factor, at = state.centre) {
  const zoom = clamp(state.zoom * factor, 1, 40);
  const kept = 1 - state.zoom / zoom;
  const [x, y] = state.centre;
  moveTo(x + (at[0] - x) * kept, y + (at[1] - y) * kept, zoom);
}

function moveTo(x, y, zoom = state.zoom) {
  const fills = zoom > 1 !== state.zoom > 1;
  state.zoom = zoom;
  if (fills) layout();
  state.centre = [x, y].map((value, axis) => {
    const margin = Math.min(0.5, state.shares[axis] / 2 / zoom);
    return clamp(value, margin, 1 - margin);
  });
  $("zoom-fit").textContent = `${Math.round(100 * zoom)} %`;
  invalidate();
}

function setOpacity(opacity) {
  state.opacity = opacity;
  state.exponent = (1.5 * (1 - opacity)) / Math.max(opacity, 1e-3);
  invalidate();
}

function toggleSolo(source) {
  state.solo = state.solo === null ? source : null;
  buildPanels();
}

const press = (id, on) => $(id).setAttribute("aria-pressed", on);

function setSplit(on) {
  if (state.against === null) return;
  state.split = on;
  if (on) setSwapped(false);
  press("split-button", on);
  invalidate();
}

let flickering = null;

function setSwapped(on, byItself = false) {
  if (!byItself && flickering) {
    clearInterval(flickering);
    flickering = null;
  }
  if (state.against === null) return;
  if (on && state.split) setSplit(false);
  state.swapped = on;
  press("flicker-button", on || flickering !== null);
  invalidate();
}

function flicker() {
  if (flickering) return setSwapped(false);
  setSwapped(true);
  flickering = setInterval(() => setSwapped(!state.swapped, true), 500); // 1 Hz, far below the 3 Hz that may harm
}

function setAgainst(index) {
  state.against = index;
  $("against").value = String(index);
  buildPanels();
}

function play(on) {
  clearInterval(playing);
  const step = state.view === "samples" ? () => stepSample(1) : () => goTo(study.nextFrame[state.slice]);
  playing = on ? setInterval(step, state.view === "samples" ? 160 : 60) : null;
  if ($("play")) press("play", on);
}

const sampleCount = Math.max(...sources.map((source) => source.has.samples?.length ?? 0));

function stepSample(by) {
  state.sample = (state.sample + by + sampleCount) % sampleCount;
  if ($("sample-number")) $("sample-number").textContent = `${state.sample + 1} / ${sampleCount}`;
  invalidate();
}

function setTheme() {
  const root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme ?? preferred) === "dark" ? "light" : "dark";
}

function toggleSidebar() {
  $("sidebar").hidden = !$("sidebar").hidden;
  press("sidebar-button", !$("sidebar").hidden);
  measure();
}

// A `factor` > 1 makes smaller errors and deviations visible.
function sensitivity(factor) {
  const now = state.window;
  if (state.view === "uncertainty") now.std = clamp(now.std / factor, white / 1e4, white);
  else if (state.view === "error") now.gain = clamp(now.gain * factor, 0.5, 200);
  else if (state.view === "coils") now.coil = clamp(now.coil * factor, 0.1, 100);
  else if (state.view === "kspace") now.kLow = Math.min(now.kHigh - 0.2, now.kLow - Math.log10(factor));
  else now.high = now.low + (now.high - now.low) / Math.sqrt(factor);
  syncOptions();
  invalidate();
}
