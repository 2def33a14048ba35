"""Tables of scores: methods ordered by their training data, each compared with one of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from upmri.evaluation.benchmark.plan import BenchmarkConfig, Entry
from upmri.evaluation.benchmark.run import Variant
from upmri.evaluation.benchmark.statistics import interval
from upmri.evaluation.benchmark.store import Row
from upmri.evaluation.benchmark.text_tables import csv_table, markdown_table
from upmri.methods.registry import find_method

# Training data of the methods, in the order of the paper's table.
CATEGORIES = ("nothing", "full images", "undersampled scans, split", "undersampled scans")
_METRICS = ("psnr", "ssim")
_MAPS = {"espirit": "maps by ESPIRiT", "exact": "true maps"}


@dataclass(frozen=True)
class Cell:
    """One entry on one group at one acceleration: the rows of its variant with the best mean PSNR."""

    maps: str
    group: str
    acceleration: float
    entry: str
    variant: str
    rows: tuple[Row, ...]

    def mean(self, metric: str) -> float:
        """Return the mean of a metric over slices."""
        return sum(getattr(row, metric) for row in self.rows) / len(self.rows)

    def deviation(self, metric: str) -> float:
        """Return the standard deviation of a metric over slices; 0 for one slice."""
        mean, n = self.mean(metric), len(self.rows)
        return math.sqrt(sum((getattr(row, metric) - mean) ** 2 for row in self.rows) / max(1, n - 1))

    def differences(self, other: Cell, metric: str) -> dict[str, list[float]]:
        """Return the differences of a metric from the other cell, slice by slice, for each person."""
        theirs = {row.scan: getattr(row, metric) for row in other.rows}
        found: dict[str, list[float]] = defaultdict(list)
        for row in self.rows:
            if row.scan in theirs:
                found[row.person].append(getattr(row, metric) - theirs[row.scan])
        return dict(found)


def cells(rows: Sequence[Row], config: BenchmarkConfig, variants: Sequence[Variant]) -> list[Cell]:
    """Group rows into cells, one for each entry; two entries may share a variant and its results."""
    found: dict[tuple[str, str, float, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.maps, row.group, row.acceleration, row.variant].append(row)
    best = []
    for maps in config.maps:
        for group in config.groups:
            for acceleration in config.accelerations:
                at = (maps, group.name, acceleration)
                for entry in (entry for entry in config.entries if not entry.sweep):
                    keys = [v.key for v in variants if v.entry.name == entry.name and (*at, v.key) in found]
                    tried = [Cell(*at, entry.name, key, tuple(found[*at, key])) for key in keys]
                    best += [max(tried, key=lambda cell: cell.mean("psnr"))] if tried else []
    return best


def score_markdown(found: Sequence[Cell], config: BenchmarkConfig) -> str:
    """Return Markdown with one table for each group and kind of maps.

    The best of a category is bold, the second best underlined. The last column of each acceleration is the lead of the
    reference entry in PSNR, with a 95 % interval over people.
    """
    text = []
    for maps in config.maps:
        for group in config.groups:
            here = {(c.entry, c.acceleration): c for c in found if (c.maps, c.group) == (maps, group.name)}
            if here:
                text.append(_table(here, f"{group.name}, {_MAPS[maps]}", config))
    return "\n".join(text)


def score_csv(found: Sequence[Cell], config: BenchmarkConfig) -> str:
    """Return the same numbers and more as CSV, one line for each cell."""
    head = ["maps", "group", "acceleration", "entry", "learnt from", "evaluations", "slices", "people"]
    head += [f"{metric} {what}" for metric in (*_METRICS, "nmse") for what in ("mean", "std")]
    head += [f"{config.against} ahead {what}" for what in ("psnr", "low", "high")]
    head += ["seconds", "variant"]
    reference = {(c.maps, c.group, c.acceleration): c for c in found if c.entry == config.against}
    rows = []
    for cell in found:
        entry = next(known for known in config.entries if known.name == cell.entry)
        scores = [f(metric) for metric in (*_METRICS, "nmse") for f in (cell.mean, cell.deviation)]
        rows.append(
            [cell.maps, cell.group, f"{cell.acceleration:g}", cell.entry, learnt_from(entry), evaluations_of(entry)]
            + [len(cell.rows), len({row.person for row in cell.rows})]
            + [f"{score:.6g}" for score in scores]
            + [f"{value:.4g}" for value in _lead(reference.get((cell.maps, cell.group, cell.acceleration)), cell)]
            + [f"{cell.mean('seconds'):.4g}", cell.variant]
        )
    return csv_table(head, rows)


def slice_csv(found: Sequence[Cell]) -> str:
    """Return the scores of every slice as CSV: what a repetition on a few slices is compared with."""
    head = ["maps", "group", "acceleration", "entry", "person", "scan", *_METRICS]
    rows = [
        [cell.maps, cell.group, f"{cell.acceleration:g}", cell.entry, row.person, row.scan]
        + [f"{getattr(row, metric):.6g}" for metric in _METRICS]
        for cell in found
        for row in cell.rows
    ]
    return csv_table(head, rows)


def _table(here: dict[tuple[str, float], Cell], title: str, config: BenchmarkConfig) -> str:
    rates = [rate for rate in config.accelerations if any(at[1] == rate for at in here)]
    head = ["learnt from", "method", "evaluations"]
    for rate in rates:
        head += [f"PSNR {rate:g}×", f"SSIM {rate:g}×", f"{config.against} ahead {rate:g}×"]
    rows: list[list[str]] = []
    entries = {entry.name: entry for entry in config.entries if any(at[0] == entry.name for at in here)}
    for category in CATEGORIES:
        names = [name for name, entry in entries.items() if category_of(entry) == category]
        marks = {
            (metric, rate): _marks([(name, here[name, rate].mean(metric)) for name in names if (name, rate) in here])
            for metric in _METRICS
            for rate in rates
        }
        for name in names:
            row = [category, name, str(evaluations_of(entries[name]) or "–")]
            for rate in rates:
                cell = here.get((name, rate))
                if cell is None:
                    row += ["", "", ""]
                    continue
                for metric, digits in zip(_METRICS, (2, 3), strict=True):
                    score = f"{cell.mean(metric):.{digits}f} ± {cell.deviation(metric):.{digits}f}"
                    row.append(marks[metric, rate].get(name, "{}").format(score))
                row.append(_lead_text(_lead(here.get((config.against, rate)), cell)) if name != config.against else "")
            rows.append(row)
    some = next(iter(here.values()))
    people = len({row.person for row in some.rows})
    scans = f"{len(some.rows)} scans of {people} {'person' if people == 1 else 'people'}"
    return f"### {title}\n\n{scans}.\n\n" + markdown_table(head, rows)


def learnt_from(entry: Entry) -> str:
    """Return the training data of an entry: its own statement, or that of its method."""
    return find_method(entry.method).needs if entry.learnt is None else entry.learnt


def evaluations_of(entry: Entry) -> int:
    """Return the number of evaluations of a network for one image."""
    return find_method(entry.method).evaluations if entry.evaluations is None else entry.evaluations


def category_of(entry: Entry) -> str:
    """Return the category of an entry in the paper's table, by its training data."""
    learnt = learnt_from(entry)
    return learnt if learnt in CATEGORIES else "undersampled scans"


def _marks(scores: list[tuple[str, float]]) -> dict[str, str]:
    ranked = [name for name, _ in sorted(scores, key=lambda pair: -pair[1])]
    return dict(zip(ranked, ("**{}**", "<u>{}</u>"), strict=False)) if len(ranked) > 1 else {}


def _lead(reference: Cell | None, cell: Cell) -> tuple[float, float, float]:
    """Return the lead of the reference in PSNR, and both ends of its interval; NaN where they are not defined."""
    by_person = {} if reference is None else reference.differences(cell, "psnr")
    flat = [value for values in by_person.values() for value in values]
    return sum(flat) / len(flat) if flat else math.nan, *interval(by_person)


def _lead_text(lead: tuple[float, float, float]) -> str:
    mean, low, high = lead
    if math.isnan(mean):
        return ""
    return f"{mean:+.2f}" + ("" if math.isnan(low) else f" ({low:+.2f} to {high:+.2f})")
