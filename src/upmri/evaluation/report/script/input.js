// Mouse and keyboard, and the help that lists them.

// The position of a mouse event in the image, as fractions of its width and height.
function whereIn(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const [x, y] = [(event.clientX - box.left) / box.width - 0.5, (event.clientY - box.top) / box.height - 0.5];
  return [state.centre[0] + x / state.zoom, state.centre[1] + y / state.zoom];
}

function listen(panel) {
  const { canvas, frame } = panel;
  let drag = null;

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    const pan = event.button !== 0 || event.shiftKey;
    drag = { x: event.clientX, y: event.clientY, pan, centre: [...state.centre], window: { ...state.window } };
    frame.classList.toggle("dragging", pan);
    if (event.button === 1) event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = whereIn(canvas, event);
    state.cursor = x >= 0 && y >= 0 && x < 1 && y < 1 ? { row: Math.floor(y * H), column: Math.floor(x * W) } : null;
    if (drag) {
      const box = canvas.getBoundingClientRect();
      const dx = (event.clientX - drag.x) / box.width;
      const dy = (event.clientY - drag.y) / box.height;
      if (drag.pan) moveTo(drag.centre[0] - dx / state.zoom, drag.centre[1] - dy / state.zoom);
      else {
        VIEWS[panel.view].drag(dx, -dy, drag.window);
        syncOptions();
      }
    }
    invalidate();
  });
  const stop = () => {
    drag = null;
    frame.classList.remove("dragging");
  };
  canvas.addEventListener("pointerup", stop);
  canvas.addEventListener("pointercancel", stop);
  canvas.addEventListener("pointerleave", () => {
    if (drag) return;
    state.cursor = null;
    invalidate();
  });
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("dblclick", () => toggleSolo(panel.source));
}

let turned = 0;

// Anywhere in the area of the images, also between them.
function onWheel(event) {
  event.preventDefault();
  const amount = event.deltaY * (event.deltaMode === 1 ? 40 : event.deltaMode === 2 ? 400 : 1);
  if (event.ctrlKey || event.metaKey) {
    const canvas = event.target instanceof HTMLCanvasElement ? event.target : null;
    zoomBy(Math.exp(-amount / 300), canvas ? whereIn(canvas, event) : state.centre);
    return;
  }
  // A wheel gives few large steps, a touch pad many small ones: one slice for 40 pixels, at most one for each event.
  turned = Math.sign(turned) === Math.sign(amount) ? turned + amount : amount;
  if (Math.abs(turned) < 40) return;
  goTo(state.slice + Math.sign(turned));
  turned = 0;
}

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
  if (at instanceof HTMLInputElement && /^(Arrow|Page|Home|End)/.test(event.key)) return;
  if (at instanceof HTMLButtonElement && event.key === " ") return;
  const number = Number(event.key);
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
    ["drag", "left–right contrast, up–down brightness; scale of errors and deviations"],
    ["[  ]", "less, more"],
    ["w", "reset"],
  ],
  "Zoom and pan, all panels together": [
    ["Ctrl + wheel", "zoom"],
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
