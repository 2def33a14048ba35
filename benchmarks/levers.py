"""What each change to the network or the training of `upmri` is worth, on validation people (simulated scans).

    UPMRI_DATA=… python benchmarks/levers.py [--steps 1000] [--limit 640] [--only base memory] [--parallel 4]
                                             [--device cuda] [--work levers] [--out benchmarks/results/levers.json]

Every variant is trained from the same random seed, on the same scans and for the same number of steps, with the rate of
its optimiser.
`held_out_gain` is over SENSE, on held-out lines: it chooses. `gain` is against the full image.
Seconds are those of trainings that share a device.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from upmri.training import train
from upmri.training.config import DataConfig, TrainConfig
from upmri.training.prepare import prepare
from upmri.weights.card import read_header

GROUPS = ("brain_t1_stripped", "brain_t1_head", "brain_t2_head", "brain_flair_ms", "brain_t1_ms", "brain_t2_ms")
# Changes of the objective by variant; those of the training have a prefix.
MUON = {"train.optimiser": "muon", "train.rate": 2e-3}
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "conditioned": {"conditioned": True},
    "memory": {"memory": 8},
    "four levels": {"levels": 4},
    "memory, four levels": {"memory": 8, "levels": 4},
    "own image": {"own": 0.3},
    "five cascades": {"cascades": 5},
    "five cascades for 60 % of the steps": {"train.few": 0.6},
    "batch 32": {"train.batch": 32},
    "muon": MUON,
    "muon, memory": MUON | {"memory": 8},
    "muon, four levels": MUON | {"levels": 4},
    "muon, memory, four levels": MUON | {"memory": 8, "levels": 4},
    "muon, memory, four levels, conditioned": MUON | {"memory": 8, "levels": 4, "conditioned": True},
}


def config_of(name: str, given: argparse.Namespace) -> TrainConfig:
    """The training of a variant."""
    changes = VARIANTS[name]
    data = {
        "images": tuple(f"{os.environ['UPMRI_DATA']}/anatomies/{group}" for group in GROUPS),
        "noise": (0.002, 0.04),
        "varied": 0.7,
    }
    return TrainConfig(
        output=str(given.work / name.replace(", ", "-").replace(" ", "-")),
        train=DataConfig(**data, part="train", accelerations=(2.0, 4.0, 6.0, 8.0), limit=given.limit),
        validation=DataConfig(**data, part="val", accelerations=(4.0, 8.0), limit=given.validation),
        objective={"cascades": 10, "width": given.width} | {k: v for k, v in changes.items() if "." not in k},
        steps=given.steps,
        batch=changes.get("train.batch", given.batch),
        optimiser=changes.get("train.optimiser", "adamw"),
        rate=changes.get("train.rate", given.rate),
        warmup=max(1, given.steps // 10),
        validate_every=given.steps,
        save_every=given.steps,
        calibrate=False,
        ema=0.99,
        precision="bf16" if given.device == "cuda" else "fp32",
        resident=True,
        cache=str(given.work / "cache"),
        device=given.device,
        name="weights",
        workers=given.workers,
    )


def main(arguments: list[str] | None = None) -> None:
    """Prepare the scans, train the variants beside each other, and write their gains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--limit", type=int, default=640, help="scans to train on")
    parser.add_argument("--validation", type=int, default=48, help="scans to validate on")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, default=Path("levers"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/levers.json"))
    parser.add_argument("--alone", choices=VARIANTS, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.alone:
        train_variant(config_of(given.alone, given), VARIANTS[given.alone].get("train.few", 0.0))
        return
    first = config_of(given.only[0], given)
    for data in (first.train, first.validation):
        prepare(data, Path(first.cache), workers=given.workers)
    words = list(sys.argv[1:] if arguments is None else arguments)
    with ThreadPoolExecutor(given.parallel) as pool:
        list(pool.map(lambda name: run(name, given, words), given.only))


def train_variant(config: TrainConfig, few: float) -> None:
    """Train; a share of the steps with half of the cascades at first, whose U-Net is the same."""
    if few:
        steps = round(few * config.steps)
        objective = config.objective | {"cascades": config.objective["cascades"] // 2}
        first = replace(
            config, output=f"{config.output}-first", objective=objective, steps=steps, validation=None,
            schedule="constant", save_every=steps,
        )  # fmt: skip
        config = replace(config, begin=str(train(first)), steps=config.steps - steps)
    train(config)


def run(name: str, given: argparse.Namespace, words: list[str]) -> None:
    """Train a variant in a process of its own; add its row to the results."""
    subprocess.run([sys.executable, __file__, *words, "--alone", name], check=True)
    made = read_header(Path(config_of(name, given).output) / "weights.safetensors")["training"]
    row = {"variant": name, **{key: made[key] for key in ("steps", "batch", "passes", "seconds")}, **made["validation"]}
    rows = [*(json.loads(given.out.read_text())["rows"] if given.out.exists() else []), row]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({"slices": given.limit, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    print(row, flush=True)


if __name__ == "__main__":
    main()
