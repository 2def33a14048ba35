// The footer, and the start of the page.

function buildFoot() {
  const card = (heading, pairs) => {
    const list = make("dl");
    for (const [key, value] of pairs) {
      const entry = make("dd", { textContent: value });
      if (/SHA-256/.test(key)) entry.className = "hash";
      list.append(make("dt", { textContent: key }), entry);
    }
    return make("section", {}, make("h3", { textContent: heading }), list);
  };
  const results = sources.filter((source) => !source.reference);
  $("made").append(...results.map((source) => card(source.name, source.details)));
  $("made").append(card("scan", [...study.facts, ...study.meta]));
  const notes = [
    "Errors and standard deviations are in % of white, the 99.5th percentile of the brightest slice.",
    "PSNR, SSIM and NMSE compare magnitudes, slice by slice; ∅ is the mean over all slices.",
  ];
  notes.push("In a region, SD is the standard deviation of its pixels, and SNR is mean over SD: use it where the object is even.");
  if (COILS.length) notes.push("Coil images are of low resolution, with zeros where nothing was sampled.");
  if (study.bits < 16) notes.push(`Magnitudes have ${study.bits} bits, to keep the page small.`);
  if (study.leftOut.length) notes.push(`Left out to keep the page small: ${study.leftOut.join(", ")}.`);
  notes.push("Not for clinical use.");
  $("notes").textContent = notes.join(" ");
}

// What is known about each result beside its scores: what adaptation brought, doubts about coil maps, and so on.
function buildStatements() {
  const found = sources.flatMap((source) => source.statements.map(([subject, text]) => [source, subject, text]));
  $("statements").hidden = !found.length;
  $("statement-list").append(
    ...found.map(([source, subject, text]) =>
      make("li", {}, make("b", { textContent: source.name }), ` ${subject}: `, make("span", { textContent: text }))),
  );
}

function measure() {
  if (matchMedia("print").matches) return; // a printed page keeps the layout of the screen
  drawPlot();
  resize();
  invalidate();
}

// Short text for the facts in the header.
const FACTS = {
  slices: (value) => `${value} slice${value === "1" ? "" : "s"}`,
  matrix: (value) => value,
  voxel: (value) => value,
  coils: (value) => `${value} coil${value === "1" ? "" : "s"}`,
  acceleration: (value) => `${value} accelerated`,
};

function start() {
  resetWindow();
  $("title").textContent = study.title;
  $("title").title = study.title;
  const facts = study.facts.map(([key, value]) => FACTS[key]?.(value) ?? `${key} ${value}`);
  $("facts").textContent = facts.join(" · ");
  $("slice").max = study.slices;
  $("slider").hidden = study.slices === 1;
  $("slice").oninput = () => goTo(Number($("slice").value) - 1);

  available.forEach((view, index) => {
    const made = button(VIEWS[view].label, `${VIEWS[view].label} (${index + 1})`, () => show(view), false);
    made.dataset.view = view;
    $("views").append(made);
  });

  if (sources.length > 1) {
    state.against = 0; // the reference, which is the first when there is one
    const options = sources.map((source, index) => make("option", { value: index, textContent: source.name }));
    $("against").append(...options);
    $("against").onchange = () => setAgainst(Number($("against").value));
  } else $("comparing").hidden = true;

  $("plot").style.display = study.slices > 1 ? "" : "none";
  $("metrics").hidden = study.slices === 1;
  if (scored.length) {
    for (const [key, { label }] of Object.entries(METRICS)) {
      const made = button(label, `${label} of every slice`, () => {
        state.metric = key;
        for (const each of $("metrics").children) each.setAttribute("aria-pressed", each === made);
        drawPlot();
      }, key === state.metric);
      $("metrics").append(made);
    }
  } else $("score-section").hidden = true;

  for (const [tool, { label, title }] of Object.entries(TOOLS)) {
    const made = button(label, title, () => choose(tool), tool === state.tool);
    made.dataset.tool = tool;
    $("tools").append(made);
  }
  $("region-close").onclick = () => {
    setRegion(null);
    choose("window");
  };
  $("profile-close").onclick = () => {
    setLine(null);
    choose("window");
  };

  $("split-button").onclick = () => setSplit(!state.split);
  $("flicker-button").onclick = () => (flickering ? setSwapped(false) : setSwapped(!state.swapped));
  $("window-button").onclick = () => {
    resetWindow();
    syncOptions();
    invalidate();
  };
  $("pixels-button").onclick = () => {
    state.smooth = !state.smooth;
    press("pixels-button", !state.smooth);
    invalidate();
  };
  $("zoom-in").onclick = () => zoomBy(1.25);
  $("zoom-out").onclick = () => zoomBy(0.8);
  $("zoom-fit").onclick = () => moveTo(0.5, 0.5, 1);
  $("sidebar-button").onclick = toggleSidebar;
  $("theme-button").onclick = setTheme;
  $("help-button").onclick = () => $("help").showModal();
  $("help-close").onclick = () => $("help").close();

  $("panels").addEventListener("wheel", onWheel, { passive: false });
  buildHelp();
  buildFoot();
  buildStatements();
  state.paired.error = state.paired.uncertainty = true;
  goTo(state.slice);
  state.view = hasReference && available.includes("error") ? "error" : "magnitude";
  show(state.view);
  new ResizeObserver(measure).observe($("panels"));
}

start();
