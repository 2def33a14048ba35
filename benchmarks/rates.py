"""Learning rates of trainings, by held-out lines of their validation scans; no reference is used.

    UPMRI_DATA=… python benchmarks/rates.py configs/brain/{modl,varnet,ssdu}.yaml --passes 20000 [--only brain-ssdu …]
                                            [--rates 1e-3 2e-3 4e-3] [--factor 2] [--work runs] [--device cuda]
                                            [--out benchmarks/results/learning_rates.json]

Every rate of a training has the same number of U-Net passes (or `--steps`), and the grid grows while its best value is
at an edge. Scores are in WORK/NAME-rates/rates.json, and the same command continues an interrupted search: several
processes with `--only` share the work, and one more without it writes all results into `--out`, where other trainings
keep theirs. A folder of a search with other settings is refused. Configurations may be JSON files of `train_all.py
--write-json`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import train_all
from provenance import record
from upmri.training.begin import trained_method
from upmri.training.checkpoint import fingerprint
from upmri.training.config import TrainConfig, read_config
from upmri.training.passes import steps_within
from upmri.training.reuse import check_settings
from upmri.training.search import GrowingGrid, search_rate


def main(arguments: list[str] | None = None) -> None:
    """Search, print the scores and keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path, nargs="+")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some of the trainings")
    parser.add_argument("--passes", type=int, default=20_000)
    parser.add_argument("--steps", type=int, help="instead of a number of passes, for networks that are not unrolled")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 2e-3, 4e-3])
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--extensions", type=int, default=4)
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder of the trainings and prepared scans")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the configurations")
    parser.add_argument("--out", type=Path, help="file of the results")
    given = parser.parse_args(arguments)
    known = [read_config(one) for path in given.configs for one in train_all.mappings(path, tuple(given.set))]
    rows = [search(config, given) for config in known if not given.only or config.name in given.only]
    if given.out is not None:
        names = {row["name"] for row in rows}
        before = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
        rows = [row for row in before if row["name"] not in names] + rows
        given.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
        record(given.out, device=given.device)


def search(config: TrainConfig, given: argparse.Namespace) -> dict[str, Any]:
    """The best rate of a training, and the scores of all that were tried."""
    steps = given.steps or steps_of(config, given.passes)
    folder = given.work / f"{config.name}-rates"
    short = replace(
        config, output=str(folder), steps=steps, warmup=max(1, steps // 10), validate_every=max(1, steps // 2),
        save_every=max(1, steps // 2), calibrate=False, cache=str(given.work / "cache"), device=given.device,
    )  # fmt: skip
    file = folder / "rates.json"
    any_rate = replace(short, rate=1.0, keep="best")  # the settings that all rates have in common
    known = read_scores(file, any_rate)

    def report(scores: dict[float, float]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"settings": fingerprint(any_rate, ""), "scores": scores}))
        rate = list(scores)[-1]
        print(f"{config.name}, {rate:.3g}: {scores[rate]:+.2f} dB over SENSE on held-out lines", flush=True)

    grid = GrowingGrid(tuple(given.rates), given.factor, given.extensions)
    found = search_rate(short, grid, known=known, report=lambda scores: report(dict(scores)))
    edge = "" if found.inside else ", at the edge of the grid"
    print(f"{config.name}: rate {found.rate:.3g}{edge} ({steps} steps each)", flush=True)
    scores = {f"{rate:g}": round(score, 4) for rate, score in sorted(found.scores.items())}
    return {"name": config.name, "rate": found.rate, "inside": found.inside, "steps": steps, "scores": scores}


def steps_of(config: TrainConfig, passes: int) -> int:
    """Number of steps within a budget of passes, of the network that is trained: with `begin` that of these weights."""
    return steps_within(passes, trained_method(config)[1], config.batch)


def read_scores(file: Path, config: TrainConfig) -> dict[float, float]:
    """The scores of an earlier search, which must have had the same settings."""
    if not file.exists():
        return {}
    kept = json.loads(file.read_text())
    check_settings(file, kept.get("settings", "{}"), config)
    return {float(rate): score for rate, score in kept["scores"].items()}


if __name__ == "__main__":
    main()
