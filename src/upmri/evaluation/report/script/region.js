// The region of interest: an ellipse, and the statistics of every image in it.

const REGION = ["top", "left", "height", "width"];

function setRegion(region) {
  state.region = region && {
    height: clamp(region.height, 1, H),
    width: clamp(region.width, 1, W),
    top: clamp(region.top, 0, H - clamp(region.height, 1, H)),
    left: clamp(region.left, 0, W - clamp(region.width, 1, W)),
  };
  if (region && $("region").hidden) buildRegion();
  $("region").hidden = !region;
  for (const name of region ? REGION : []) {
    if (document.activeElement !== $(`region-${name}`)) $(`region-${name}`).value = Math.round(state.region[name]);
  }
  invalidate();
}

// The region with which the tool begins: a quarter of the image, in its middle.
const middleRegion = () => ({ top: (3 * H) / 8, left: (3 * W) / 8, height: H / 4, width: W / 4 });

// Whether the centre of a pixel is in the ellipse.
function within({ top, left, height, width }, row, column) {
  const [y, x] = [(row + 0.5 - top) / height - 0.5, (column + 0.5 - left) / width - 0.5];
  return x * x + y * y <= 0.25;
}

function pixelsOf(region) {
  const found = [];
  for (let row = Math.floor(region.top); row < Math.min(H, region.top + region.height); row++) {
    for (let column = Math.floor(region.left); column < Math.min(W, region.left + region.width); column++) {
      if (within(region, row, column)) found.push(row * W + column);
    }
  }
  return found;
}

// Mean, standard deviation and their ratio; and the root mean square of the difference from the compared image.
function statistics(pixels, codes, { step, offset }, others, compared) {
  const value = (i) => offset + step * codes[i];
  const average = pixels.reduce((sum, i) => sum + value(i), 0) / pixels.length;
  const squares = pixels.reduce((sum, i) => sum + (value(i) - average) ** 2, 0);
  const deviation = pixels.length > 1 ? Math.sqrt(squares / (pixels.length - 1)) : null;
  const error = others && pixels.reduce((sum, i) => sum + (value(i) - compared.offset - compared.step * others[i]) ** 2, 0);
  return {
    mean: average,
    deviation,
    snr: deviation ? average / deviation : null,
    rmse: others ? Math.sqrt(error / pixels.length) : null,
  };
}

function buildRegion() {
  const fields = REGION.map((name) => {
    const input = make("input", { type: "number", id: `region-${name}`, min: 0, max: 9999 });
    input.oninput = () => input.value !== "" && setRegion({ ...state.region, [name]: Number(input.value) });
    return make("label", {}, `${name} `, input);
  });
  $("region-fields").replaceChildren(...fields);
}

function drawRegion() {
  if (!state.region || state.view === "kspace") return;
  const pixels = pixelsOf(state.region);
  const others = state.against === null ? null : plane(against().has.magnitude);
  const compared = others && arrays[against().has.magnitude];
  const rows = sources.map((source) => {
    const codes = plane(source.has.magnitude);
    if (!codes || !pixels.length) return [source, {}];
    const same = source === sources[state.against];
    return [source, statistics(pixels, codes, arrays[source.has.magnitude], same ? null : others, compared)];
  });
  const shown = (value, count) => (typeof value === "number" ? value.toPrecision(count).replace("-", "−") : "–");
  const head = ["mean", "SD", "SNR", ...(state.against === null ? [] : ["RMSE %"])];
  fillTable($("region-table"), head, rows.map(([source, { mean: average, deviation, snr, rmse }]) => {
    const cells = [shown(average, 3), shown(deviation, 2), shown(snr, 3)];
    if (state.against !== null) cells.push(typeof rmse === "number" ? ((100 * rmse) / white).toPrecision(2) : "");
    return [source, cells];
  }));
  const area = pixels.length * study.pixel[0] * study.pixel[1];
  $("region-size").textContent = `${pixels.length} pixels${study.millimetres ? `, ${digits(area, 3)} mm²` : ""}`;
}
