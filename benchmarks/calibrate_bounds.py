"""Calibrate the bounds of weights of `upmri`: writes the entry `bounds` of their card.

Simulated scans of validation people under UPMRI_DATA (16 coils, 3× to 10×, σ₀ from 0.003 to 0.03, half of them with
ESPIRiT maps and half with true maps, half with σ₀ known and half with σ₀ estimated): half of the slices fit the model
of line errors and the predictions of PSNR and SSIM, the other half gives the conformal quantiles. A slice takes 6
reconstructions, and as many more as there are samples. It needs torch, numpy and safetensors alone.

    UPMRI_DATA=… python benchmarks/calibrate_bounds.py brain [--slices 240] [--samples 8] [--device cuda] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from upmri.core.device import pick_device
from upmri.core.scan import Scan
from upmri.formats import load_images
from upmri.learning.fit_bounds import calibrate, measure_slices
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import mean_image
from upmri.networks.precision import for_inference
from upmri.physics.espirit import find_maps
from upmri.physics.masks import seed_for
from upmri.physics.problem import Problem
from upmri.physics.simulate import simulate
from upmri.weights.catalogue import find_weights
from upmri.weights.files import load_prior, update_card

GROUPS = {"head": ("brain_t1_stripped", "brain_t1_head", "brain_t2_head"), "torso": ("cardiac_cine",)}
RATES = (3, 4, 5, 6, 8, 10)
NOISE = (0.003, 0.03)
TOGETHER = 8  # slices of one size on an accelerator


def slices(group: str, part: str, count: int) -> list[tuple[Path, int]]:
    """Slices spread evenly over the people of a part."""
    folder = Path(os.environ["UPMRI_DATA"]) / "anatomies"
    people = json.loads((folder / "splits.json").read_text())[group][part]
    found = [
        (path, index)
        for path in (folder / group / f"{name}.npz" for name in people)
        for index in range(len(load_images(path)))
    ]
    count = min(count, len(found))
    return [found[k * len(found) // count] for k in range(count)]


def scan_of(path: Path, index: int, anatomy: str, turn: int) -> Scan:
    """One simulated scan; what it is like depends on the name of the slice and the number of its turn alone."""
    seed = seed_for(f"bounds {path.parent.name}/{path.name} {turn}", index, 0) % 2**31
    rng = random.Random(seed)
    low, high = NOISE
    rate, sigma = rng.choice(RATES), low * (high / low) ** rng.random()
    scan = simulate(load_images(path)[index], acceleration=rate, noise=sigma, seed=seed, anatomy=anatomy)
    if rng.random() < 0.5:
        scan = replace(scan, maps=find_maps(scan.kspace, scan.mask))
    return replace(scan, noise=None) if rng.random() < 0.5 else scan


def problems(anatomy: str, count: int, device: torch.device) -> Iterator[Problem]:
    """Batches of slices of one size, all groups with the same number of slices, some of them scanned several times."""
    together = TOGETHER if device.type == "cuda" else 1
    for group in GROUPS[anatomy]:
        wanted = -(-count // len(GROUPS[anatomy]))
        found = slices(group, "val", wanted)
        repeated = [(*found[k % len(found)], anatomy, k // len(found)) for k in range(wanted)]
        for first in range(0, wanted, together):
            scans = [scan_of(*one) for one in repeated[first : first + together]]
            for _, same in groupby(scans, lambda scan: scan.kspace.shape):
                yield Problem.from_scans(list(same), device)


def deviations(method: Upmri, problem: Problem, _: Tensor) -> Tensor:
    """The deviation that users get."""
    std = method(problem).std
    assert std is not None
    return std


@torch.no_grad()
def main() -> None:
    """Calibrate, and write the card."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", help="name or file of weights of upmri")
    parser.add_argument("--slices", type=int, default=240)
    parser.add_argument("--samples", type=int, default=8, help="draws of the deviation; 1 for no intervals of pixels")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="file to write; by default the weights themselves")
    options = parser.parse_args()
    device = pick_device(options.device)
    prior = load_prior(options.weights, device)
    anatomy = prior.card.get("data", {}).get("anatomy", "head")
    reconstruct = partial(mean_image, for_inference(prior.network))
    drawn = None
    if options.samples > 1:
        drawn = partial(deviations, Upmri(model=prior, samples=options.samples))
    start, measured = time.perf_counter(), []
    for problem in problems(anatomy, options.slices, device):
        measured += measure_slices(reconstruct, problem, drawn)
        print(f"{len(measured)} slices, {time.perf_counter() - start:.0f} s", flush=True)
    entry = calibrate(measured).card()
    print(json.dumps(entry, indent=1))
    update_card(find_weights(options.weights), options.out or find_weights(options.weights), bounds=entry)


if __name__ == "__main__":
    main()
