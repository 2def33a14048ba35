"""The learning rate of a training, by held-out lines of its validation scans; no reference is used.

    UPMRI_DATA=… python benchmarks/rates.py configs/brain/ssdu.yaml --passes 20000 [--rates 1e-3 2e-3 4e-3] [--factor 2]

The grid grows while its best value is at an edge. Every rate has the same number of U-Net passes (or `--steps`). The
scores are in RUN-rates/rates.json beside the output folder of the run, and an interrupted search continues.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from upmri.core.settings import build
from upmri.methods.registry import find_method
from upmri.training.config import read_config
from upmri.training.passes import steps_within
from upmri.training.search import GrowingGrid, search_rate


def main(arguments: list[str] | None = None) -> None:
    """Search, and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--passes", type=int, default=20_000)
    parser.add_argument("--steps", type=int, help="instead of a number of passes, for networks that are not unrolled")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 2e-3, 4e-3])
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--extensions", type=int, default=4)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the configuration")
    given = parser.parse_args(arguments)
    config = read_config(given.config, tuple(given.set))
    kind = find_method(config.method).objective
    assert kind is not None, f"{config.method} has nothing to train"
    objective = build(kind, config.objective, "objective")
    steps = given.steps or steps_within(given.passes, objective, config.batch)
    folder = Path(f"{config.output}-rates")
    short = replace(
        config, output=str(folder), steps=steps, warmup=max(1, steps // 10), validate_every=max(1, steps // 2),
        save_every=max(1, steps // 2), calibrate=False, cache=config.cache or str(Path(config.output) / "cache"),
    )  # fmt: skip
    file = folder / "rates.json"
    known = {float(rate): score for rate, score in json.loads(file.read_text()).items()} if file.exists() else {}
    grid = GrowingGrid(tuple(given.rates), given.factor, given.extensions)
    found = search_rate(short, grid, known=known, report=lambda scores: _report(file, dict(scores)))
    print(f"rate: {found.rate:.3g}{'' if found.inside else ', at the edge of the grid'} ({steps} steps each)")


def _report(file: Path, scores: dict[float, float]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(scores))
    rate = list(scores)[-1]
    print(f"{rate:.3g}: {scores[rate]:+.2f} dB over SENSE on held-out lines", flush=True)


if __name__ == "__main__":
    main()
