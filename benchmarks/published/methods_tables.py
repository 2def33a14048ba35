"""Tables of `upmri benchmark`: methods on test people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean
from typing import Any

from published.pages import Table, markdown, show
from published.results import Results

BRAINS = ("T1, skull-stripped", "T1 head", "T2 head")
GROUPS = (*BRAINS, "heart")
RATES = (4.0, 8.0)
# An entry is taken from the first file that has it.
RUNS = ("brain.csv", "samplers.csv", "cardiac.csv")
# Entries that may stand for one draw or for a mean.
SAMPLERS = {"ddnm", "dds", "dps", "ot-ode", "pnp-flow", "ambient"}
OURS, SHORT, SENSE, PAPER = "upmri", "upmri, 588 steps", "sense, best λ", "upmri-paper"


def value(r: Results, entry: str, group: str, rate: float, column: str = "psnr mean", maps: str = "espirit") -> Any:
    """A number of the benchmark, or None."""
    for file in (file for file in RUNS if r.has(file)):
        if found := r.all(file, column, entry=entry, group=group, acceleration=rate, maps=maps):
            return found[0]
    return None


def lead(r: Results, entry: str, group: str, rate: float, ours: str = OURS, maps: str = "espirit") -> list[float]:
    """Lead of `upmri`: its mean and a 95 % interval over people."""
    if ours == OURS and (found := value(r, entry, group, rate, "upmri ahead psnr", maps)) is not None:
        return [found, *(value(r, entry, group, rate, f"upmri ahead {end}", maps) for end in ("low", "high"))]
    means = [value(r, name, group, rate, maps=maps) for name in (ours, entry)]
    if None in means:
        return []
    return [means[0] - means[1], *_interval(r, entry, group, rate, ours, maps)]


def _interval(r: Results, entry: str, group: str, rate: float, ours: str, maps: str) -> Sequence[float]:
    from upmri.evaluation.benchmark.statistics import interval

    found = differences(r, entry, group, rate, ours, maps)
    return interval(found) if found else []


def differences(
    r: Results, entry: str, group: str, rate: float, ours: str = OURS, maps: str = "espirit"
) -> dict[str, list[float]]:
    """Lead of `upmri` in each slice, by person; nothing where the values of slices are not stored."""
    found: dict[str, list[float]] = defaultdict(list)
    for file in (file for file in ("brain-slices.csv", "cardiac-slices.csv") if r.has(file)):
        where = {"group": group, "acceleration": rate, "maps": maps}
        columns = [[r.all(file, name, entry=e, **where) for name in ("scan", "person", "psnr")] for e in (ours, entry)]
        theirs = dict(zip(columns[1][0], columns[1][2], strict=True))
        for scan, person, psnr in zip(*columns[0], strict=True):
            if scan in theirs:
                found[person].append(psnr - theirs[scan])
    return dict(found)


def entries(r: Results, maps: str = "espirit") -> dict[str, str]:
    """All entries, and what they were trained with, in the order of the benchmark."""
    found: dict[str, str] = {}
    for file in (file for file in reversed(RUNS) if r.has(file)):
        for name in r.distinct(file, "entry", maps=maps):
            found.setdefault(name, str(r.all(file, "learnt from", entry=name)[0]).split(",")[0])
    last = [name for name in (PAPER, SHORT, OURS) if name in found]
    kinds = ("nothing", "full images", "undersampled scans")
    order = sorted((name for name in found if name not in last), key=lambda name: kinds.index(found[name]))
    brains = r.distinct("brain.csv", "entry", maps=maps)
    order.sort(key=lambda name: (kinds.index(found[name]), brains.index(name) if name in brains else len(brains)))
    return {name: found[name] for name in [*order, *last]}


def label(entry: str) -> str:
    """`method`, and what is special about it."""
    name, _, rest = entry.partition(", ")
    name = name if " " in name else f"`{name}`"
    return f"{name}, {rest}" if rest else name


def pair(texts: Sequence[str], best: Sequence[bool]) -> str:
    """4× · 8×, the best in bold."""
    if all(best):
        return f"**{' · '.join(texts)}**"
    return " · ".join(f"**{text}**" if bold else text for text, bold in zip(texts, best, strict=True))


def scores(r: Results, column: str, spec: str, maps: str, chosen: Sequence[str] = ()) -> str:
    """All entries (or those chosen) and groups, 4× · 8×, the best of each group and rate in bold."""
    known = entries(r, maps)
    if chosen:
        known = {
            name: kind for name, kind in known.items() if name in chosen or name.split(", ")[0] in SAMPLERS & {*chosen}
        }
    shown = {(e, g): [show(v, spec) if (v := value(r, e, g, rate, column, maps)) is not None else "" for rate in RATES]
             for e in known for g in GROUPS}  # fmt: skip
    top = {(g, i): max(float(shown[e, g][i] or "-inf") for e in known) for g in GROUPS for i in range(2)}
    rows, before = [], ""
    for entry, kind in known.items():
        title = f"*{'no training' if kind == 'nothing' else kind}:* " if kind != before and not chosen else ""
        before = kind
        cells = []
        for group in GROUPS:
            texts = shown[entry, group]
            cells.append(pair(texts, [float(t) == top[group, i] for i, t in enumerate(texts)]) if all(texts) else "")
        rows.append([title + label(entry), *cells])
    people = [f"*{value(r, 'sense', g, 4.0, 'people'):.0f}*" for g in GROUPS]
    return markdown(["", *GROUPS], rows if chosen else [["*people*", *people], *rows])


def leads(r: Results, others: Sequence[str], groups: Sequence[str], spec: str, ours: str) -> str:
    """Lead over some methods, one row for each rate."""
    rows = []
    for other in others:
        for rate in RATES:
            cells = []
            for group in groups:
                found = [show(x, spec) for x in lead(r, other, group, rate, ours)]
                cells.append(f"{found[0]} ({found[1]} to {found[2]})" if len(found) > 1 else "".join(found))
            rows.append([f"`{other}`, 4×" if rate == 4 else "8×", *cells])
    what = "as shipped" if ours == OURS else "at about the same cost"
    return markdown([f"ahead of, {what}", *groups], rows)


def gains(r: Results) -> str:
    """README: gain over SENSE with the best λ."""
    rows = [[f"{rate:g}×", *(f"{show(lead(r, SENSE, g, rate)[0], '+.1f')} dB" for g in GROUPS)] for rate in RATES]
    return markdown(["", *GROUPS], rows)


def card(r: Results) -> str:
    """Model card: `upmri` beside SENSE, and the least gain of a slice."""
    rows = []
    for group in GROUPS:
        for rate in RATES:
            psnr = [value(r, name, group, rate) for name in (SENSE, OURS)]
            ssim = [value(r, name, group, rate, "ssim mean") for name in (SENSE, OURS)]
            gain = lead(r, SENSE, group, rate)[0]
            least = min(gain for gains in differences(r, SENSE, group, rate).values() for gain in gains)
            rows.append(
                [group, f"{rate:g}×", *(show(x, ".1f") for x in psnr), f"**{show(gain, '+.1f')}**", show(least, "+.1f"),
                 f"{ssim[0]:.3f} → {ssim[1]:.3f}", show(lead(r, SENSE, group, rate, maps="exact")[0], "+.1f")]
            )  # fmt: skip
    head = ["", "", "`sense`", "`upmri`", "gain", "least gain of a slice", "SSIM", "gain with the true maps"]
    return markdown(head, rows)


def trained(r: Results, key: str) -> int:
    """Steps, U-Net passes or seconds of all parts of the training of `brain`."""
    return sum(r.card("brain", "training", *("begun with", "training") * back, key) for back in range(4))


def rows_of(
    r: Results, file: str, groups: Sequence[str], rates: Sequence[float], names: dict[str, str]
) -> list[list[str]]:
    """Entries of one run by group at 4× · 8× (one group: by rate), under the names of the page."""
    rows = []
    for entry, name in names.items():
        where = [[r.all(file, "psnr mean", entry=entry, group=g, acceleration=a) for a in rates] for g in groups]
        cells = [[show(v[0], ".1f") if v else "" for v in row] for row in where]
        rows.append([name, *(cells[0] if len(groups) == 1 else (" · ".join(row) for row in cells))])
    return rows


def run(file: str, groups: Sequence[str], rates: Sequence[float], names: dict[str, str]) -> Any:
    """A table of one run."""
    head = ["", *([f"{a:g}×" for a in rates] if len(groups) == 1 else groups)]
    return lambda r: markdown(head, rows_of(r, file, groups, rates, names))


# Rows of tables of one run: entry of its configuration → what the page calls it.
ROBUSTNESS = {name: label(name) for name in
              ("sense", "upmri", "upmri, σ₀ × 3", "upmri, σ₀ / 3", "upmri, neighbour's maps")}  # fmt: skip
TRAINED = {
    "zero-filled": "`zero-filled`", "sense": "`sense`", "l1-wavelet": "`l1-wavelet`",
    "upmri, learnt at 4×": "`upmri`, trained at 4×", "upmri, learnt at 8×": "`upmri`, trained at 8×",
    "upmri": "`upmri`, shipped",
}  # fmt: skip
STEPS = {
    "sense": "SENSE", "as published": "0 as published",
    "no noise in the null space": "1 no noise in the unmeasured subspace", "one evaluation": "2 one evaluation",
    "half of the times at t = 0": "3 half of the times at t = 0", "predicts the image": "4 predicts the image",
    "input is an image": "5 input is an image", "damped projections": "6 damped projections",
    "no divergence": "7 no divergence", "loss on other lines": "8 loss on lines that are not input",
    "data consistency inside": "9 data consistency inside the network", "ten cascades": "10 ten cascades",
    "upmri": "11 the path: `upmri`",
}  # fmt: skip
SWITCHES = {
    "sense": "SENSE", "as published": "`upmri-paper` as published",
    "without null-space noise": "without the noise (`null_noise: false`)",
    "image as input": "with it, input x(t) in the backward pass (`image_input: true`)",
    "one evaluation": "one evaluation (`single_evaluation: true`)", "upmri": "`upmri`",
}  # fmt: skip
MEANS = {
    f"{entry}{end}": f"{label(entry)}, one draw" if end == ", one draw" else "mean of 8"
    for entry in ("ddnm", "ddnm, published Λ", "dds", "dps", "ot-ode", "pnp-flow", "ambient")
    for end in (", one draw", ", mean of 8")
} | {
    "gtf2m": "`gtf2m`, default times", "gtf2m, a step of SENSE": "`gtf2m`, default times, a step of SENSE",
    "robust-ssdu, published network": "`robust-ssdu`, published network", "upmri": "`upmri`",
}  # fmt: skip
CONTROLLED, LEVERS, SEARCHED = "controlled.json", "levers.json", "learning_rates.json"


def steps(r: Results) -> str:
    """From `upmri-paper` to `upmri`, one row for each change, and the shipped weights on the same scans."""
    shipped = [" · ".join(show(value(r, OURS, group, rate), ".1f") for rate in RATES) for group in BRAINS]
    name = f"as shipped: four levels, memory, Muon, FLAIR, {trained(r, 'steps'):,} steps"
    last = [f"*{cell}*" for cell in (name, *shipped)]
    return markdown(["", *BRAINS], [*rows_of(r, "steps.csv", BRAINS, RATES, STEPS), last])


def levers(r: Results) -> str:
    """Changes to network and training one by one: gains over SENSE, and what each is worth, by seed."""
    each: dict[str, list[dict[str, Any]]] = {}
    for row in r.at(LEVERS, "rows"):
        each.setdefault(row["variant"], []).append(row)
    first, rows = each["shipped"], []
    for name, found in each.items():
        gain = " · ".join(show(mean(row[key] for row in found), ".2f") for key in ("held_out_gain", "gain"))
        pairs = zip(found, first, strict=True)
        worth = " · ".join(show(row["held_out_gain"] - base["held_out_gain"], "+.2f") for row, base in pairs)
        label = "as in part 3" if found is first else name
        rows.append([label, f"{found[0]['steps']:,}", gain, worth if found is not first else ""])
    return markdown(["", "steps", "gain over SENSE", "more on held-out lines, by seed"], rows)


def searched(r: Results) -> str:
    """Learning rates of the trainings for comparison: gain over SENSE on held-out lines, the best one in bold."""
    rows = []
    for row in r.at(SEARCHED, "rows"):
        shown = {float(rate): f"{_short(float(rate))}: {show(gain, '+.2f')}" for rate, gain in row["scores"].items()}
        shown[row["rate"]] = f"**{shown[row['rate']]}**"
        rows.append([f"`{row['name'].removeprefix('brain-')}`", str(row["steps"]), " · ".join(shown.values())])
    return markdown(["", "steps", "learning rate: gain"], rows)


def _short(number: float) -> str:
    """A number such as 7.5e-4."""
    digits, exponent = f"{number:e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


def endpoints(r: Results) -> str:
    """Controlled experiment: differences in dB over all groups and rates, with 95 % intervals, and by seed."""
    rows = []
    for one in r.at(CONTROLLED, "endpoints"):
        if one["group"] == "all":
            low, high = (show(one[end], "+.2f") for end in ("low", "high"))
            seeds = " · ".join(show(value, "+.2f") for value in one["by_seed"])
            what = f"`{one['arm']}` − `{one['less']}`"
            rows.append([one["name"], what, f"{show(one['mean'], '+.2f')} ({low} to {high})", seeds])
    return markdown(["question", "difference", "dB", "by seed"], rows)


def arms(r: Results) -> str:
    """Controlled experiment: PSNR of every arm by group, 4× · 8×."""
    found = {(row["arm"], row["group"], row["acceleration"]): row["psnr"] for row in r.at(CONTROLLED, "table")}
    names = dict.fromkeys(arm for arm, _, _ in found)
    groups = [group for group in dict.fromkeys(group for _, group, _ in found) if group != "all"]
    rows = [[f"`{name}`", *(" · ".join(show(found[name, group, rate], ".1f") for rate in RATES) for group in groups)]
            for name in names]  # fmt: skip
    return markdown(["", *groups], rows)


BENCHMARK, MODELS = "docs/benchmark.md", "docs/models.md"
TABLES = [
    Table("gains", "README.md", gains),
    Table("benchmark-psnr", BENCHMARK, lambda r: scores(r, "psnr mean", ".1f", "espirit")),
    Table("benchmark-ssim", BENCHMARK, lambda r: scores(r, "ssim mean", ".2f", "espirit", ("zero-filled", "sense",
          "l1-wavelet", "modl", "varnet", "ddnm", "ot-ode", "weighted-ssdu", SHORT, OURS))),
    Table("benchmark-true-maps", BENCHMARK, lambda r: scores(r, "psnr mean", ".1f", "exact", (SENSE, "l1-wavelet",
          "modl", "varnet", "ddnm", "ot-ode", "weighted-ssdu", PAPER, OURS))),
    Table("benchmark-equal-cost", BENCHMARK,
          lambda r: leads(r, ("weighted-ssdu", "modl", "varnet"), BRAINS, ".2f", SHORT)),
    Table("benchmark-shipped", BENCHMARK,
          lambda r: leads(r, ("weighted-ssdu", "modl", "varnet"), GROUPS, ".1f", OURS)),
    Table("benchmark-robustness", BENCHMARK, run("robustness.csv", ("T1 head", "T1 head, equispaced", "heart",
          "heart, equispaced"), RATES, ROBUSTNESS)),
    Table("benchmark-rates", BENCHMARK, run("rates.csv", ("T2 head",), (4.0, 8.0, 10.0, 12.0), TRAINED)),
    Table("benchmark-means", BENCHMARK, run("means.csv", BRAINS, RATES, MEANS)),
    Table("card", MODELS, card),
    Table("levers", MODELS, levers),
    Table("learning-rates", "docs/methods.md", searched),
    Table("steps", "docs/steps.md", steps),
    Table("paper-switches", "docs/steps.md", run("paper_switches.csv", BRAINS, RATES, SWITCHES)),
    Table("controlled-endpoints", "docs/controlled.md", endpoints),
    Table("controlled-arms", "docs/controlled.md", arms),
]  # fmt: skip
