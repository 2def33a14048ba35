// Drawing: pictures in panels, with split and colour scales.

let asked = false;
let seen = false;

function invalidate() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const start = performance.now();
    const complete = draw();
    performance.clearMeasures("redraw");
    performance.measure("redraw", { start, end: performance.now() });
    if (complete && !seen) {
      seen = true;
      performance.mark("first-picture");
      document.documentElement.dataset.ready = "";
      decodeAhead();
    }
    if (complete) decodeNeighbours();
    // The slice that is drawn, for programs that control the page.
    document.documentElement.dataset.slice = complete ? state.slice : "";
  });
}

function draw() {
  let complete = true;
  for (const panel of panels) if (panel.canvas && !drawPanel(panel)) complete = false;
  drawScales();
  drawReadout();
  drawRegion();
  drawProfile();
  return complete;
}

// Where the image is on a canvas: size of a pixel and position of the first one, in pixels of the canvas.
function place(canvas) {
  const [rows, columns] = study.pixel;
  const unit = Math.min(canvas.width / (W * columns), canvas.height / (H * rows)) * state.zoom;
  const [sx, sy] = [unit * columns, unit * rows];
  return { sx, sy, x: canvas.width / 2 - state.centre[0] * W * sx, y: canvas.height / 2 - state.centre[1] * H * sy };
}

function drawPanel(panel) {
  const { canvas, source, view } = panel;
  const swap = other(source, view);
  const swapped = state.swapped && swap !== null && !state.split;
  const shown = swapped ? picture(...swap) : picture(source, view);
  const beside = state.split && swap ? picture(...swap) : null;
  const context = canvas.getContext("2d");
  const { sx, sy, x, y } = place(canvas);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = "#000";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = state.smooth && view !== "kspace";
  context.imageSmoothingQuality = "high";
  context.drawImage(shown.canvas, x, y, W * sx, H * sy);
  if (beside) {
    const cut = Math.round(canvas.width * state.splitAt);
    context.save();
    context.beginPath();
    context.rect(cut, 0, canvas.width - cut, canvas.height);
    context.clip();
    context.drawImage(beside.canvas, x, y, W * sx, H * sy);
    context.restore();
  }
  drawMarks(context, canvas, view);

  panel.figure.classList.toggle("swapped", swapped);
  panel.name.textContent = swapped ? swap[0].name : source.name;
  if (panel.divider) {
    for (const part of [panel.divider, panel.left, panel.right]) part.hidden = !state.split;
    panel.divider.style.left = `${100 * state.splitAt}%`;
    panel.divider.setAttribute("aria-valuenow", Math.round(100 * state.splitAt));
  }
  panel.what.textContent = describe(panel, swapped);
  panel.score.replaceChildren(...(swapped || !panel.first ? [] : scoreLine(source)));
  const label = `${panel.name.textContent}, ${view}, slice ${state.slice + 1}. ${panel.score.textContent}`;
  canvas.setAttribute("aria-label", label);
  return shown.fresh && (beside?.fresh ?? true);
}

function describe({ source, view }, swapped) {
  if (swapped || view === "magnitude") return "";
  if (view === "error") return `− ${against().name}`;
  if (view === "uncertainty") return "± deviation";
  const count = source.has.samples?.length;
  if (view === "samples") return `sample ${(state.sample % count) + 1} of ${count}`;
  if (source.isCoil) {
    const slice = heldSlice(VIEWS[view].needs(source)[0]);
    return slice === state.slice ? "" : `of slice ${slice + 1}`;
  }
  if (view === "kspace") return source.isMeasured ? "root sum of squares" : "of the image";
  return view;
}

function scoreLine(source) {
  const psnr = source.scores.psnr?.[state.slice];
  const ssim = source.scores.ssim?.[state.slice];
  const parts = [];
  if (typeof psnr === "number") parts.push(`${psnr.toFixed(1)} dB`);
  if (typeof ssim === "number") parts.push(make("span", { className: "less", textContent: ` · ${ssim.toFixed(3)}` }));
  return parts;
}

function drawScales() {
  const views = [...new Set(panels.filter((panel) => panel.canvas).map((panel) => panel.view))];
  const scales = views.map((view) => VIEWS[view].scale());
  const stamp = JSON.stringify(scales.map(({ label, ticks }) => [label, ticks])) + [state.signed, state.opacity];
  if ($("scales").dataset.stamp === stamp) return;
  $("scales").dataset.stamp = stamp;
  $("scales").replaceChildren(
    ...scales.map(({ label, colours, ticks }) => {
      const bar = make("canvas", { width: 256, height: 1 });
      const image = bar.getContext("2d").createImageData(256, 1);
      new Uint32Array(image.data.buffer).set(colours);
      bar.getContext("2d").putImageData(image, 0, 0);
      const [low, high] = ticks.map((text) => make("span", { textContent: text }));
      const name = make("span", { className: "label", textContent: label });
      return make("div", { className: "scale" }, name, low, bar, high);
    }),
  );
}

const digits = (value, count) => String(Number(value.toPrecision(count))).replaceAll("-", "−");
// The two ends of a scale; an end that is 0 up to rounding is shown as 0.
const ends = (low, high) => [low, high].map((end) => digits(Math.abs(end) < 1e-3 * (high - low) ? 0 : end, 3));
