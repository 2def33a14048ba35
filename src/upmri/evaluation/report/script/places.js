// Places in the image: of pointer events, in millimetres, and in the patient.

// The position of an event in the image, as fractions of its width and height.
function whereIn(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const [x, y] = [(event.clientX - box.left) / box.width - 0.5, (event.clientY - box.top) / box.height - 0.5];
  return [0, 1].map((axis) => state.centre[axis] + ([x, y][axis] * state.shares[axis]) / state.zoom);
}

const AXES = [["L", "R"], ["P", "A"], ["H", "F"]]; // ends of the axes of the patient: left, back, head

// The letter of the direction in which the row (axis 0) or the column (axis 1) index grows, or falls for `sign` −1.
function towards(axis, sign) {
  const along = study.affine.map((row) => row[axis]);
  const largest = along.reduce((best, value, index) => (Math.abs(value) > Math.abs(along[best]) ? index : best), 0);
  return AXES[largest][sign * along[largest] > 0 ? 0 : 1];
}

const tenths = (value) => value.toFixed(1).replace("-", "−");

// A place as text: in the patient if its position is known, else from the centre of the image, in mm.
function inMillimetres(row, column, slice = state.slice) {
  if (study.affine) {
    const at = study.affine.map(([a, b, c, d]) => a * row + b * column + c * slice + d);
    return `${at.map((value, axis) => `${AXES[axis][value < 0 ? 1 : 0]} ${Math.abs(value).toFixed(1)}`).join("  ")} mm`;
  }
  if (!study.millimetres) return "";
  const [y, x] = [(row - (H - 1) / 2) * study.pixel[0], (column - (W - 1) / 2) * study.pixel[1]];
  return `${tenths(x)}, ${tenths(y)} mm from the centre`;
}

// The value of a source at a point between pixels, by linear interpolation.
function interpolated(codes, { step, offset }, row, column) {
  const [top, left] = [clamp(Math.floor(row), 0, H - 1), clamp(Math.floor(column), 0, W - 1)];
  const [below, right] = [Math.min(top + 1, H - 1), Math.min(left + 1, W - 1)];
  const [v, u] = [clamp(row - top, 0, 1), clamp(column - left, 0, 1)];
  const upper = codes[top * W + left] * (1 - u) + codes[top * W + right] * u;
  const lower = codes[below * W + left] * (1 - u) + codes[below * W + right] * u;
  return offset + step * (upper * (1 - v) + lower * v);
}

// Text for screen readers, spoken when nothing else is.
let announcing = null;
function announce(text) {
  clearTimeout(announcing);
  announcing = setTimeout(() => ($("announcer").textContent = text), 150); // the last of quick changes
}
