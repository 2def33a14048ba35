"""Real k-space, undersampled afterwards: what the classical methods make of a brain in vivo.

Needs ``UPMRI_DATA`` with ``scans/invivo_brain_16ch_kspace.npy``. Coil maps and noise level come from the undersampled
calibration lines; the reference is the fully sampled scan, combined with the same maps.
"""

# %%
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

import upmri
from upmri.evaluation.figures import comparison
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import random_lines

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "real_brain")
folder.mkdir(parents=True, exist_ok=True)
kspace = upmri.load(Path(os.environ["UPMRI_DATA"]) / "scans" / "invivo_brain_16ch_kspace.npy").kspace

# %% 24 calibration lines, and around them every 4th line, or 8 lines at random
regular = torch.zeros(1, 128, dtype=torch.bool)
regular[:, 52:76] = True
regular[:, ::4] = True
masks = {"regular": regular, "random": random_lines(128, 4, acs=24, seed=0)}

# %%
for name, mask in masks.items():
    scan = upmri.estimate_maps(upmri.Scan(kspace=kspace * mask))
    scan = replace(scan, reference=(scan.maps.conj() * ifft2c(kspace)).sum(1))
    images, scores = {}, {}
    for method in ("zero-filled", "sense", "cg-sense", "l1-wavelet"):
        rec = upmri.reconstruct(scan, method)
        images[method], scores[method] = rec.image, upmri.evaluate(rec)
        print(f"{name:8} R {scan.acceleration:.1f}  {method:12} {scores[method]}")  # noqa: T201
    title = f"Brain in vivo, 16 coils, measured k-space, {name} undersampling, R = {scan.acceleration:.1f}"
    comparison(scan.reference, images, folder / f"{name}.png", scores=scores, title=title)
