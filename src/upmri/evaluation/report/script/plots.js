// Plots: axes and lines, and the plot of a score over all slices.

const svg = (tag, attributes = {}, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
};

const PLOT = { left: 38, right: 8, top: 8, bottom: 20 };

const DASHES = ["", "5 3", "1.5 3"];

// Axes for values from `low` to `high`, with ticks of the vertical one: {x, y, parts, width, height}.
function drawAxes(plot, [first, last], [low, high]) {
  const width = plot.clientWidth || 256;
  const height = plot.clientHeight || 150;
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.02 || 1;
  [low, high] = [low === 0 ? 0 : low - pad, high + pad];
  const inner = width - PLOT.left - PLOT.right - 12;
  const x = (value) => PLOT.left + 6 + (inner * (value - first)) / (last - first || 1);
  const y = (value) => PLOT.top + (height - PLOT.top - PLOT.bottom) * (1 - (value - low) / (high - low));
  const parts = ticks(low, high).flatMap((tick) => [
    svg("line", { class: "axis", x1: PLOT.left, x2: width - PLOT.right, y1: y(tick), y2: y(tick) }),
    svg("text", { x: PLOT.left - 5, y: y(tick) + 3.5, "text-anchor": "end" }, digits(tick, 4)),
  ]);
  return { x, y, parts, width, height, inner };
}

// The line of a source through points of the plot; colours repeat after six sources, with other dashes.
function drawLine(source, points) {
  const line = svg("polyline", { points: points.map((point) => point.map((p) => p.toFixed(1)).join()).join(" ") });
  line.style.stroke = seriesColour(source);
  const index = drawn.indexOf(source);
  const dash = index < 0 ? "" : DASHES[(index + Math.floor(index / 6)) % 3];
  if (dash) line.setAttribute("stroke-dasharray", dash);
  return line;
}

function drawPlot() {
  if (!scored.length || study.slices === 1) return;
  const plot = $("plot");
  const all = scored.flatMap((source) => source.scores[state.metric]).filter((value) => value !== null);
  if (!all.length) return plot.replaceChildren();
  const { x, y, parts, inner, height } = drawAxes(plot, [0, study.slices - 1], [Math.min(...all), Math.max(...all)]);
  const now = x(state.slice);
  parts.push(svg("line", { class: "now", x1: now, x2: now, y1: PLOT.top, y2: height - PLOT.bottom }));
  for (const source of scored) {
    const values = source.scores[state.metric];
    const points = values.flatMap((value, slice) => (value === null ? [] : [[x(slice), y(value)]]));
    parts.push(drawLine(source, points));
    const value = values[state.slice];
    for (const [cx, cy] of study.slices <= 12 ? points : value === null ? [] : [[now, y(value)]]) {
      const dot = svg("circle", { cx, cy, r: 3 });
      dot.style.fill = seriesColour(source);
      parts.push(dot);
    }
  }
  const marks = new Set([0, study.slices - 1, state.slice]);
  for (const slice of marks) {
    // No label of an end where the label of the current slice is.
    if (slice !== state.slice && Math.abs(x(slice) - now) < 18) continue;
    parts.push(svg("text", { x: x(slice), y: height - 5, "text-anchor": "middle" }, String(slice + 1)));
  }
  plot.replaceChildren(...parts);
  plot.onclick = (event) => {
    const at = event.clientX - plot.getBoundingClientRect().left - PLOT.left - 6;
    goTo(Math.round((at / inner) * (study.slices - 1)));
  };
}

function ticks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const made = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) made.push(tick);
  return made;
}
