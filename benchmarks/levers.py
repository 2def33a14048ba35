"""What each change to the network or the training of `upmri` is worth, on validation people (simulated scans).

    UPMRI_DATA=… python benchmarks/levers.py [--passes 60000] [--seeds 2] [--limit 1200] [--side 128]
                                             [--only shipped "no path"] [--parallel 6] [--device cuda] [--work levers]
                                             [--out benchmarks/results/levers.json]

Each variant differs from the shipped network and training in one thing, and is trained from random weights, on the same
scans and with the same number of U-Net passes (slices × uses of the U-Net). `held_out_gain` is over SENSE, on held-out
lines: it chooses. `gain` is against the full image. Seconds are those of trainings that share a device. The same
command continues what was interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import people
import train_all
from provenance import record
from upmri.core.settings import build
from upmri.methods.upmri_objective import UpmriObjective
from upmri.training.config import DataConfig, TrainConfig
from upmri.training.passes import steps_within
from upmri.weights.card import read_header

GROUPS = ("brain_t1_stripped", "brain_t1_head", "brain_t2_head", "brain_flair_ms", "brain_t1_ms", "brain_t2_ms")
SHIPPED = {"cascades": 8, "width": 32, "levels": 4, "memory": 8, "split": {"loss": [0.02, 0.4]}}
# Changes to the objective by variant; those of the training have a prefix.
VARIANTS: dict[str, dict[str, Any]] = {
    "shipped": {},
    "no path": {"path_every": 0},
    "network knows cascade, σ₀ and acceleration": {"conditioned": True},
    "a share of the distance to the own image": {"own": 0.3},
    "batches of 64": {"train.batch": 64},
    "AdamW": {"train.optimiser": "adamw", "train.rate": 1.5e-3},
    "three levels": {"levels": 3},
    "no memory": {"memory": 0},
    "four cascades": {"cascades": 4},
    "twelve cascades": {"cascades": 12},
    "width 48": {"width": 48},
    "loss lines 5 to 60 %": {"split": {"loss": [0.05, 0.6]}},
}


def config_of(name: str, seed: int, given: argparse.Namespace) -> TrainConfig:
    """The training of a variant."""
    changes = VARIANTS[name]
    data: dict[str, Any] = {
        "images": tuple(str(people.data() / "anatomies" / group) for group in GROUPS),
        "noise": (0.002, 0.04),
        "varied": 0.7,
        "side": given.side,
        "coils": given.coils,
    }
    training = {key.removeprefix("train."): value for key, value in changes.items() if key.startswith("train.")}
    settings = SHIPPED | {"width": given.width} | {k: v for k, v in changes.items() if not k.startswith("train.")}
    batch = training.pop("batch", given.batch)
    steps = steps_within(given.passes, build(UpmriObjective, settings, "objective"), batch)
    rates = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    return TrainConfig(
        output=str(given.work),
        name=f"{list(VARIANTS).index(name)}-{seed}",
        train=DataConfig(**data, part="train", lines="both", accelerations=rates, limit=given.limit),
        validation=DataConfig(**data, part="val", accelerations=(4.0, 8.0), limit=given.validation),
        objective=settings,
        steps=steps,
        batch=batch,
        warmup=max(1, steps // 10),
        validate_every=steps,
        save_every=steps,
        log_every=max(1, steps // 20),
        calibrate=False,
        ema=0.99,
        precision="bf16" if given.device == "cuda" else "fp32",
        resident=True,
        workers=given.workers,
        seed=seed,
        **({"optimiser": "muon", "rate": given.rate} | training),
    )


def main(arguments: list[str] | None = None) -> int:
    """Train the variants beside each other, and write their gains; the number of trainings that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=60_000, help="U-Net passes of each training")
    parser.add_argument("--seeds", type=int, default=2, help="trainings of each variant")
    parser.add_argument("--side", type=int, default=128, help="largest number of pixels of a side")
    parser.add_argument("--coils", type=int, default=16)
    parser.add_argument("--limit", type=int, default=1200, help="scans to train on")
    parser.add_argument("--validation", type=int, default=60, help="scans to validate on")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, default=Path("levers"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/levers.json"))
    given = parser.parse_args(arguments)
    trainings = {(name, seed): config_of(name, seed, given) for seed in range(given.seeds) for name in given.only}
    given.work.mkdir(parents=True, exist_ok=True)
    plans, weights = given.work / "plans.json", given.work / "weights"
    plans.write_text(json.dumps([asdict(config) for config in trainings.values()]), "utf-8")
    places = ["--out", str(weights), "--work", str(given.work), "--device", given.device]
    failed = train_all.main([str(plans), *places, "--parallel", str(given.parallel)])
    rows = []
    for (name, seed), config in trainings.items():
        file = weights / f"{config.name}.safetensors"
        if file.exists():
            made = read_header(file)["training"]
            facts = {key: made[key] for key in ("steps", "batch", "rate", "passes", "seconds")}
            rows.append({"variant": name, "seed": seed, **facts, **made["validation"]})
    found = {"side": given.side, "scans": given.limit, "passes": given.passes, "rows": rows}
    given.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    record(given.out, device=given.device)
    return failed


if __name__ == "__main__":
    sys.exit(main())
