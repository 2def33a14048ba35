// Panels: pictures of sources, and their layout.

// One offscreen canvas for each source and view, painted again only when something it depends on has changed.
const pictures = new Map();

// The picture of a source in a view, as {canvas, fresh}. It is not fresh while its planes are being decoded; the canvas
// then shows the last picture, or black before the first.
function picture(source, view) {
  const key = `${source.id}/${view}`;
  if (!pictures.has(key)) {
    const canvas = make("canvas", { width: W, height: H });
    const context = canvas.getContext("2d");
    const image = context.createImageData(W, H);
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

// Which sources are shown, in which rows, and in how many columns.
function arrange() {
  const view = VIEWS[state.view];
  const paired = Boolean(state.paired[state.view]);
  // Above errors, the image they are compared with is shown as well.
  const also = paired && state.view === "error" ? against() : null;
  let shown = everything().filter((source) => view.of(source) || source === also);
  if (shown.includes(state.solo)) shown = [state.solo];
  const rows = paired ? ["magnitude", state.view] : [state.view];
  // With a deviation the error is shown, if it is known: does one predict the other?
  if (paired && state.view === "uncertainty" && shown.some(VIEWS.error.of)) rows.splice(1, 0, "error");
  const alone = shown.length === 1; // its rows are then placed side by side, if that makes them larger
  const columns = alone ? bestColumns(rows.length, 1) : bestColumns(shown.length, rows.length);
  return { shown, rows, columns, alone };
}

function buildPanels() {
  const { shown, rows, columns, alone } = arrange();
  $("panels").style.setProperty("--columns", columns);
  panels = [];
  for (let start = 0; start < shown.length; start += columns) {
    const line = shown.slice(start, start + columns);
    for (const row of rows) {
      for (const source of line) panels.push(buildPanel(source, row, row === rows[0]));
      // Empty panels fill the last line, so that views of one source stay in one column.
      for (let i = line.length; i < columns && rows.length > 1 && !alone; i++) panels.push({ figure: make("div") });
    }
  }
  $("panels").replaceChildren(...panels.map((panel) => panel.figure));
  panels = panels.filter((panel) => panel.frame);
  layout();
}

// After a change of size: panels are built again only if the number of columns changes.
function resize() {
  if (arrange().columns === Number($("panels").style.getPropertyValue("--columns"))) layout();
  else buildPanels();
}

function buildPanel(source, view, first) {
  const shows = VIEWS[view].of(source);
  const name = make("span", { className: "name", textContent: source.name });
  const what = make("span", { className: "what" });
  const score = make("span", { className: "score" });
  const frame = make("div", { className: "frame" });
  const figure = make("figure", { className: "panel" }, make("figcaption", {}, name, what, score), frame);
  const panel = { source, view, first, figure, frame, name, what, score, canvas: null };
  if (!shows) {
    frame.classList.add("none");
    name.textContent = "";
    return panel;
  }
  panel.canvas = make("canvas");
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

const CAPTION = 22;
const shape = () => (H * study.pixel[0]) / (W * study.pixel[1]); // height over width, in mm

function freeSize() {
  const style = getComputedStyle($("panels"));
  const pad = parseFloat(style.paddingLeft) * 2;
  const box = $("panels").getBoundingClientRect();
  return [box.width - pad, box.height - pad];
}

function panelWidth(columns, rows) {
  const [width, height] = freeSize();
  const byWidth = (width - 6 * (columns - 1)) / columns;
  const byHeight = ((height - 2 * (rows - 1)) / rows - CAPTION) / shape();
  return Math.max(60, Math.floor(Math.min(byWidth, byHeight)));
}

function bestColumns(count, rows) {
  const size = (columns) => panelWidth(columns, rows * Math.ceil(count / columns));
  const spare = (columns) => columns * Math.ceil(count / columns) - count;
  const better = (a, b) => size(a) - size(b) || spare(b) - spare(a); // large panels first, then few empty ones
  return [...Array(count).keys()].map((index) => index + 1).reduce((a, b) => (better(a, b) > 0 ? a : b), 1);
}

function layout() {
  const columns = Number($("panels").style.getPropertyValue("--columns"));
  const width = panelWidth(columns, Math.ceil($("panels").childElementCount / columns));
  const height = Math.round(width * shape());
  for (const { frame, figure, canvas } of panels) {
    figure.style.width = `${width}px`;
    frame.style.width = `${width}px`;
    frame.style.height = `${height}px`;
    if (!canvas) continue;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
  }
  invalidate();
}
