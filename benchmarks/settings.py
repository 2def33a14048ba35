"""Settings of the samplers, searched on validation people; a grid grows while its best value is at an edge.

UPMRI_DATA=… UPMRI_MODELS=models python benchmarks/settings.py configs/benchmark/settings.yaml [--only NAME …]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from upmri.evaluation.benchmark.tune import read_tuning, tune, tuning_markdown


def main() -> None:
    """Run the search, and print a table of what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    config = read_tuning(given.plan, tuple(given.set))

    def report(name: str, value: float, score: float) -> None:
        print(f"{name}: {value:.3g} has {score:.2f} dB", flush=True)

    print(tuning_markdown(config, tune(config, given.only, device=given.device, report=report)))


if __name__ == "__main__":
    main()
