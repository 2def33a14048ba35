"""Do bounds on PSNR hold for regular lines, little acceleration and much noise? Simulated scans of validation people.

    UPMRI_DATA=… python benchmarks/bounds_lines.py [--slices 5] [--groups brain_t2_head] [--device cpu]

Prints, for each kind of lines, rate and σ₀, how many bounds of 90 % hold, and by how much the PSNR exceeds them.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

import upmri
from upmri.evaluation.metrics import psnr
from upmri.physics.fourier import fft2c
from upmri.physics.masks import equispaced, random_lines
from upmri.training.selection import keep_lines, with_maps

COILS, CALIBRATION = 16, 20


def excess(image: np.ndarray, kind: str, rate: int, noise: float, seed: int, device: str) -> float | None:
    """PSNR less its bound in dB; None where there is no bound."""
    full = upmri.simulate(image[None], coils=COILS, acceleration=1, acs=0, noise=noise, seed=seed)
    assert full.maps is not None
    assert full.reference is not None
    width = full.matrix[1]
    regular = kind == "regular"
    lines = (
        equispaced(width, rate, CALIBRATION, offset=seed % rate) if regular else random_lines(width, rate, seed=seed)
    )
    clean = replace(full, kspace=fft2c(full.maps * full.reference[:, None]))
    scan = with_maps(replace(keep_lines(full, lines), maps=None, reference=None), clean)
    assert scan.reference is not None
    rec = upmri.reconstruct(scan, model="brain", bounds=True, device=device)
    assert rec.bounds is not None
    bound = rec.bounds.psnr[0]
    return None if bound is None else psnr(rec.image.abs(), scan.reference.abs()).item() - bound


def main() -> None:
    """Simulate, bound, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--groups", nargs="+", default=["brain_t2_head"])
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    folder = Path(os.environ["UPMRI_DATA"]) / "anatomies"
    people = json.loads((folder / "splits.json").read_text())
    for group in given.groups:
        stack = (
            np.concatenate([np.load(folder / group / f"{name}.npz")["image"] for name in people[group]["val"]]) / 220
        )
        chosen = stack[np.linspace(5, len(stack) - 6, given.slices).astype(int)].astype(np.float32)
        for kind, rate, noise in product(("regular", "random"), (2, 4), (0.01, 0.03)):
            found = [excess(image, kind, rate, noise, seed, given.device) for seed, image in enumerate(chosen)]
            known = [value for value in found if value is not None]
            hold = sum(value >= 0 for value in known)
            print(
                f"{group}, {kind} lines, {rate}×, σ₀ = {noise}: {hold} of {len(known)} hold; "
                + " ".join(f"{value:+.1f}" for value in known),
                flush=True,
            )


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
