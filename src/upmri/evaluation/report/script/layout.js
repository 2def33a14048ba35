// Layout: which panels are shown, in which order, and how large they are.

const CAPTION = 22;
const GAP = [6, 2]; // between columns, between rows
const shape = () => (H * study.pixel[0]) / (W * study.pixel[1]); // height over width of an image, in mm

// The sources that are shown, and the views of each.
function content() {
  const paired = Boolean(state.paired[state.view]) && !VIEWS[state.view].alone;
  // Above errors, the image they are compared with is shown as well.
  const also = paired && state.view === "error" ? against() : null;
  let shown = everything().filter((source) => VIEWS[state.view].of(source) || source === also);
  if (shown.includes(state.solo)) shown = [state.solo];
  const views = paired ? ["magnitude", state.view] : [state.view];
  // With a deviation the error is shown, if it is known: does one predict the other?
  if (paired && state.view === "uncertainty" && shown.some(VIEWS.error.of)) views.splice(1, 0, "error");
  return { shown, views };
}

// Rows of panels, each a list of [source, view] or null for an empty place: the views of a source one above the other.
function stacked(shown, views, columns) {
  const rows = [];
  for (let start = 0; start < shown.length; start += columns) {
    const line = Array.from({ length: columns }, (_, i) => shown[start + i]);
    for (const view of views) rows.push(line.map((source) => (source && VIEWS[view].of(source) ? [source, view] : null)));
  }
  return rows;
}

// The same with the views of a source beside each other; no source is divided between two rows.
function beside(shown, views, columns) {
  const rows = [[]];
  for (const source of shown) {
    const places = views.filter((view) => VIEWS[view].of(source)).map((view) => [source, view]);
    if (rows.at(-1).length + places.length > columns) rows.push([]);
    rows.at(-1).push(...places);
  }
  return rows.map((row) => [...row, ...Array(columns - row.length).fill(null)]);
}

// The arrangement with the largest images. Views beside each other must make them clearly larger than stacked ones,
// which are easier to compare.
function arrange() {
  const { shown, views } = content();
  const most = shown.length * views.length;
  let best = null;
  for (let columns = 1; columns <= most; columns++) {
    const tried = columns <= shown.length ? [[stacked(shown, views, columns), 1.06]] : [];
    if (views.length > 1 && columns >= views.length) tried.push([beside(shown, views, columns), 1]);
    for (const [rows, favour] of tried) {
      const value = favour * imageWidth(columns, rows.length);
      if (!best || value > best.value) best = { rows, columns, value };
    }
  }
  return best;
}

const nameOf = ({ rows, columns }) => `${columns}/${rows.flat().map((p) => (p ? `${p[0].id}${p[1]}` : "")).join()}`;
let arrangement = "";

function buildPanels() {
  const made = arrange();
  const focused = panels.find(({ figure }) => figure.contains(document.activeElement));
  arrangement = nameOf(made);
  $("panels").style.setProperty("--columns", made.columns);
  const first = new Set();
  const built = made.rows.flat().map((place) => {
    if (!place) return { figure: make("div", { className: "empty" }) };
    const panel = buildPanel(...place, !first.has(place[0]));
    first.add(place[0]);
    return panel;
  });
  $("panels").replaceChildren(...built.map((panel) => panel.figure));
  panels = built.filter((panel) => panel.canvas);
  // Panels are built anew; the focus stays on the panel of the same source.
  if (focused) panels.find(({ source }) => source === focused.source)?.figure.focus();
  layout();
}

// After a change of size: panels are built again only if their order changes.
function resize() {
  if (nameOf(arrange()) === arrangement) layout();
  else buildPanels();
}

function freeSize() {
  const style = getComputedStyle($("panels"));
  const pad = parseFloat(style.paddingLeft) * 2;
  const box = $("panels").getBoundingClientRect();
  return [box.width - pad, box.height - pad];
}

// Width and height of a panel without its caption, if all of the area is used.
function cellSize(columns, rows) {
  const [width, height] = freeSize();
  return [(width - GAP[0] * (columns - 1)) / columns, (height - GAP[1] * (rows - 1)) / rows - CAPTION];
}

function imageWidth(columns, rows) {
  const [width, height] = cellSize(columns, rows);
  return Math.max(60, Math.floor(Math.min(width, height / shape())));
}

// A panel is as large as its image. When the image is enlarged, it fills the whole place that there is for it.
function layout() {
  const columns = Number($("panels").style.getPropertyValue("--columns"));
  const rows = Math.ceil($("panels").childElementCount / columns);
  const image = imageWidth(columns, rows);
  let [width, height] = [image, Math.round(image * shape())];
  state.shares = [1, 1];
  if (state.zoom > 1) {
    const [cellWidth, cellHeight] = cellSize(columns, rows).map(Math.floor);
    state.shares = [Math.max(1, cellWidth / width), Math.max(1, cellHeight / height)];
    [width, height] = [Math.max(width, cellWidth), Math.max(height, cellHeight)];
  }
  for (const { frame, figure, canvas } of panels) {
    figure.style.width = `${width}px`;
    for (const part of [frame, canvas]) {
      part.style.width = `${width}px`;
      part.style.height = `${height}px`;
    }
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
  }
  invalidate();
}
