// Numbers: the pixel under the pointer, and the scores of the slice.

const METRICS = {
  psnr: { label: "PSNR", head: "PSNR dB", show: (v) => v.toFixed(2), best: Math.max },
  ssim: { label: "SSIM", head: "SSIM", show: (v) => v.toFixed(3), best: Math.max },
  nmse: { label: "NMSE", head: "NMSE", show: (v) => v.toFixed(4), best: Math.min },
};
const scored = sources.filter((source) => source.scores.psnr);
const drawn = sources.filter((source) => !source.reference);
const seriesColour = (source) => (source.reference ? "var(--ink)" : `var(--series-${drawn.indexOf(source) % 6})`);
const mean = (values) => {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((a, b) => a + b) / known.length : null;
};

function cell(tag, text, small) {
  const made = make(tag, { textContent: text });
  if (tag === "th") made.scope = "col";
  if (small) made.append(make("small", { textContent: small }));
  return made;
}

// The heading of a row: the name of a source, with the colour of its line in the plots.
function named(source) {
  const made = make("th", { scope: "row", title: source.name });
  if (sources.includes(source)) {
    const swatch = make("span", { className: "swatch" });
    swatch.style.background = seriesColour(source);
    made.append(swatch);
  }
  made.append(source.name);
  return made;
}

// A table with a row for each source: its name, then cells, text or elements.
function fillTable(table, head, rows, corner = "") {
  const first = corner ? cell("th", corner) : make("td");
  const body = rows.map(([source, cells]) =>
    make("tr", {}, named(source), ...cells.map((one) => (one instanceof Element ? one : cell("td", one)))));
  table.replaceChildren(make("tr", {}, first, ...head.map((text) => cell("th", text))), ...body);
}

function drawScores() {
  if (!scored.length) return;
  const keys = Object.keys(METRICS);
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
    return [source, cells];
  });
  const corner = study.slices > 1 ? `slice ${state.slice + 1}` : "";
  fillTable($("scores"), keys.map((key) => METRICS[key].head), rows, corner);
}

const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(1);

function drawReadout() {
  const at = state.cursor;
  $("place").textContent = at ? `row ${at.row}, column ${at.column}` : "point at an image";
  $("millimetres").textContent = at && state.view !== "kspace" ? inMillimetres(at.row, at.column) : "";
  if (VIEWS[state.view]?.alone) return;
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
    return [source, cells];
  });
  fillTable($("readout"), columns, rows);
}
