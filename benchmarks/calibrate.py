"""Calibrate the draws of weights of `upmri` on validation people, without their truth, and write the card anew.

Simulated scans (16 coils, σ₀ = 0.01) of all groups that the weights are for, at 4× and 8×, with the true maps and with
ESPIRiT maps: `fit_spread` fits the gain of the bootstrap's errors on held-out lines and on split noise.
Tensors and all other entries of the card stay as they are. 29 reconstructions for each scan.

    UPMRI_DATA=… python benchmarks/calibrate.py src/upmri/weights/brain.safetensors [--slices 12] [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from people import GROUPS, scans
from upmri.core.device import pick_device
from upmri.learning.spread import fit_spread
from upmri.methods.upmri_objective import mean_image
from upmri.physics.problem import Problem
from upmri.weights.files import load_prior, update_card


def problems(groups: list[str], slices: int, rates: list[int], options: argparse.Namespace) -> Iterator[Problem]:
    """One problem for each group, rate and kind of maps, in batches of slices of the same size."""
    for group in groups:
        for rate in rates:
            for maps in options.maps:
                found = scans(group, "val", rate, slices, maps, options.workers)
                for first in range(0, len(found), options.batch):
                    batch = found[first : first + options.batch]
                    start = time.perf_counter()
                    whole = Problem.from_scans(batch, options.device)
                    yield whole.with_seeds(range(first, first + len(batch)))
                    label = f"{group} {rate}x {maps} maps, slices {first} to {first + len(batch) - 1}"
                    print(f"{label}: {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("--groups", nargs="*", choices=list(GROUPS), help="those of hearts for cardiac, or of brains")
    parser.add_argument("--slices", type=int, default=12, help="slices per group, rate and kind of maps; 0 for all")
    parser.add_argument("--rates", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--maps", nargs="*", default=["true", "espirit"])
    parser.add_argument("--batch", type=int, default=6, help="slices of one call")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--dry", action="store_true", help="print, and leave the file as it is")
    options = parser.parse_args()
    options.device = pick_device(options.device)
    kind = "cardiac" if "cardiac" in options.weights.stem else "brain"
    groups = options.groups or [group for group, (name, _) in GROUPS.items() if name == kind]
    prior = load_prior(options.weights, options.device)
    with torch.no_grad():
        reconstruct = partial(mean_image, prior.network)
        found = {"spread": fit_spread(reconstruct, problems(groups, options.slices, options.rates, options))}
    print(json.dumps(found))
    if not options.dry:
        update_card(options.weights, options.weights, **found)


if __name__ == "__main__":
    main()
