"""Tables from a store: every method by what it learnt from, against one of them."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from upmri.evaluation.benchmark.plan import BenchmarkConfig, Entry
from upmri.evaluation.benchmark.run import Variant
from upmri.evaluation.benchmark.statistics import interval, paired_t
from upmri.evaluation.benchmark.store import Row
from upmri.methods import find

# By what they learnt from, in the order of the paper's table.
CATEGORIES = ("nothing", "full images", "undersampled scans, split", "undersampled scans")
_METRICS = ("psnr", "ssim")


@dataclass(frozen=True)
class Cell:
    """One entry on one group at one acceleration: of its variants the one with the best mean PSNR."""

    maps: str
    group: str
    acceleration: float
    entry: str
    variant: str
    rows: tuple[Row, ...]

    def mean(self, metric: str) -> float:
        """Over slices."""
        return sum(getattr(row, metric) for row in self.rows) / len(self.rows)

    def deviation(self, metric: str) -> float:
        """Over slices; 0 for one."""
        mean, n = self.mean(metric), len(self.rows)
        return math.sqrt(sum((getattr(row, metric) - mean) ** 2 for row in self.rows) / max(1, n - 1))

    def differences(self, other: Cell, metric: str) -> dict[str, list[float]]:
        """Its metric less the other's, slice by slice, by person."""
        theirs = {row.scan: getattr(row, metric) for row in other.rows}
        found: dict[str, list[float]] = defaultdict(list)
        for row in self.rows:
            if row.scan in theirs:
                found[row.person].append(getattr(row, metric) - theirs[row.scan])
        return dict(found)


def cells(rows: Sequence[Row], config: BenchmarkConfig, variants: Sequence[Variant]) -> list[Cell]:
    """Put rows together, those of the entries that are asked for; two entries may share a variant, and its results."""
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


def markdown(found: Sequence[Cell], config: BenchmarkConfig) -> str:
    """One table a group and kind of maps.

    The best of a category is bold, the second best underlined. Behind a method stands by how much the reference entry
    is ahead of it in PSNR, with a 95 % interval over people, and a star where the paired t-test says p < 0.05.
    """
    text = []
    for maps in config.maps:
        for group in config.groups:
            here = {(c.entry, c.acceleration): c for c in found if (c.maps, c.group) == (maps, group.name)}
            if here:
                text.append(_table(here, f"{group.name}, {_MAPS[maps]}", config))
    return "\n".join(text)


def long_csv(found: Sequence[Cell], config: BenchmarkConfig) -> str:
    """The same numbers and more, one line a cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["maps", "group", "acceleration", "entry", "learnt from", "evaluations", "slices", "people"]
        + [f"{metric} {what}" for metric in (*_METRICS, "nmse") for what in ("mean", "std")]
        + [f"{config.against} ahead {what}" for what in ("psnr", "low", "high", "p")]
        + ["seconds", "variant"]
    )
    reference = {(c.maps, c.group, c.acceleration): c for c in found if c.entry == config.against}
    for cell in found:
        entry = next(known for known in config.entries if known.name == cell.entry)
        scores = [f(metric) for metric in (*_METRICS, "nmse") for f in (cell.mean, cell.deviation)]
        writer.writerow(
            [cell.maps, cell.group, f"{cell.acceleration:g}", cell.entry, learnt_from(entry), evaluations_of(entry)]
            + [len(cell.rows), len({row.person for row in cell.rows})]
            + [f"{score:.6g}" for score in scores]
            + [f"{value:.4g}" for value in _ahead(reference.get((cell.maps, cell.group, cell.acceleration)), cell)]
            + [f"{cell.mean('seconds'):.4g}", cell.variant]
        )
    return out.getvalue()


_MAPS = {"espirit": "maps by ESPIRiT", "exact": "true maps"}


def _table(here: dict[tuple[str, float], Cell], title: str, config: BenchmarkConfig) -> str:
    rates = [rate for rate in config.accelerations if any(at[1] == rate for at in here)]
    head = ["learnt from", "method", "evaluations"]
    for rate in rates:
        head += [f"PSNR {rate:g}×", f"SSIM {rate:g}×", f"{config.against} ahead {rate:g}×"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
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
                row.append(_told(_ahead(here.get((config.against, rate)), cell)) if name != config.against else "")
            lines.append("| " + " | ".join(row) + " |")
    some = next(iter(here.values()))
    people = len({row.person for row in some.rows})
    scans = f"{len(some.rows)} scans of {people} {'person' if people == 1 else 'people'}"
    return f"### {title}\n\n{scans}.\n\n" + "\n".join(lines) + "\n"


def learnt_from(entry: Entry) -> str:
    """What an entry says of itself, or its method."""
    return find(entry.method).needs if entry.learnt is None else entry.learnt


def evaluations_of(entry: Entry) -> int:
    """How often a network is asked."""
    return find(entry.method).evaluations if entry.evaluations is None else entry.evaluations


def category_of(entry: Entry) -> str:
    """What an entry learnt from, as the paper's table has it."""
    learnt = learnt_from(entry)
    return learnt if learnt in CATEGORIES else "undersampled scans"


def _marks(scores: list[tuple[str, float]]) -> dict[str, str]:
    ranked = [name for name, _ in sorted(scores, key=lambda pair: -pair[1])]
    return dict(zip(ranked, ("**{}**", "<u>{}</u>"), strict=False)) if len(ranked) > 1 else {}


def _ahead(reference: Cell | None, cell: Cell) -> tuple[float, float, float, float]:
    """By how much the reference is ahead in PSNR, the interval of that, and p; NaN where it cannot be said."""
    by_person = {} if reference is None else reference.differences(cell, "psnr")
    flat = [value for values in by_person.values() for value in values]
    if not flat:
        return math.nan, math.nan, math.nan, math.nan
    # Of one person nothing can be said about people.
    low, high = interval(by_person) if len(by_person) > 1 else (math.nan, math.nan)
    return sum(flat) / len(flat), low, high, paired_t(flat)


def _told(ahead: tuple[float, float, float, float]) -> str:
    mean, low, high, p = ahead
    if math.isnan(mean):
        return ""
    spread = "" if math.isnan(low) else f" ({low:+.2f} to {high:+.2f})"
    return f"{mean:+.2f}{spread}{'*' * (p < 0.05)}"
