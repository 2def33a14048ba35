"""GRAPPA beside SENSE: on simulated scans of validation people, and on brains in vivo, undersampled afterwards.

    UPMRI_DATA=… python benchmarks/grappa.py [validation] [real]

Prints tables of PSNR in dB, and keeps the values of each scan in `results/grappa.json`. `lines` and `maps` are what
kernels are calibrated on. Coil maps and noise level come from the undersampled scan itself, with 24 calibration lines
(24×24 points for 2-D masks).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

import upmri
from people import data, files
from provenance import record
from upmri.evaluation import evaluate
from upmri.physics.masks import equispaced, poisson_disc, random_lines

RESULTS = Path(__file__).parent / "results" / "grappa.json"
GROUPS = ("brain_t1_stripped", "brain_t2_head", "cardiac_cine")
SCANS = ("invivo_brain_16ch", "invivo_brain_7ch")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "zero-filled": ("zero-filled", {}),
    "sense": ("sense", {}),
    "grappa": ("grappa", {}),
    "grappa, lines": ("grappa", {"calibration": "lines"}),
    "grappa, maps": ("grappa", {"calibration": "maps"}),
}


def grid(h: int, w: int, down: int, along: int) -> Tensor:
    """Every ``down``-th row of every ``along``-th column, and a calibration block."""
    mask = torch.zeros(h, w, dtype=torch.bool)
    mask[::down, ::along] = True
    mask[h // 2 - 12 : h // 2 + 12, w // 2 - 12 : w // 2 + 12] = True
    return mask


def masks(h: int, w: int) -> dict[str, Tensor]:
    """Masks by their names."""
    return {
        **{f"regular lines, R = {r}": equispaced(w, r, 24) for r in (2, 3, 4)},
        **{f"random lines, R = {r}": random_lines(w, r, 24) for r in (2, 3, 4)},
        "Poisson disc, R = 4": poisson_disc((h, w), 4, (24, 24)),
        "Poisson disc, R = 8": poisson_disc((h, w), 8, (24, 24)),
        "2×2": grid(h, w, 2, 2),
        "2×3": grid(h, w, 2, 3),
    }


def measure(full: upmri.Scan, reference: Tensor, only_lines: bool) -> dict[str, dict[str, float]]:
    """PSNR of every method, by mask and method."""
    found: dict[str, dict[str, float]] = {}
    for name, mask in masks(*full.matrix).items():
        if only_lines and len(mask) > 1:
            continue
        scan = upmri.Scan(kspace=full.kspace * mask, mask=mask, reference=reference)
        found[name] = {
            label: evaluate(upmri.reconstruct(scan, method, **settings))["psnr"]
            for label, (method, settings) in METHODS.items()
        }
    return found


def table(title: str, parts: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Print the mean over scans, and return what each scan has."""
    print(f"\n{title}\n\n| | {' | '.join(METHODS)} |\n|---|{'---|' * len(METHODS)}")
    for name in parts[0]:
        row = (f"{mean(part[name][label] for part in parts):.1f}" for label in METHODS)
        print(f"| {name} | {' | '.join(row)} |", flush=True)
    return {"title": title, "scans": parts}


def validation() -> dict[str, Any]:
    """One slice of a validation person of each group, 12 coils, by noise level."""
    found = {}
    for noise in (0.005, 0.02):
        parts = []
        for group in GROUPS:
            images = np.load(files(group, "val")[0])["image"]
            image = images[len(images) // 2].astype(np.float32) / 220
            full = upmri.simulate(image[None], coils=12, acceleration=1, noise=noise, seed=3)
            assert full.reference is not None
            parts.append(measure(full, full.reference, only_lines=False))
        found[f"{noise:g}"] = table(f"Simulated validation scans, σ₀ = {noise}, mean of {len(parts)}", parts)
    return found


def real() -> dict[str, Any]:
    """Both brains in vivo, whole lines."""
    found = {}
    for name in SCANS:
        full = upmri.Scan(kspace=np.load(data() / "scans" / f"{name}_kspace.npy"))
        reference = upmri.reconstruct(full, "zero-filled").image
        found[name] = table(f"{name} (in vivo)", [measure(full, reference, only_lines=True)])
    return found


def main() -> None:
    """Measure, print and keep."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in sys.argv[1:] or ("validation", "real"):
        results[part] = {"validation": validation, "real": real}[part]()
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        record(RESULTS)


if __name__ == "__main__":
    main()
