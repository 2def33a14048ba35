"""Results of a controlled experiment: PSNR of the arms, and their differences with intervals over people and seeds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from upmri.evaluation.benchmark.run import DATABASE, variants
from upmri.evaluation.benchmark.store import Store
from upmri.evaluation.benchmark.text_tables import markdown_table
from upmri.evaluation.controlled.arms import SENSE, ControlledConfig, Endpoint
from upmri.formats import atomic
from upmri.weights.card import read_header

# Draws of the bootstrap, and their seed.
_DRAWS, _SEED = 10_000, 0
Scores = dict[str, dict[int, dict[str, tuple[str, float]]]]
"""Arm → seed → scan → (person, PSNR)."""


@dataclass(frozen=True)
class Difference:
    """Mean difference in dB, its 95 % interval, the means by seed, and the numbers of scans and people."""

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    scans: int
    people: int


def difference(first: Mapping[int, Any], second: Mapping[int, Any]) -> Difference:
    """Compare two arms, paired by scan; the interval is a bootstrap over people and, for each arm, over seeds.

    People are drawn with replacement, each with all scans, the same for both arms; seeds are drawn with replacement for
    each arm by itself, as its trainings are runs of their own. With two seeds this knows little of the spread between
    trainings: ``by_seed`` shows it.

    Parameters
    ----------
    first, second
        Seed → scan → (person, PSNR).
    """
    scans = sorted(set.intersection(*(set(run) for runs in (first, second) for run in runs.values())))
    people = sorted({next(iter(first.values()))[scan][0] for scan in scans})
    sums, counts = [], np.zeros(len(people))
    for runs in (first, second):
        table = np.zeros((len(runs), len(people)))
        for i, run in enumerate(runs.values()):
            for scan in scans:
                table[i, people.index(run[scan][0])] += run[scan][1]
        sums.append(table)
    for scan in scans:
        counts[people.index(next(iter(first.values()))[scan][0])] += 1
    rng = np.random.default_rng(_SEED)
    drawn = rng.integers(len(people), size=(_DRAWS, len(people)))
    weights = np.zeros((_DRAWS, len(people)))
    np.add.at(weights, (np.arange(_DRAWS)[:, None], drawn), 1)
    means = []
    for table in sums:
        seeds = rng.integers(len(table), size=(_DRAWS, len(table)))
        means.append((table[seeds].mean(1) * weights).sum(1) / (weights @ counts))
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    whole = [table.sum(1) / counts.sum() for table in sums]
    paired = tuple(float(a - b) for a, b in zip(*whole, strict=False))
    return Difference(
        float(whole[0].mean() - whole[1].mean()), float(low), float(high), paired, len(scans), len(people)
    )


def write_endpoints(config: ControlledConfig) -> None:
    """Write ``report.json`` and ``report.md`` into the folder of the experiment, from the results that exist."""
    cells = _scores(config)
    facts = [_facts(config, arm.name) for arm in config.arms]
    found = [
        {**asdict(endpoint), "group": group, "acceleration": rate} | asdict(_compare(scores, endpoint))
        for endpoint in config.endpoints
        for (group, rate), scores in cells.items()
    ]
    table = [
        {
            "group": group,
            "acceleration": rate,
            "arm": name,
            "psnr": _mean(runs.values()),
            "by_seed": [_mean([run]) for run in runs.values()],
        }
        for (group, rate), scores in cells.items()
        for name, runs in scores.items()
    ]
    content = {"config": asdict(config), "trainings": facts, "table": table, "endpoints": found}
    text = _markdown(config, facts, table, found)
    for name, written in (("report.md", text), ("report.json", json.dumps(content, indent=1))):
        with atomic.staged(config.folder / name, overwrite=True) as stage:
            stage.write_text(written, encoding="utf-8")


def _scores(config: ControlledConfig) -> dict[tuple[str, float | str], Scores]:
    """Return the scores of all arms for each group and acceleration, and for all together."""
    benchmark = config.benchmark()
    names = {variant.key: variant.entry.name for variant in variants(benchmark)}
    arms = {config.entry_name(arm, seed): (arm.name, seed) for arm in config.arms for seed in config.seeds}
    store = Store(Path(benchmark.output) / DATABASE)
    cells: dict[tuple[str, float | str], Scores] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for row in store.rows():
        if row.variant not in names:
            continue
        arm, seed = arms.get(names[row.variant], (SENSE, 0))
        for cell in ((row.group, row.acceleration), ("all", "all")):
            cells[cell][arm][seed][row.scan] = (row.person, row.psnr)
    store.close()
    places = [(group.name, rate) for group in config.groups for rate in config.accelerations]
    return {place: cells[place] for place in (*places, ("all", "all")) if place in cells}


def _compare(scores: Scores, endpoint: Endpoint) -> Difference:
    return difference(scores[endpoint.arm], scores[endpoint.less])


def _mean(runs: Iterable[Mapping[str, tuple[str, float]]]) -> float:
    return float(np.mean([value for run in runs for _, value in run.values()]))


def _facts(config: ControlledConfig, name: str) -> dict[str, Any]:
    """Return rate, steps and counted passes of an arm's trainings, and the search for the rate."""
    arm = config.arm(name)
    search = json.loads((config.folder / "search" / f"{name}.json").read_text())
    runs = [read_header(config.weights(arm, seed))["training"] for seed in config.seeds]
    return {
        "arm": name,
        "rate": search["rate"],
        "rates": [run["rate"] for run in runs],
        "inside": search["inside"],
        "scores": search["scores"],
        "steps": runs[0]["steps"],
        "passes": [run["passes"] for run in runs],
        "held_out_gain": [run["kept"]["gain"] for run in runs],
        "seconds": [run["seconds"] for run in runs],
    }


def _markdown(
    config: ControlledConfig, facts: Sequence[dict[str, Any]], table: Sequence[dict[str, Any]], found: Sequence[Any]
) -> str:
    text = "### Endpoints\n\nPSNR in dB, paired by slice; 95 % intervals over people and seeds.\n\n"
    rows = [
        [
            ("" if row["primary"] else "further: ") + row["name"], f"{row['arm']} − {row['less']}",
            _place(row["group"], row["acceleration"]), f"{row['mean']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})",
            " · ".join(f"{value:+.2f}" for value in row["by_seed"]), f"{row['scans']} of {row['people']}",
        ]
        for row in found
    ]  # fmt: skip
    text += markdown_table(["question", "difference", "scans", "dB", "by seed", "scans of people"], rows)
    places = list(dict.fromkeys((row["group"], row["acceleration"]) for row in table))
    values = {(row["arm"], row["group"], row["acceleration"]): row for row in table}
    rows = [
        [name, *(f"{values[name, *place]['psnr']:.2f}" for place in places)]
        for name in (SENSE, *(arm.name for arm in config.arms))
    ]
    text += "\n### PSNR in dB, mean over slices and seeds\n\n"
    text += markdown_table(["arm", *(_place(*place) for place in places)], rows)
    rows = [
        [
            fact["arm"], " · ".join(f"{rate:.3g}" for rate in fact["rates"]) + ("" if fact["inside"] else " (edge)"),
            str(fact["steps"]),
            " · ".join(f"{n:,}" for n in fact["passes"]), " · ".join(f"{g:+.2f}" for g in fact["held_out_gain"]),
            " · ".join(f"{float(rate):.3g}: {fact['scores'][rate]:.2f}" for rate in sorted(fact["scores"], key=float)),
        ]
        for fact in facts
    ]  # fmt: skip
    text += "\n### Trainings\n\n"
    head = ["arm", "rate", "steps", "U-Net passes", "gain on held-out lines (dB)", "search: rate, gain"]
    return text + markdown_table(head, rows)


def _place(group: str, rate: float | str) -> str:
    return "all" if group == "all" else f"{group} {rate:g}×"
