"""
A brain in vivo
===============

Measured k-space, undersampled afterwards, reconstructed by several methods.

Needs ``UPMRI_DATA`` with ``scans/invivo_brain_16ch_kspace.npy``. Coil maps and noise level come from the undersampled
calibration lines; the reference is the fully sampled scan, combined with the same maps. ::

    UPMRI_DATA=… python examples/real_brain.py [FOLDER] [DRAWS]
"""

# %%
# sphinx_gallery_thumbnail_path = "figures/real_random_4x.png"
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

import upmri
from upmri.evaluation.comparison import comparison
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import random_lines

METHODS = ("zero-filled", "sense", "l1-wavelet", "upmri")
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "real_brain")
draws = int(sys.argv[2]) if len(sys.argv) > 2 else 8
folder.mkdir(parents=True, exist_ok=True)
kspace = upmri.load(Path(os.environ["UPMRI_DATA"]) / "scans" / "invivo_brain_16ch_kspace.npy").kspace


def compare(mask: torch.Tensor) -> tuple[upmri.Scan, dict[str, upmri.Reconstruction], dict[str, dict[str, float]]]:
    """Undersample, reconstruct with every method, and score."""
    scan = upmri.estimate_maps(upmri.Scan(kspace=kspace * mask))
    scan = replace(scan, reference=(scan.maps.conj() * ifft2c(kspace)).sum(1))
    recs = {method: upmri.reconstruct(scan, method) for method in METHODS}
    return scan, recs, {method: upmri.evaluate(rec) for method, rec in recs.items()}


# %% Figures: 24 calibration lines with every 4th line around them, or 8 at random; the usual random lines, 4× and 8×
regular = torch.zeros(1, 128, dtype=torch.bool)
regular[:, 52:76] = True
regular[:, ::4] = True
masks = {
    "regular": regular,
    "calibration and random": random_lines(128, 4, acs=24, seed=0),
    "random 4x": random_lines(128, 4, seed=2),
    "random 8x": random_lines(128, 8, seed=2),
}
for name, mask in masks.items():
    scan, recs, scores = compare(mask)
    print(name, {method: round(score["psnr"], 2) for method, score in scores.items()})
    title = f"Brain in vivo, 16 coils, measured k-space, {name} lines, R = {scan.acceleration:.1f}"
    images = {method: rec.image for method, rec in recs.items()}
    comparison(scan.reference, images, folder / f"{name.replace(' ', '_')}.png", scores=scores, title=title)

# %% Results depend on the random lines: means over many draws
for rate in (4, 8):
    table = torch.tensor(
        [[s["psnr"] for s in compare(random_lines(128, rate, seed=seed))[2].values()] for seed in range(draws)]
    )
    for method, column in zip(METHODS, table.T, strict=True):
        ahead = table[:, -1] - column
        print(
            f"{rate}×, {draws} draws: {method:12} {column.mean():.2f} dB "
            f"({column.min():.2f} to {column.max():.2f}), upmri ahead by {ahead.mean():.2f} "
            f"({ahead.min():.2f} to {ahead.max():.2f})"
        )
