// Panels: pictures of sources, and the elements that show them.

// One offscreen canvas for each source and view, painted again only when something it depends on has changed.
const pictures = new Map();

// The picture of a source in a view, as {canvas, fresh}. It is not fresh while its planes are being decoded; the canvas
// then shows the last picture, or black before the first.
function picture(source, view) {
  const key = `${source.id}/${view}`;
  if (!pictures.has(key)) {
    const [height, width] = arrays[VIEWS[view].needs(source)[0]].shape ?? [H, W];
    const canvas = make("canvas", { width, height });
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    pictures.set(key, { canvas, context, image, out: new Uint32Array(image.data.buffer), stamp: null, fresh: false });
  }
  const made = pictures.get(key);
  const stamp = [state.slice, ...VIEWS[view].stamp()].join();
  made.fresh = made.stamp === stamp;
  if (made.fresh) return made;
  const codes = VIEWS[view].needs(source).map((array) => plane(array));
  if (codes.includes(null)) return made;
  VIEWS[view].paint(made.out, source, codes);
  made.context.putImageData(made.image, 0, 0);
  made.stamp = stamp;
  made.fresh = true;
  return made;
}

let panels = []; // {source, view, figure, canvas, frame, name, score, divider, tags}

const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// A figure with caption, image and controls. `first`: whether it shows the scores of its source.
function buildPanel(source, view, first) {
  const name = make("span", { className: "name", textContent: source.name });
  const what = make("span", { className: "what" });
  const score = make("span", { className: "score" });
  const frame = make("div", { className: "frame" });
  const figure = make("figure", { className: "panel" }, make("figcaption", {}, name, what, score), frame);
  const panel = { source, view, first, figure, frame, name, what, score, canvas: make("canvas") };
  panel.canvas.setAttribute("role", "img");
  figure.tabIndex = 0;
  figure.setAttribute("role", "group");
  figure.setAttribute("aria-label", `${source.name}, ${VIEWS[view].label.toLowerCase()}`);
  const enlarge = button("⤢", "Enlarge, or back (m, double click)", () => toggleSolo(source));
  enlarge.className = "enlarge";
  enlarge.setAttribute("aria-label", `Enlarge ${source.name}`);
  frame.append(panel.canvas);
  figure.append(enlarge);
  if (other(source, view)) {
    panel.left = make("span", { className: "tag left", textContent: source.name, hidden: true });
    panel.right = make("span", { className: "tag right", textContent: against().name, hidden: true });
    panel.divider = buildDivider(panel);
    frame.append(panel.left, panel.right, panel.divider);
  }
  listen(panel);
  return panel;
}

function buildDivider(panel) {
  const divider = make("div", { className: "divider", tabIndex: 0, hidden: true });
  divider.setAttribute("role", "slider");
  divider.setAttribute("aria-label", `Split between ${panel.source.name} and ${against().name}`);
  divider.setAttribute("aria-valuemin", "0");
  divider.setAttribute("aria-valuemax", "100");
  divider.addEventListener("pointerdown", (event) => {
    divider.setPointerCapture(event.pointerId);
    event.stopPropagation();
  });
  divider.addEventListener("pointermove", (event) => {
    if (!divider.hasPointerCapture(event.pointerId)) return;
    const box = panel.frame.getBoundingClientRect();
    state.splitAt = clamp((event.clientX - box.left) / box.width, 0, 1);
    invalidate();
  });
  divider.addEventListener("keydown", (event) => {
    const change = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (change === undefined) return;
    state.splitAt = clamp(state.splitAt + change, 0, 1);
    event.preventDefault();
    event.stopPropagation();
    invalidate();
  });
  return divider;
}
