// Mouse, pen and fingers on an image.

const fingers = new Map(); // pointers that are down, by id: [x, y]
let drag = null; // of one pointer, in one panel
let pinch = null; // of two fingers, in one panel or in two

// A drag of one pointer, by the tool. `from` is the state at its beginning, `at` and `to` are [x, y] in the image.
const DRAGS = {
  window(panel, from, dx, dy) {
    VIEWS[panel.view].drag(dx, -dy, from.window);
    syncOptions();
  },
  pan(panel, from, dx, dy) {
    const [x, y] = [dx, dy].map((value, axis) => from.centre[axis] - (value * state.shares[axis]) / state.zoom);
    moveTo(x, y);
  },
  // From inside the region it moves; from outside a new one is drawn.
  region(panel, from, dx, dy, at, to) {
    if (from.region && within(from.region, at[1] * H - 0.5, at[0] * W - 0.5)) {
      const { top, left } = from.region;
      setRegion({ ...from.region, top: top + (to[1] - at[1]) * H, left: left + (to[0] - at[0]) * W });
    } else {
      const [top, left] = [Math.min(at[1], to[1]) * H, Math.min(at[0], to[0]) * W];
      const [height, width] = [Math.abs(at[1] - to[1]) * H, Math.abs(at[0] - to[0]) * W];
      if (height + width > 2) setRegion({ top, left, height, width });
    }
  },
  profile(panel, from, dx, dy, at, to) {
    const [start, end] = [at, to].map(([x, y]) => [y * H - 0.5, x * W - 0.5]);
    if (Math.hypot(start[0] - end[0], start[1] - end[1]) > 1) setLine({ from: start, to: end });
  },
};

function listen(panel) {
  const { canvas, frame } = panel;

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (fingers.size === 2) {
      drag = null;
      pinch = { ...spread(), zoom: state.zoom, centre: [...state.centre] };
      return;
    }
    const tool = event.button !== 0 || event.shiftKey ? "pan" : state.tool;
    const { centre, window: shown, region } = state;
    const from = { centre: [...centre], window: { ...shown }, region };
    drag = { panel, tool, x: event.clientX, y: event.clientY, at: whereIn(canvas, event), from };
    frame.classList.toggle("dragging", tool === "pan");
    if (event.button === 1) event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [event.clientX, event.clientY]);
    const box = canvas.getBoundingClientRect();
    if (pinch && fingers.size === 2) {
      const now = spread();
      const zoom = clamp((pinch.zoom * now.apart) / pinch.apart, 1, 40);
      const moved = [(now.x - pinch.x) / box.width, (now.y - pinch.y) / box.height];
      const [x, y] = moved.map((value, axis) => pinch.centre[axis] - (value * state.shares[axis]) / zoom);
      moveTo(x, y, zoom);
      return;
    }
    const [x, y] = whereIn(canvas, event);
    state.cursor = x >= 0 && y >= 0 && x < 1 && y < 1 ? { row: Math.floor(y * H), column: Math.floor(x * W) } : null;
    if (drag && drag.panel === panel) {
      const [dx, dy] = [(event.clientX - drag.x) / box.width, (event.clientY - drag.y) / box.height];
      DRAGS[drag.tool](panel, drag.from, dx, dy, drag.at, [clamp(x, 0, 1), clamp(y, 0, 1)]);
    }
    invalidate();
  });
  const stop = (event) => {
    fingers.delete(event.pointerId);
    pinch = null;
    if (drag && drag.tool === "region" && state.region) announce(`Region of ${$("region-size").textContent}`);
    drag = null;
    frame.classList.remove("dragging");
  };
  canvas.addEventListener("pointerup", stop);
  canvas.addEventListener("pointercancel", stop);
  canvas.addEventListener("pointerleave", (event) => {
    if (drag || event.pointerType === "touch") return; // a finger that was lifted leaves the cross, to be read
    state.cursor = null;
    invalidate();
  });
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("dblclick", () => toggleSolo(panel.source));
}

// Distance and middle of two fingers.
function spread() {
  const [[x0, y0], [x1, y1]] = fingers.values();
  return { apart: Math.max(1, Math.hypot(x1 - x0, y1 - y0)), x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
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
