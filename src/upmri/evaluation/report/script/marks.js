// What is drawn over an image: scale bar, directions, cross, region and line.

const MARK = "#6cb0ff";

function drawMarks(context, canvas, view) {
  const at = place(canvas);
  if (view !== "kspace") {
    if (!state.split) drawRuler(context, canvas, at);
    drawDirections(context, canvas, at);
    drawShapes(context, at);
  }
  drawCross(context, at);
}

// Lines of two colours are visible on bright and on dark images.
function stroke(context) {
  for (const [colour, width] of [["rgb(0 0 0 / .7)", 3], [MARK, 1.2]]) {
    context.strokeStyle = colour;
    context.lineWidth = width * devicePixelRatio;
    context.stroke();
  }
}

// Text with a dark edge, for the same reason.
function write(context, text, x, y) {
  context.lineWidth = 3 * devicePixelRatio;
  context.lineJoin = "round";
  context.strokeStyle = "rgb(0 0 0 / .6)";
  context.strokeText(text, x, y);
  context.fillText(text, x, y);
}

// A scale bar, if the voxel size is known.
function drawRuler(context, canvas, { sx, sy, x, y }) {
  if (!study.millimetres) return;
  const perMillimetre = sx / study.pixel[1];
  const length = [200, 100, 50, 20, 10, 5, 2, 1].find((mm) => mm * perMillimetre < canvas.width / 3);
  if (!length) return;
  const unit = devicePixelRatio;
  const [left, bottom] = [Math.max(0, x) + 8 * unit, Math.min(canvas.height, y + H * sy) - 8 * unit];
  context.font = `${11 * unit}px system-ui, sans-serif`;
  context.fillStyle = "rgb(255 255 255 / .9)";
  context.beginPath();
  context.moveTo(left, bottom);
  context.lineTo(left + length * perMillimetre, bottom);
  for (const [colour, width] of [["rgb(0 0 0 / .6)", 4], [context.fillStyle, 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = width * unit;
    context.stroke();
  }
  write(context, `${length} mm`, left, bottom - 5 * unit);
}

// Letters of the patient's directions at the left edge and at the top: what lies there.
function drawDirections(context, canvas, { sx, sy, x, y }) {
  if (!study.affine || canvas.width < 150 * devicePixelRatio) return;
  const unit = devicePixelRatio;
  const [left, right] = [Math.max(0, x), Math.min(canvas.width, x + W * sx)];
  const [top, bottom] = [Math.max(0, y), Math.min(canvas.height, y + H * sy)];
  context.save();
  context.font = `600 ${11 * unit}px system-ui, sans-serif`;
  context.fillStyle = "rgb(255 255 255 / .8)";
  context.textAlign = "center";
  context.textBaseline = "middle";
  write(context, towards(0, -1), (left + right) / 2, top + 10 * unit);
  write(context, towards(1, -1), left + 9 * unit, (top + bottom) / 2);
  context.restore();
}

function drawCross(context, { sx, sy, x, y }) {
  if (!state.cursor) return;
  const cx = x + (state.cursor.column + 0.5) * sx;
  const cy = y + (state.cursor.row + 0.5) * sy;
  const unit = devicePixelRatio;
  const [inner, outer] = [Math.max(3 * unit, sx / 2), Math.max(9 * unit, sx / 2 + 5 * unit)];
  context.beginPath();
  for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
    context.moveTo(cx + dx * inner, cy + dy * inner);
    context.lineTo(cx + dx * outer, cy + dy * outer);
  }
  stroke(context);
}

// The region and the line of the profile, with a dot at its beginning.
function drawShapes(context, { sx, sy, x, y }) {
  if (state.region) {
    const { top, left, height, width } = state.region;
    context.beginPath();
    const [rx, ry] = [(width * sx) / 2, (height * sy) / 2];
    context.ellipse(x + left * sx + rx, y + top * sy + ry, rx, ry, 0, 0, 2 * Math.PI);
    stroke(context);
  }
  if (state.line) {
    const [[fromX, fromY], [toX, toY]] = [state.line.from, state.line.to].map(([row, column]) => [
      x + (column + 0.5) * sx,
      y + (row + 0.5) * sy,
    ]);
    context.beginPath();
    context.moveTo(fromX, fromY);
    context.lineTo(toX, toY);
    stroke(context);
    context.fillStyle = MARK;
    context.beginPath();
    context.arc(fromX, fromY, 3 * devicePixelRatio, 0, 2 * Math.PI);
    context.fill();
  }
}
