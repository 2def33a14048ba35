"""
A radial scan through mri-nufft
===============================

Spokes instead of lines: mri-nufft transforms, and the shipped prior reconstructs. The scan is simulated.
"""

# %%
# The operator comes from mri-nufft, ``pip install "upmri[interop]"``. Each spoke of a radial scan goes through the
# centre of k-space; the angle between two of them is the golden angle.
from importlib.util import find_spec

import numpy as np
import torch

import upmri
from upmri.evaluation import comparison


def spokes(count, samples):
    """Return positions in k-space, (count · samples, 2), in radians per pixel."""
    angles = np.arange(count) * np.pi * (5**0.5 - 1) / 2
    radius = (np.arange(samples) - samples // 2) * 2 * np.pi / samples
    positions = radius[None, :, None] * np.stack([np.cos(angles), np.sin(angles)], -1)[:, None]
    return positions.reshape(-1, 2).astype(np.float32)


# %%
# The shipped prior expects A*A to have a largest eigenvalue near 1, so the operator is divided by its norm, and so are
# data and noise level. There is no density compensation: least squares do not need it, and weights would make the
# noise of the samples unequal. On the demo's slices with 16 to 32 spokes, weights proportional to the distance from the
# centre of k-space cost the prior 2 dB (24 spokes, one slice), and their square roots changed it by less than 0.5 dB.
def acquire(image, maps, count, noise):
    """Simulate a radial scan: its operator, data, and noise level σ₀, E|e|² = σ₀²."""
    import mrinufft

    from upmri.interop import from_mrinufft

    height, width = image.shape[-2:]
    nufft = mrinufft.get_operator("finufft")(spokes(count, 2 * height), (height, width), n_coils=maps.shape[1])
    operator = from_mrinufft(nufft, maps)
    clean = operator(image)
    drawn = torch.randn(clean.shape, dtype=clean.dtype, generator=torch.Generator().manual_seed(0))
    norm = operator.norm() ** 0.5
    return operator / norm, (clean + noise * drawn) / norm, noise / norm


# %%
# 24 spokes of a 96×96 image: a full scan has π/2 · 96 ≈ 151. The prior was trained on Cartesian scans alone. It works
# here because the network sees the acquisition through A*A only. Data and reconstruction use the same operator, which
# is easier than a real scan: there is no motion, no trajectory error and no off-resonance, and the coil maps are known.
if find_spec("mrinufft") is None or find_spec("finufft") is None:
    print('mri-nufft and finufft are missing; install them with: pip install "upmri[interop]"')
else:
    still = upmri.simulate(upmri.demo.brain()[1], coils=8, acceleration=1, noise=0.0)
    peak = still.reference.abs().max().item()
    operator, data, sigma = acquire(still.reference, still.maps, count=24, noise=0.005 * peak)
    problem = upmri.Problem(operator, data, sigma=sigma)
    images = {
        "least squares (CG)": upmri.reconstruct(problem, "cg-sense", steps=20).image,
        "damped least squares": upmri.reconstruct(problem, "sense").image,
        "upmri": upmri.reconstruct(problem, "upmri", model="brain").image,
    }
    scores = {name: upmri.evaluate(image, still.reference) for name, image in images.items()}
    for name, values in scores.items():
        print(f"{name:<22} {values['psnr']:.1f} dB, SSIM {values['ssim']:.3f}")
    figure = comparison(still.reference, images, scores=scores, title="Simulated radial scan, 24 spokes, 8 coils")
