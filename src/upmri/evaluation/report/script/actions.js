// Actions of the reader, and the controls that depend on the view.

function goTo(slice) {
  state.slice = clamp(slice, 0, study.slices - 1) || 0;
  $("slice").value = state.slice + 1;
  $("slice-number").textContent = `${state.slice + 1} of ${study.slices}`;
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
}

function zoomBy(factor, at = state.centre) {
  const zoom = clamp(state.zoom * factor, 1, 40);
  const kept = 1 - state.zoom / zoom;
  const [x, y] = state.centre;
  moveTo(x + (at[0] - x) * kept, y + (at[1] - y) * kept, zoom);
}

function moveTo(x, y, zoom = state.zoom) {
  state.zoom = zoom;
  const margin = 0.5 / zoom;
  state.centre = [clamp(x, margin, 1 - margin), clamp(y, margin, 1 - margin)];
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

let playing = null;

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
  else if (state.view === "kspace") now.kLow = Math.min(now.kHigh - 0.2, now.kLow - Math.log10(factor));
  else now.high = now.low + (now.high - now.low) / Math.sqrt(factor);
  syncOptions();
  invalidate();
}

const GAINS = [1, 2, 5, 10, 20, 50];

function button(text, title, action, pressed) {
  const made = make("button", { textContent: text, title, onclick: action });
  if (pressed !== undefined) made.setAttribute("aria-pressed", pressed);
  return made;
}

function buildOptions() {
  const parts = [];
  if (state.view === "error") {
    const choice = make("select", { id: "gain" });
    choice.onchange = () => {
      state.window.gain = Number(choice.value);
      invalidate();
    };
    parts.push(make("label", {}, "×", " ", choice));
    parts.push(toggle("signed", "Signed", "Signed error: too bright or too dark (d)", state, "signed", invalidate));
  }
  if (state.view === "uncertainty") {
    const opacity = make("input", { type: "range", id: "opacity", min: 0, max: 100, value: 100 * state.opacity });
    opacity.oninput = () => {
      setOpacity(opacity.value / 100);
    };
    parts.push(make("label", {}, "overlay ", opacity));
  }
  if (state.view === "samples") {
    const start = button("Play", "Play or stop (space)", () => play(playing === null), false);
    start.id = "play";
    parts.push(
      button("‹", "Previous sample (,)", () => stepSample(-1)),
      start,
      button("›", "Next sample (.)", () => stepSample(1)),
      make("output", { id: "sample-number", textContent: `${state.sample + 1} / ${sampleCount}` }),
    );
  }
  if (state.view !== "samples" && study.nextFrame) {
    const start = button("Play", "Play or stop the frames (space)", () => play(playing === null), false);
    start.id = "play";
    parts.push(start);
  }
  if (state.view === "kspace" && measured) {
    parts.push(toggle("mask", "Mask", "Mark what was not sampled in blue (x)", state, "mask", invalidate));
  }
  if (state.view !== "magnitude") {
    parts.push(toggle("paired", "With images", "Show the magnitudes as well (b)", state.paired, state.view, buildPanels));
  }
  $("options").replaceChildren(...parts);
  syncOptions();
}

// A button that turns a field of `owner` on and off.
function toggle(id, text, title, owner, name, then) {
  const flip = () => {
    owner[name] = !owner[name];
    made.setAttribute("aria-pressed", owner[name]);
    then();
  };
  const made = button(text, title, flip, Boolean(owner[name]));
  made.id = id;
  return made;
}

function syncOptions() {
  const choice = $("gain");
  if (!choice) return;
  const gain = Number(digits(state.window.gain, 2));
  const offered = [...new Set([...GAINS, gain])].sort((a, b) => a - b);
  const options = offered.map((value) => make("option", { value, textContent: value, selected: value === gain }));
  choice.replaceChildren(...options);
}
