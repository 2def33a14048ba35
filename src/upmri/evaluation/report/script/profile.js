// The line profile: magnitudes of every image along a line.

const ENDS = [["from", 0, "row"], ["from", 1, "column"], ["to", 0, "to row"], ["to", 1, "column"]];

function setLine(line) {
  const inside = ([row, column]) => [clamp(row, 0, H - 1), clamp(column, 0, W - 1)];
  state.line = line && { from: inside(line.from), to: inside(line.to) };
  if (line && $("profile").hidden) buildProfile();
  $("profile").hidden = !line;
  for (const [end, axis] of line ? ENDS : []) {
    const input = $(`line-${end}-${axis}`);
    if (document.activeElement !== input) input.value = Math.round(state.line[end][axis]);
  }
  invalidate();
}

const middleLine = () => ({ from: [Math.floor(H / 2), Math.floor(W / 8)], to: [Math.floor(H / 2), Math.floor((7 * W) / 8)] });

function buildProfile() {
  const fields = ENDS.map(([end, axis, text]) => {
    const input = make("input", { type: "number", id: `line-${end}-${axis}`, min: 0, max: (axis ? W : H) - 1 });
    input.setAttribute("aria-label", `${end} ${axis ? "column" : "row"}`);
    input.oninput = () => {
      if (input.value === "") return;
      const line = { from: [...state.line.from], to: [...state.line.to] };
      line[end][axis] = Number(input.value);
      setLine(line);
    };
    return make("label", {}, `${text} `, input);
  });
  $("profile-fields").replaceChildren(...fields);
}

// Values of a source at points at most a pixel apart, as [distance, value]; distances in mm, or in pixels.
function along({ from, to }, codes, array) {
  const [rows, columns] = [to[0] - from[0], to[1] - from[1]];
  const count = Math.max(2, Math.ceil(Math.hypot(rows, columns)) + 1);
  const length = Math.hypot(rows * study.pixel[0], columns * study.pixel[1]);
  return Array.from({ length: count }, (_, i) => {
    const t = i / (count - 1);
    return [t * length, interpolated(codes, array, from[0] + t * rows, from[1] + t * columns)];
  });
}

function drawProfile() {
  if (!state.line || state.view === "kspace") return;
  const lines = [];
  for (const source of sources) {
    const codes = plane(source.has.magnitude);
    if (!codes) return;
    lines.push({ source, points: along(state.line, codes, arrays[source.has.magnitude]) });
  }
  const values = lines.flatMap(({ points }) => points.map((point) => point[1]));
  const length = lines[0].points.at(-1)[0];
  const unit = study.millimetres ? "mm" : "pixels";
  const made = drawAxes($("profile-plot"), [0, length || 1], [Math.min(0, ...values), Math.max(...values)]);
  for (const { source, points } of lines) made.parts.push(drawLine(source, points.map(([t, v]) => [made.x(t), made.y(v)])));
  for (const [at, anchor] of [[0, "middle"], [length, "end"]]) {
    const text = at ? `${digits(at, 3)} ${unit}` : "0";
    made.parts.push(svg("text", { x: made.x(at), y: made.height - 5, "text-anchor": anchor }, text));
  }
  $("profile-plot").replaceChildren(...made.parts);
  $("profile-length").textContent = `${digits(length, 3)} ${unit}`;
  const ranges = lines.map(({ source, points }) => {
    const found = points.map((point) => point[1]);
    return `${source.name} from ${digits(Math.min(...found), 3)} to ${digits(Math.max(...found), 3)}`;
  });
  $("profile-plot").setAttribute("aria-label", `Magnitude along ${digits(length, 3)} ${unit}: ${ranges.join("; ")}`);
}
