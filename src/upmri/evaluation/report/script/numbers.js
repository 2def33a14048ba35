// Numbers: the pixel under the mouse, the scores of the slice, and their plot over all slices.

const METRICS = {
  psnr: { label: "PSNR", head: "PSNR dB", show: (v) => v.toFixed(2), best: Math.max },
  ssim: { label: "SSIM", head: "SSIM", show: (v) => v.toFixed(3), best: Math.max },
  nmse: { label: "NMSE", head: "NMSE", show: (v) => v.toFixed(4), best: Math.min },
};
const scored = sources.filter((source) => source.scores.psnr);
const seriesColour = (source) => `var(--series-${scored.indexOf(source) % 6})`;
const mean = (values) => {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((a, b) => a + b) / known.length : null;
};

function cell(tag, text, small) {
  const made = make(tag, { textContent: text });
  if (small) made.append(make("small", { textContent: small }));
  return made;
}

function named(source) {
  const made = cell("td", "");
  if (scored.length) {
    const swatch = make("span", { className: "swatch" });
    if (scored.includes(source)) swatch.style.background = seriesColour(source);
    made.append(swatch);
  }
  made.append(source.name);
  made.title = source.name;
  return made;
}

function drawScores() {
  if (!scored.length) return;
  const keys = Object.keys(METRICS);
  const first = cell("th", study.slices > 1 ? `slice ${state.slice + 1}` : "");
  const head = make("tr", {}, first, ...keys.map((key) => cell("th", METRICS[key].head)));
  const rows = scored.map((source) => {
    const cells = keys.map((key) => {
      const values = scored.map((s) => s.scores[key][state.slice]).filter((v) => v !== null);
      const value = source.scores[key][state.slice];
      const average = study.slices > 1 ? mean(source.scores[key]) : null;
      const shown = (number) => (number === null ? "" : METRICS[key].show(number));
      const made = cell("td", shown(value) || "–", average === null ? "" : `∅ ${shown(average)}`);
      if (value !== null && scored.length > 1 && value === METRICS[key].best(...values)) made.className = "best";
      return made;
    });
    return make("tr", {}, named(source), ...cells);
  });
  $("scores").replaceChildren(head, ...rows);
}

const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(1);

function drawReadout() {
  const at = state.cursor;
  $("place").textContent = at ? `row ${at.row}, column ${at.column}` : "move the mouse over an image";
  const columns = ["|x|"];
  if (state.against !== null) columns.push("error %");
  if (sources.some((source) => source.has.std)) columns.push("± %");
  if (sources.some((source) => source.has.phase)) columns.push("phase");
  if (state.view === "kspace") columns.splice(0, 9, "log₁₀ |k|");
  const read = (array) => {
    const codes = array && at ? planes.get(`${array}/${state.slice}`) ?? (plane(array), null) : null;
    if (!codes) return null;
    const code = codes[at.row * W + at.column];
    return { code, value: arrays[array].offset + arrays[array].step * code };
  };
  const shown = state.view === "kspace" ? everything().filter(VIEWS.kspace.of) : sources;
  const show = (value) => (value === null ? "" : value);
  const rows = shown.map((source) => {
    const x = read(source.has.magnitude);
    const cells = columns.map((column) => {
      if (!at) return "–";
      if (column === "|x|") return show(x && digits(x.value, 4));
      if (column === "error %") {
        const x0 = source === against() ? null : read(against().has.magnitude);
        return show(x && x0 && signed((100 * (x.value - x0.value)) / white));
      }
      if (column === "± %") {
        const std = read(source.has.std);
        return show(std && ((100 * std.value) / white).toFixed(1));
      }
      if (column === "phase") {
        const angle = read(source.has.phase);
        return show(angle && (angle.code ? `${digits(Math.round((angle.value * 180) / Math.PI), 3)}°` : "noise"));
      }
      const k = read(source.has.kspace);
      return show(k && (k.code ? digits(k.value, 3) : "none"));
    });
    return make("tr", {}, named(source), ...cells.map((text) => cell("td", text)));
  });
  const head = make("tr", {}, cell("th", ""), ...columns.map((column) => cell("th", column)));
  $("readout").replaceChildren(head, ...rows);
}

const svg = (tag, attributes = {}, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
};

const PLOT = { left: 38, right: 8, top: 8, bottom: 20 };

function drawPlot() {
  if (!scored.length || study.slices === 1) return;
  const plot = $("plot");
  const width = plot.clientWidth || 272;
  const height = plot.clientHeight || 150;
  const all = scored.flatMap((source) => source.scores[state.metric]).filter((value) => value !== null);
  let [low, high] = [Math.min(...all), Math.max(...all)];
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.02 || 1;
  [low, high] = [low - pad, high + pad];
  const inner = width - PLOT.left - PLOT.right - 12;
  const x = (slice) => PLOT.left + 6 + (study.slices > 1 ? (inner * slice) / (study.slices - 1) : inner / 2);
  const y = (value) => PLOT.top + (height - PLOT.top - PLOT.bottom) * (1 - (value - low) / (high - low));
  const parts = [];
  for (const tick of ticks(low, high)) {
    parts.push(svg("line", { class: "axis", x1: PLOT.left, x2: width - PLOT.right, y1: y(tick), y2: y(tick) }));
    parts.push(svg("text", { x: PLOT.left - 5, y: y(tick) + 3.5, "text-anchor": "end" }, digits(tick, 6)));
  }
  const now = x(state.slice);
  parts.push(svg("line", { class: "now", x1: now, x2: now, y1: PLOT.top, y2: height - PLOT.bottom }));
  scored.forEach((source, index) => {
    const values = source.scores[state.metric];
    const points = values.flatMap((value, slice) => (value === null ? [] : [[x(slice), y(value)]]));
    const colour = seriesColour(source);
    const line = svg("polyline", { points: points.map((point) => point.map((p) => p.toFixed(1)).join()).join(" ") });
    line.style.stroke = colour;
    if (index % 3) line.setAttribute("stroke-dasharray", index % 3 === 1 ? "5 3" : "1.5 3");
    parts.push(line);
    const value = values[state.slice];
    for (const [cx, cy] of study.slices <= 12 ? points : value === null ? [] : [[x(state.slice), y(value)]]) {
      const dot = svg("circle", { cx, cy, r: 3 });
      dot.style.fill = colour;
      parts.push(dot);
    }
  });
  const marks = new Set([0, study.slices - 1, state.slice]);
  for (const slice of marks) {
    // No label of an end where the label of the current slice is.
    if (slice !== state.slice && Math.abs(x(slice) - x(state.slice)) < 18) continue;
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
