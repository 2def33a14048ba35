"""Results of a controlled experiment: PSNR of the arms, and their differences with intervals over people and seeds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from upmri.evaluation.benchmark.cases import tasks
from upmri.evaluation.benchmark.present import present_rows
from upmri.evaluation.benchmark.run import DATABASE, variants
from upmri.evaluation.benchmark.store import Store
from upmri.evaluation.benchmark.text_tables import markdown_table
from upmri.evaluation.controlled.arms import SENSE, ControlledConfig, Endpoint
from upmri.formats import atomic
from upmri.weights.card import read_header

# Draws of the bootstrap, and their seed.
_DRAWS, _SEED = 10_000, 0
Runs = Mapping[int, Mapping[str, "Score"]]
"""Seed → scan → score."""
Scores = dict[str, dict[int, dict[str, "Score"]]]
"""Arm → seed → scan → score."""


class Score(NamedTuple):
    """PSNR of a scan in dB, and whose it is."""

    group: str
    person: str
    psnr: float


@dataclass(frozen=True)
class Difference:
    """Mean difference in dB, its 95 % interval, the means by seed, and the numbers of scans and people."""

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    scans: int
    people: int


def difference(first: Runs, second: Runs) -> Difference:
    """Compare two arms, paired by scan; the interval is a bootstrap over people and, for each arm, over seeds.

    People are drawn among those with scans of the same groups, each with all scans, the same for both arms; seeds are
    drawn for each arm by itself, as its trainings are runs of their own. Weights are rescaled, so that few people and
    seeds have the right variance. With two seeds this knows little of the spread between trainings: ``by_seed`` shows
    it.

    Parameters
    ----------
    first, second
        The runs of each arm.
    """
    scans = sorted(set.intersection(*(set(run) for runs in (first, second) for run in runs.values())))
    known = next(iter(first.values()))
    people = sorted({known[scan].person for scan in scans})
    groups: dict[str, set[str]] = {person: set() for person in people}
    counts = np.zeros(len(people))
    for scan in scans:
        groups[known[scan].person].add(known[scan].group)
        counts[people.index(known[scan].person)] += 1
    rng = np.random.default_rng(_SEED)
    weights = _weights(rng, [sorted(groups[person]) for person in people])
    drawn, whole = [], []
    for runs in (first, second):
        sums = np.zeros((len(runs), len(people)))
        for i, run in enumerate(runs.values()):
            for scan in scans:
                sums[i, people.index(run[scan].person)] += run[scan].psnr
        of_seeds = _weights(rng, [0] * len(runs)) @ sums / len(runs)
        drawn.append((of_seeds * weights).sum(1) / (weights @ counts))
        whole.append(sums.sum(1) / counts.sum())
    low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
    by_seed = tuple(float(a - b) for a, b in zip(*whole, strict=False))
    mean = float(whole[0].mean() - whole[1].mean())
    return Difference(mean, float(low), float(high), by_seed, len(scans), len(people))


def _weights(rng: np.random.Generator, strata: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Weights of units in each draw of the rescaled bootstrap (Rao and Wu 1988), (draw, unit).

    Units are drawn with replacement among those of their stratum. With counts c of n units the weights are
    1 + √(n/(n−1)) (c − 1): the variance of a mean is s²/n with s² of n − 1 degrees of freedom, not (n−1)/n of it. A
    unit that is alone in its stratum has the weight 1.
    """
    weights = np.ones((_DRAWS, len(strata)))
    for stratum in {repr(one): one for one in strata}.values():
        units = [i for i, one in enumerate(strata) if one == stratum]
        counts = rng.multinomial(len(units), np.full(len(units), 1 / len(units)), size=_DRAWS)
        weights[:, units] += (counts - 1) * (len(units) / max(1, len(units) - 1)) ** 0.5
    return weights


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
    slices = {
        arm: {seed: {scan: round(score.psnr, 3) for scan, score in run.items()} for seed, run in runs.items()}
        for arm, runs in cells["all", "all"].items()
    }
    content = {"config": asdict(config), "trainings": facts, "table": table, "endpoints": found, "slices": slices}
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
    for row in present_rows(store, tasks(benchmark)):
        if row.variant not in names:
            continue
        arm, seed = arms.get(names[row.variant], (SENSE, 0))
        for cell in ((row.group, row.acceleration), ("all", "all")):
            cells[cell][arm][seed][row.scan] = Score(row.group, row.person, row.psnr)
    store.close()
    places = [(group.name, rate) for group in config.groups for rate in config.accelerations]
    return {place: cells[place] for place in (*places, ("all", "all")) if place in cells}


def _compare(scores: Scores, endpoint: Endpoint) -> Difference:
    return difference(scores[endpoint.arm], scores[endpoint.less])


def _mean(runs: Iterable[Mapping[str, Score]]) -> float:
    return float(np.mean([score.psnr for run in runs for score in run.values()]))


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
