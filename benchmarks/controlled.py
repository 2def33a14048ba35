"""The controlled experiment: what the training loss, the path and the network are each worth.

    UPMRI_DATA=… python benchmarks/controlled.py configs/benchmark/controlled.yaml            # all parts, one by one
    … --plan                              # the parts, which are done, and their U-Net passes
    … --only search/ssdu train/ssdu/0     # some parts
    … --minutes 27                        # save and end after this time; the same command continues
    … --set passes=200000                 # another budget
    … --write-json controlled.json        # the same plan for machines without a reader of YAML, which read this file

Several processes with the same plan share the parts: start the same command again, on the same device or on others. It
needs torch, numpy and safetensors; a plan in YAML needs pyyaml, too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

from upmri.core.errors import InputError
from upmri.core.settings import read_mapping
from upmri.evaluation.controlled.arms import ControlledConfig, read_plan
from upmri.evaluation.controlled.parts import experiment_parts, run_parts
from upmri.training.interrupt import TrainingInterrupted


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 3 if parts are left, for which it should be started again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, help="plan, .yaml or .json")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="parts, or their beginnings")
    parser.add_argument("--plan", dest="show", action="store_true", help="list the parts and their cost")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the plan")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, help="time after which to save and end")
    parser.add_argument("--write-json", type=Path, metavar="FILE", help="write the plan as JSON and end")
    given = parser.parse_args(arguments)
    try:
        if given.write_json is not None:
            read_plan(given.plan, tuple(given.set))  # an error now rather than there
            given.write_json.write_text(json.dumps(read_mapping(given.plan, tuple(given.set)), indent=1))
            return 0
        config = read_plan(given.plan, tuple(given.set))
        if given.show:
            return _show(config)
        if given.minutes is not None:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # outside of trainings, which save their state
            timer = threading.Timer(60 * given.minutes, os.kill, (os.getpid(), signal.SIGTERM))
            timer.daemon = True
            timer.start()
        start = time.perf_counter()
        left = run_parts(
            config,
            tuple(given.only),
            device=given.device,
            report=lambda name: print(f"{time.perf_counter() - start:7.0f} s  {name}", flush=True),
        )
    except TrainingInterrupted as error:
        print(f"interrupted: {error}")
        return 3
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print("missing: " + ", ".join(left) if left else f"done: {config.folder / 'report.md'}")
    return 3 if left else 0


def _show(config: ControlledConfig) -> int:
    total = 0
    for part in experiment_parts(config):
        total += part.passes
        print(f"{'done' if part.done else '    '}  {part.passes:>10,}  {part.name}")
    print(f"      {total:>10,}  U-Net passes in all, without those of values added to the grid of rates")
    return 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "pydantic is not installed")
    sys.exit(main())
