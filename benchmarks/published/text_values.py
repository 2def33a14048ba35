"""What the numbers in running text are: leads, gains, ends of ranges and counts, from the results."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from published.certainty_tables import BOUNDS, DIAMETERS, DRAWS, LESIONS, MAPS, RATIOS
from published.methods_tables import BRAINS, GROUPS, LEVERS, OURS, RATES, SENSE, SHORT, entries, lead, value
from published.results import ROOT, Results
from published.scans_tables import (
    ADAPTED,
    REFINED,
    SCANS,
    SUPERVISED,
    WITHOUT,
    adaptation_gains,
    cine_cell,
    draws,
    means,
)
from upmri.core.settings import read_mapping

ALL_RATES = (3.0, 4.0, 6.0, 8.0)
# Methods that reconstruct all frames of a series together, without a network.
OVER_TIME = ("tv-t", "llr", "l+s", "BART llr")
# Where `dps` diverges for one of the scans.
DIVERGED: dict[str, Any] = {"group": "T2 head", "acceleration": 8.0}


def ends(values: Sequence[float]) -> list[float]:
    """Least and largest."""
    return [min(values), max(values)]


def percent(values: Sequence[float]) -> list[float]:
    """Shares in %."""
    return [round(100 * value, 6) for value in values]


# --- methods ----------------------------------------------------------------------------------------------------------


def ahead(
    r: Results, kind: str, groups: Sequence[str] = GROUPS, ours: str = OURS, rates: Sequence[float] = RATES
) -> list[float]:
    """Lead over the best method of a kind in every group and at every rate, least and largest."""
    others = [name for name, trained in entries(r).items() if trained == kind and not name.startswith("upmri")]
    found = []
    for group in groups:
        for rate in rates:
            known = [v for name in others if (v := value(r, name, group, rate)) is not None]
            found.append(value(r, ours, group, rate) - max(known))
    return ends(found)


def beside_full(r: Results) -> list[float]:
    """Distance to the best with full images at about equal cost: behind and ahead at 4×, behind at 8× (least, most)."""
    four, eight = (ahead(r, "full images", BRAINS, SHORT, (rate,)) for rate in RATES)
    return [-four[0], four[1], -eight[1], -eight[0]]


def gains(r: Results) -> list[float]:
    """Gain over SENSE with its best λ."""
    return ends([lead(r, SENSE, group, rate)[0] for group in GROUPS for rate in RATES])


def rows(r: Results, entry: str, groups: Sequence[str] = BRAINS) -> list[float]:
    """PSNR by group, 4× and 8×."""
    return [value(r, entry, group, rate) for group in groups for rate in RATES]


def means_of_draws(r: Results) -> list[float]:
    """Largest gain of the mean of 8 draws over one, but for `dps` where it diverges, and there; lead over the best."""
    gains, apart, leads = [], [], []
    for group in BRAINS:
        for rate in RATES:
            where = {"group": group, "acceleration": rate}
            here = {
                e: r.one("means.csv", "psnr mean", entry=e, **where) for e in r.distinct("means.csv", "entry", **where)
            }
            pairs = {e: e.replace(", one draw", ", mean of 8") for e in here if e.endswith(", one draw")}
            leads.append(here[OURS] - max(psnr for e, psnr in here.items() if e != OURS))
            for one, mean_ in pairs.items():
                diverges = (one, group, rate) == ("dps, one draw", *DIVERGED.values())
                (apart if diverges else gains).append(here[mean_] - here[one])
    return [max(gains), *apart, *ends(leads)]


def diverged(r: Results) -> list[float]:
    """PSNR of the scan for which `dps` diverges: one draw, mean of 8."""
    names = [f"dps, {of}" for of in ("one draw", "mean of 8")]
    return [min(r.all("means-slices.csv", "psnr", entry=name, **DIVERGED)) for name in names]


def behind_the_best_rate(r: Results) -> float:
    """Largest gain on held-out lines of the best learning rate over the one that was used."""
    found = []
    for row in r.at("learning_rates.json", "rows"):
        used = float(read_mapping(ROOT / "configs" / "brain" / f"{row['name'].removeprefix('brain-')}.yaml")["rate"])
        scores = {float(rate): gain for rate, gain in row["scores"].items()}
        found.append(max(scores.values()) - scores[used])
    return max(found)


def true_maps(r: Results) -> list[float]:
    """Lead over `weighted-ssdu` with true maps, least and largest: brains, hearts."""
    found = []
    for groups in (BRAINS, ("heart",)):
        found += ends([lead(r, "weighted-ssdu", g, rate, maps="exact")[0] for g in groups for rate in RATES])
    return found


def trained(r: Results, entry: str, rates: Sequence[float]) -> list[float]:
    """PSNR of weights trained at one rate, T2 heads."""
    return [r.one("rates.csv", "psnr mean", entry=entry, group="T2 head", acceleration=rate) for rate in rates]


def eight_less_four(r: Results) -> list[float]:
    """Lead at 10× and 12× of weights trained at 8× over those trained at 4×."""
    four, eight = (trained(r, f"upmri, learnt at {rate}×", (10.0, 12.0)) for rate in (4, 8))
    return [b - a for a, b in zip(four, eight, strict=True)]


def stepped(r: Results, later: str, earlier: str) -> list[float]:
    """Least and largest difference between two rows of the table of steps, over groups and rates."""
    found = []
    for group in BRAINS:
        for rate in RATES:
            where = {"group": group, "acceleration": rate}
            after, before = (r.one("steps.csv", "psnr mean", entry=entry, **where) for entry in (later, earlier))
            found.append(after - before)
    return ends(found)


def shipped_less_last(r: Results) -> list[float]:
    """Lead of the shipped weights over the last row of the table of steps, least and largest."""
    found = []
    for group in BRAINS:
        for rate in RATES:
            last = r.one("steps.csv", "psnr mean", entry="upmri", group=group, acceleration=rate)
            found.append(value(r, OURS, group, rate) - last)
    return ends(found)


def path_cost(r: Results) -> list[float]:
    """What the path costs in short trainings, least and largest: table of steps, controlled experiment by group."""
    steps = stepped(r, "ten cascades", "upmri")
    rows = r.at("controlled.json", "endpoints")
    cells = [-float(row["mean"]) for row in rows if row["name"] == "the path" and row["group"] != "all"]
    return ends([*steps, *cells])


def levers(r: Results) -> list[float]:
    """Changes that gain more than 0.1 dB on held-out lines: least and largest mean gain over the seeds."""
    gains: dict[str, list[float]] = {}
    for row in r.at(LEVERS, "rows"):
        gains.setdefault(row["variant"], []).append(row["held_out_gain"])
    shipped = mean(gains["shipped"])
    return ends([mean(found) - shipped for found in gains.values() if mean(found) - shipped > 0.1])


def wrong_inputs(r: Results) -> list[float]:
    """Changes of `upmri` by wrong inputs, least and largest; its least lead with them over `sense` with right ones."""
    changes, leads = [], []
    names = [name for name in r.distinct("robustness.csv", "entry") if name.startswith("upmri, ")]
    for group in ("T1 head", "T1 head, equispaced", "heart", "heart, equispaced"):
        for rate in RATES:
            where = {"group": group, "acceleration": rate}
            sense, right = (r.one("robustness.csv", "psnr mean", entry=name, **where) for name in ("sense", OURS))
            wrong = [r.one("robustness.csv", "psnr mean", entry=name, **where) for name in names]
            changes += [psnr - right for psnr in wrong]
            leads += [psnr - sense for psnr in wrong]
    return [*ends(changes), min(leads)]


def choices(r: Results) -> list[float]:
    """Choice of weights for hearts: scans, those with `cardiac`, those with `brain`, and the largest loss of these."""
    rows = [row for row in r.at("choice.json", "rows") if row["kind"] == "hearts"]
    lost = [max(row["psnr"].values()) - row["psnr"]["brain"] for row in rows if row["small part"] == "brain"]
    return [len(rows), len(rows) - len(lost), len(lost), max(lost)]


# --- scans ------------------------------------------------------------------------------------------------------------


def best_supervised(r: Results, rate: float) -> list[float]:
    """The best method with full images on each scan, along the usual axis."""
    return [max(means(r, scan, rate)[name] for name in SUPERVISED) for scan in SCANS]


def over_trained(r: Results, ours: str, rates: Sequence[float], phase: str = "phase") -> list[float]:
    """Lead over the best trained method by scan and rate, of draws that all have (of `upmri`, all draws)."""
    found = []
    for scan in SCANS:
        for rate in rates:
            known = draws(r, scan, rate, phase, () if ours == ADAPTED else (ADAPTED,))
            best = max((*SUPERVISED, *WITHOUT), key=lambda name: mean(known[name]))
            found.append(mean(known[ours]) - mean(known[best]))
    return ends(found)


def real_at_equal_cost(r: Results) -> list[float]:
    """`upmri` after 588 steps over the best without full images on both scans; over the best with them on each."""
    free, full = [], []
    for scan in SCANS:
        cells = [means(r, scan, rate) for rate in ALL_RATES]
        free += [cell[SHORT] - max(cell[name] for name in WITHOUT) for cell in cells]
        full.append(ends([cell[SHORT] - max(cell[name] for name in SUPERVISED) for cell in cells]))
    return [*ends(free), *full[0], -full[1][1], -full[1][0]]


def refined(r: Results) -> list[float]:
    """Largest mean gain of refined maps at 8×, and largest loss at 3×."""
    found = {
        rate: [means(r, scan, rate, phase) for scan in SCANS for phase in ("phase", "readout")] for rate in (3.0, 8.0)
    }
    gain = {rate: [one[REFINED] - one[OURS] for one in cells] for rate, cells in found.items()}
    return [max(gain[8.0]), -min(gain[3.0])]


def adapted(r: Results, phases: Sequence[str] = ("phase", "readout")) -> list[list[float]]:
    """Gains of adaptation, one list for each scan, rate and axis."""
    every = [adaptation_gains(r, ALL_RATES, phase) for phase in phases]
    return [cell for gain in every for cells in gain.values() for cell in cells]


def adapted_range(r: Results) -> list[float]:
    """Mean gain of adaptation, least and largest; number of draws and the largest loss."""
    cells = adapted(r)
    each = [gain for cell in cells for gain in cell]
    return [*ends([mean(cell) for cell in cells]), len(each), -min(each)]


def line_bounds(r: Results, kinds: Sequence[str], rates: Sequence[float]) -> tuple[int, int, float]:
    """Bounds on PSNR for some lines and rates: how many hold, of how many, and the largest excess in dB."""
    hold, count, excesses = (
        [value for kind in kinds for rate in rates for value in r.all("bounds_lines.json", name, kind=kind, rate=rate)]
        for name in ("hold", "count", "excesses")
    )
    return sum(hold), sum(count), -min(value for values in excesses for value in values)


def holding_bounds(r: Results) -> list[float]:
    """Number of bounds that all hold: all lines at 2× and 4×, random lines at 8×."""
    found = [line_bounds(r, ("regular", "random"), (2, 4)), line_bounds(r, ("random",), (8,))]
    if any(hold < count for hold, count, _ in found):
        raise LookupError("bounds_lines.json: the page says that all of these bounds hold, and some do not")
    return [count for _, count, _ in found]


def endpoint(r: Results, name: str) -> float:
    """Difference of an endpoint of the controlled experiment over all groups and rates, in dB."""
    rows = r.at("controlled.json", "endpoints")
    return next(float(row["mean"]) for row in rows if (row["name"], row["group"]) == (name, "all"))


def endpoint_range(
    r: Results, name: str, groups: Sequence[str] = BRAINS, rates: Sequence[float] = RATES
) -> list[float]:
    """Least and largest difference of an endpoint over some groups and rates, in dB."""
    rows = [row for row in r.at("controlled.json", "endpoints") if row["name"] == name]
    return ends([float(row["mean"]) for row in rows if row["group"] in groups and row["acceleration"] in rates])


def losses_with_a_split(r: Results) -> list[float]:
    """How much the mean PSNR of the losses with a split differs, and how much their seeds do, least and largest."""
    rows = r.at("controlled.json", "table")
    means_ = {
        arm: [mean(seed) for seed in zip(*(row["by_seed"] for row in rows if row["arm"] == arm), strict=True)]
        for arm in ("ssdu", "weighted-ssdu", "robust-ssdu")
    }
    whole = ends([mean(seeds) for seeds in means_.values()])
    return [whole[1] - whole[0], *ends([abs(first - second) for first, second in means_.values()])]


def of_two_people(r: Results) -> list[int]:
    """Scans of the controlled experiment in groups of two people, and all scans."""
    rows = [row for row in r.at("controlled.json", "endpoints") if row["name"] == "the loss"]
    few = sum(row["scans"] for row in rows if row["people"] == 2)
    return [few, next(row["scans"] for row in rows if row["group"] == "all")]


def adapted_up_to_six(r: Results) -> list[float]:
    """Least and largest mean gain of adaptation at 3×, 4× and 6×, along the usual axis."""
    return ends([mean(cell) for cells in adaptation_gains(r).values() for cell in cells])


def mirrors_alone(r: Results) -> list[float]:
    """Mean gain of the mirror images without adaptation at 3×, 4× and 6×, along the usual axis."""
    where = [{"scan": scan, "rate": rate, "phase": "phase"} for scan in SCANS for rate in (3.0, 4.0, 6.0)]
    own, mirrored = (
        [r.one("real_scans.jsonl", "psnr", entry=entry, draw=draw, **at) for at in where for draw in range(12)]
        for entry in (OURS, f"{OURS}, mirrors")
    )
    return [mean(mirrored) - mean(own)]


def adapted_losses(r: Results) -> list[float]:
    """Number of draws along the usual axis, of those that lost, the largest loss, and number that were not adapted."""
    each = [gain for cell in adapted(r, ("phase",)) for gain in cell]
    lost = [-gain for gain in each if gain < -0.005]  # below is the difference between devices
    found = r.all("real_scans.jsonl", "adaptation", entry=ADAPTED, phase="phase")
    return [len(each), len(lost), max(lost), sum(one["steps"] == 0 for one in found)]


def partial(r: Results, method: str, name: str) -> list[float]:
    """Gains of rows of the partial-Fourier table whose names have a part."""
    names = [one for one in r.distinct("partial_fourier.json", "name") if one.startswith("invivo") and name in one]
    return [r.one("partial_fourier.json", "gain", name=one, method=method) for one in names]


def partial_rows(r: Results, method: str) -> list[float]:
    """The same, of the rows that the page shows."""
    shown = ("phase axis, 6/8", "readout axis, 6/8", "phase axis, 6/8, 2×", "readout axis, 6/8, 2×")
    names = [f"{scan}, {name}" for scan in SCANS for name in shown]
    return ends([r.one("partial_fourier.json", "gain", name=one, method=method) for one in names])


def partial_five(r: Results) -> list[float]:
    """`upmri` at 5/8: mean gains, and that of the worst scan."""
    names = [one for one in r.distinct("partial_fourier.json", "name") if one.startswith("invivo") and "5/8" in one]
    worst = min(r.one("partial_fourier.json", "worst", name=one, method="upmri") for one in names)
    return [*ends(partial(r, "upmri", "5/8")), worst]


def echoes(r: Results, scan: str) -> list[float]:
    """Gains with asymmetric echoes."""
    return [partial(r, method, f"{scan}, asymmetric echo")[0] for method in ("sense", "l1-wavelet", "upmri")]


def cine_lead(r: Results, other: str, patterns: Sequence[int]) -> list[float]:
    """Lead of `cine` with variable density (0) or interleaved lines (1), least and largest over 8× and 12×."""
    cells = [(rate, pattern) for rate in (8, 12) for pattern in patterns]
    return ends([cine_cell(r, "cine", *at)[0] - cine_cell(r, other, *at)[0] for at in cells])


def cine_over_best(r: Results) -> list[float]:
    """Lead of `cine` over the best other method over time in each column, least and largest: all pixels, the heart."""
    found: list[float] = []
    for key in range(2):
        leads = []
        for rate in (8, 12):
            for pattern in range(2):
                others = [cine_cell(r, name, rate, pattern)[key] for name in OVER_TIME]
                leads.append(cine_cell(r, "cine", rate, pattern)[key] - max(others))
        found += ends(leads)
    return found


def cine_series(r: Results, other: str) -> list[float]:
    """Lead of `cine` in the series with variable density."""
    found = []
    for rate in (8, 12):
        ours, theirs = (r.at("cine.json", f"test {rate}x {name}", "each")[::2] for name in ("cine", other))
        found += [a["psnr"] - b["psnr"] for a, b in zip(ours, theirs, strict=True)]
    return found


def from_lines(r: Results) -> list[float]:
    """How much better kernels from lines are than those from maps in vivo, every second and third line."""
    found = []
    for scan in SCANS:
        for mask in ("regular lines, R = 2", "regular lines, R = 3"):
            cells = [one[mask] for one in r.at("grappa.json", "real", scan, "scans")]
            found.append(mean(one["grappa, lines"] for one in cells) - mean(one["grappa, maps"] for one in cells))
    return [max(found)]


def lines_worse(r: Results) -> list[float]:
    """How much worse random lines without a centre can be."""
    columns = [r.all("maps.json", key) for key in ("with 24 lines, squares", "joint, squares")]
    return [max(a - b for a, b in zip(*columns, strict=True))]


# --- certainty --------------------------------------------------------------------------------------------------------


def bands(r: Results) -> list[float]:
    """Bands within the aims, all bands, and shares of pixels."""
    found = [ratio for one in r.all(DRAWS, "bands", method="upmri") for ratio in one]
    inside = sum(RATIOS[0] <= ratio <= RATIOS[1] for ratio in found)
    return [inside, len(found), *percent(ends(r.all(DRAWS, "within two", method="upmri")))]


def spots(r: Results) -> list[float]:
    """Real lesions at 4×: share kept, number, slices, worst, and by diameter."""
    at = r.at(LESIONS, "every", "upmri", "4")
    count = sum(len(r.at(LESIONS, "slices", kind)) for kind in ("real", "others"))
    kept = percent([at[key] for key in ("kept", "lowest", "4 px", "6 px", "8 to 20 px")])
    return [kept[0], at["spots"], count, *kept[1:]]


def by_contrast(r: Results, method: str, contrasts: Sequence[str]) -> list[float]:
    """Contrast kept at 4×, 6× and 8×."""
    return [r.at(LESIONS, "synthetic", method, rate, "by contrast", c) for c in contrasts for rate in ("4", "6", "8")]


def below(r: Results, rates: Sequence[str] = ("6", "8")) -> list[float]:
    """How much lower d′ is than with all lines, in %."""
    found = []
    for d in DIAMETERS:
        full = r.at(LESIONS, "synthetic", "all lines", "1", "d", f"{d} 0.3")
        found += [1 - r.at(LESIONS, "synthetic", "upmri", rate, "d", f"{d} 0.3") / full for rate in rates]
    return percent(ends(found))


def kept_at_equal_cost(r: Results) -> list[float]:
    """Contrast of real lesions that is kept at 4×, 6× and 8×: short training; others without full images; shipped."""
    others = [[r.at(LESIONS, "real", name, rate, "kept") for name in WITHOUT] for rate in ("4", "6", "8")]
    short, shipped = ([r.at(LESIONS, "real", name, rate, "kept") for rate in ("4", "6", "8")] for name in (SHORT, OURS))
    return [*short, *(end for values in others for end in ends(values)), *shipped]


def counts(r: Results) -> list[int]:
    """Real lesions, slices, synthetic ones, slices."""
    slices = [len(r.at(LESIONS, "slices", kind)) for kind in ("real", "synthetic")]
    made = r.at(LESIONS, "synthetic", "upmri", "4", "lesions")
    return [r.at(LESIONS, "real", "upmri", "4", "spots"), slices[0], made, slices[1]]


def off_confidence(r: Results) -> list[float]:
    """Largest difference of the share of held-out lines within their bounds from the confidence, in %."""
    levels = ("0.8", "0.9", "0.95")
    found = [r.one(BOUNDS, f"lines {level}", name="all", maps="both") - float(level) for level in levels]
    return percent([max(map(abs, found))])


def bounds_at_eight(r: Results) -> list[float]:
    """Share of bounds of 90 % on PSNR that hold at 8×, by kind and maps, least and largest, in %."""
    where = [{"name": f"{kind}, 8×", "maps": maps} for kind in ("brains", "hearts") for maps in MAPS]
    return percent(ends([r.one(BOUNDS, "psnr 0.9", **at) for at in where]))


def whole(r: Results, key: str) -> float:
    """A share over all scans at a confidence of 90 %."""
    return r.one(BOUNDS, f"{key} 0.9", name="all", maps="both")
