"""Calibrate the bounds of weights of `upmri`: writes the entry `bounds` of their card.

Simulated scans of validation people under UPMRI_DATA (16 coils, random or regular lines, 2× to 10×, σ₀ from 0.003 to
0.04, half of them with ESPIRiT maps and half with true maps, half with σ₀ known and half with σ₀ estimated): half of
the slices fit the model of line errors and the predictions of PSNR and SSIM, the other half gives the conformal
quantiles. A slice takes 6 reconstructions, and as many more as there are samples. Other processes prepare the scans.
It needs torch, numpy and safetensors alone.

    UPMRI_DATA=… python benchmarks/calibrate_bounds.py brain [--slices 240] [--samples 8] [--device cuda] [--workers 16]
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ahead import in_processes
from people import slices
from upmri.core.device import pick_device
from upmri.core.scan import Scan
from upmri.formats import load_images
from upmri.learning.fit_bounds import calibrate, measure_slices
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import mean_image
from upmri.networks.precision import for_inference
from upmri.physics.espirit import find_maps
from upmri.physics.masks import equispaced, random_lines, seed_for
from upmri.physics.problem import Problem
from upmri.physics.simulate import simulate
from upmri.weights.catalogue import find_weights
from upmri.weights.files import load_prior, update_card

GROUPS = {
    "head": (
        "brain_t1_stripped", "brain_t1_head", "brain_t2_head", "brain_flair_ms", "brain_t1_ms", "brain_t2_ms"
    ),
    "torso": ("cardiac_cine",),
}  # fmt: skip
RATES = (2, 3, 4, 5, 6, 8, 10)
CALIBRATION = (16, 20, 24)  # central lines among regular ones; among random ones their number depends on the rate
NOISE = (0.003, 0.04)
TOGETHER = 8  # slices of one size on an accelerator

Job = tuple[Path, int, Any, int]
"""File, slice, anatomy and turn."""


def scan_of(job: Job) -> Scan:
    """One simulated scan; what it is like depends on the name of the slice and the number of its turn alone."""
    path, index, anatomy, turn = job
    seed = seed_for(f"bounds {path.parent.name}/{path.name} {turn}", index, 0) % 2**31
    rng = random.Random(seed)
    low, high = NOISE
    rate, sigma = rng.choice(RATES), low * (high / low) ** rng.random()
    full = simulate(load_images(path)[index], acceleration=1, acs=0, noise=sigma, seed=seed, anatomy=anatomy)
    width = full.matrix[1]
    if rng.random() < 0.5:
        mask = equispaced(width, rate, rng.choice(CALIBRATION), offset=rng.randrange(rate))[None]
    else:
        mask = random_lines(width, rate, seed=seed)[None]
    scan = replace(full, kspace=full.kspace * mask[:, None], mask=mask)
    if rng.random() < 0.5:
        scan = replace(scan, maps=find_maps(scan.kspace, scan.mask))
    return replace(scan, noise=None) if rng.random() < 0.5 else scan


def jobs(groups: Sequence[str], anatomy: str, count: int) -> list[Job]:
    """All groups with the same number of slices, some of which are scanned several times."""
    wanted = -(-count // len(groups))
    spread = [slices(group, "val", wanted) for group in groups]
    return [(*found[k % len(found)], anatomy, k // len(found)) for found in spread for k in range(wanted)]


def problems(work: Sequence[Job], device: torch.device, workers: int) -> Iterator[Problem]:
    """Batches of slices of one size."""
    together = TOGETHER if device.type == "cuda" else 1
    for _, same in groupby(in_processes(scan_of, work, workers), lambda scan: scan.kspace.shape):
        while scans := list(islice(same, together)):
            yield Problem.from_scans(scans, device)


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
    parser.add_argument(
        "--groups", nargs="+", help="folders of anatomies; by default all of the anatomy of the weights"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="processes that prepare scans; the result is the same")
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
    work = jobs(options.groups or GROUPS[anatomy], anatomy, options.slices)
    for problem in problems(work, device, options.workers):
        measured += measure_slices(reconstruct, problem, drawn)
        print(f"{len(measured)} slices, {time.perf_counter() - start:.0f} s", flush=True)
    entry = calibrate(measured).card()
    print(json.dumps(entry, indent=1))
    update_card(find_weights(options.weights), options.out or find_weights(options.weights), bounds=entry)


if __name__ == "__main__":
    main()
