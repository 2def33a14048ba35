// Keyboard, and the help that lists keys and gestures.

// Keys with Shift, by their code: the cross moves by a pixel.
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

const KEYS = {
  ArrowUp: () => goTo(state.slice - 1),
  ArrowDown: () => goTo(state.slice + 1),
  ArrowLeft: () => goTo(state.slice - 1),
  ArrowRight: () => goTo(state.slice + 1),
  PageUp: () => goTo(state.slice - 5),
  PageDown: () => goTo(state.slice + 5),
  Home: () => goTo(0),
  End: () => goTo(study.slices - 1),
  s: () => setSplit(!state.split),
  f: () => setSwapped(!state.swapped),
  F: () => state.against !== null && flicker(),
  r: () => state.against !== null && setAgainst((state.against + 1) % sources.length),
  b: () => $("paired")?.click(),
  d: () => $("signed")?.click(),
  x: () => $("mask")?.click(),
  "[": () => sensitivity(1 / 1.25),
  "]": () => sensitivity(1.25),
  " ": () => $("play")?.click(),
  ",": () => sampleCount && stepSample(-1),
  ".": () => sampleCount && stepSample(1),
  "+": () => zoomBy(1.25),
  "=": () => zoomBy(1.25),
  "-": () => zoomBy(0.8),
  0: () => moveTo(0.5, 0.5, 1),
  w: () => $("window-button").click(),
  g: () => $("pixels-button").click(),
  i: toggleSidebar,
  t: setTheme,
  m: () => enlargeFocused(),
  c: () => choose("window"),
  p: () => choose("pan"),
  a: () => choose("region"),
  l: () => choose("profile"),
  "?": () => ($("help").open ? $("help").close() : $("help").showModal()),
  Escape: () => state.solo !== null && toggleSolo(null),
};

// The panel under the mouse, or else with the focus, or else the first.
function enlargeFocused() {
  const under = panels.find(({ figure }) => figure.matches(":hover"));
  const focused = panels.find(({ figure }) => figure.contains(document.activeElement));
  toggleSolo((under ?? focused ?? panels.find((panel) => panel.canvas)).source);
}

document.addEventListener("keydown", (event) => {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if ($("help").open && event.key !== "?") return; // Escape closes it by itself
  if (at instanceof HTMLSelectElement) return;
  if (at instanceof HTMLInputElement && (at.type === "number" || /^(Arrow|Page|Home|End)/.test(event.key))) return;
  if (at instanceof HTMLButtonElement && event.key === " ") return;
  const number = Number(event.key);
  if (event.shiftKey && STEPS[event.key]) {
    event.preventDefault();
    return stepCursor(...STEPS[event.key]);
  }
  const act = number >= 1 && number <= available.length ? () => show(available[number - 1]) : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// Heading → [keys, action]; keys of one action are separated by two blanks.
const HELP = {
  Slices: [
    ["wheel", "next, previous"],
    ["↑  ↓  ←  →", "next, previous"],
    ["PgUp  PgDn", "five back, five forward"],
    ["Home  End", "first, last"],
  ],
  Brightness: [
    ["drag", "left–right contrast, up–down brightness; scale of errors and deviations (tool Window)"],
    ["[  ]", "less, more"],
    ["w", "reset"],
  ],
  "Zoom and pan, all panels together": [
    ["Ctrl + wheel", "zoom; two fingers on a touch screen"],
    ["+  −", "zoom"],
    ["Shift + drag", "pan; also with the right button"],
    ["0", "fit"],
    ["g", "single pixels or smoothed"],
  ],
  Compare: [
    ["s", "split every panel, with a slider"],
    ["f", "show the compared image, and back"],
    ["Shift + F", "alternate automatically"],
    ["r", "compare with the next image"],
    ["b", "show the magnitudes as well"],
    ["d", "signed error"],
  ],
  Measure: [
    ["a", "region: drag a new one, or move it; mean, deviation, SNR"],
    ["l", "line: drag it; magnitudes along it"],
    ["Shift + ↑ ↓ ← →", "move the cross by a pixel and read the values"],
    ["c  p", "drag changes the window, or moves the image"],
  ],
  Panels: [
    ["m", "enlarge, and back; also by double click"],
    ["i", "side bar with numbers"],
    ["t", "light or dark"],
    ["?", "this help"],
  ],
  Show: available.map((view, index) => [String(index + 1), VIEWS[view].label]),
  ...(study.nextFrame && { Frames: [["space", "play, stop"]] }),
  ...(sampleCount && { Samples: [["space", "play, stop"], [",  .", "previous, next"]] }),
  ...(measured && { "k-space": [["x", "mark what was not sampled"]] }),
};

function buildHelp() {
  $("help-columns").append(
    ...Object.entries(HELP).map(([heading, pairs]) => {
      const list = make("dl", {}, make("h3", { textContent: heading }));
      for (const [keys, what] of pairs) {
        const caps = keys.split("  ").flatMap((key) => [make("kbd", { textContent: key }), " "]);
        list.append(make("dt", {}, ...caps), make("dd", { textContent: what }));
      }
      return list;
    }),
  );
}
