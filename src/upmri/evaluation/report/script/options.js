// Controls that depend on the view.

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
  if (state.view === "maps") parts.push(make("span", { textContent: `maps ${study.mapsFrom}` }));
  if (state.view !== "magnitude" && !VIEWS[state.view].alone) {
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
