// The state of the page; everything that is drawn follows from it.
//
// The parts of this script share one scope, use no library and draw on Canvas 2-D. Data is in script elements of the
// page, one for each slice of each array, packed by upmri.evaluation.report.encode. Text from files is never parsed as
// HTML: it is put into the document by textContent only.

const study = JSON.parse(document.getElementById("study").textContent);
const { height: H, width: W, sources, measured, arrays, white } = study;
const $ = (id) => document.getElementById(id);
sources.forEach((source, index) => (source.id = index));
const hasReference = sources.some((source) => source.reference);

const state = {
  slice: study.start,
  view: null, // a key of VIEWS
  paired: {}, // view → whether the magnitudes are shown above it
  against: null, // index of the source that the others are compared with
  split: false,
  splitAt: 0.5, // fraction of a panel's width
  swapped: false, // flicker: the compared image is shown
  solo: null, // the only source shown, enlarged
  tool: "window", // what a drag on an image does: a key of TOOLS
  region: null, // {top, left, height, width} of the ellipse in pixels
  line: null, // {from: [row, column], to: [row, column]}, the ends of the profile, in pixels
  zoom: 1,
  centre: [0.5, 0.5], // of the view, as fractions of width and height
  sample: 0,
  smooth: true,
  cursor: null, // {row, column}
  mask: true,
  signed: false,
  opacity: 0.5, // of deviations over an image: at 0 the image alone, at 1 the deviations alone
  exponent: 1.5, // of the overlay, see setOpacity
  metric: "psnr",
  window: null, // see resetWindow
  shares: [1, 1], // width and height of a panel as parts of the image's, at zoom 1
};

const resetWindow = () => {
  state.window = { low: 0, high: white, gain: 5, std: study.deviation, turn: 0, kLow: -4.5, kHigh: -0.2, coil: 1 };
};
