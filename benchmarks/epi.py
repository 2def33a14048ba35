"""Ghosts of an echo-planar phantom: energy before and after the correction, beside other corrections.

    UPMRI_DATA=… python benchmarks/epi.py [--pictures DIR]

The scan is `phantom_4ch_epi.dat`, its reference readouts `phantom_4ch_epi_nophase.dat`. Neither marks which readouts
ran backwards, and their header has no gradient for regridding. Ghost energy is the mean of |x|² where the object, moved
by half the field of view, lies and the object itself does not, with the mean of |x|² elsewhere outside as background.
The others are written here in NumPy, from the same readouts: `as stored` (nothing done), `flipped` (backward readouts
turned), `pixel by pixel` (the phase of the reference readouts at each position instead of a line), and `every readout`
(the phase of the reference readout of the same number, which removes the drift along the train, too). twixtools turns
readouts that are marked and regrids, and BART has no command for this phase: neither removes the ghost.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import upmri
from people import data
from provenance import record
from upmri.physics.fourier import ifft2c
from upmri.physics.simulate import object_support

RESULTS = Path(__file__).parent / "results" / "epi.md"
Complex = NDArray[np.complex128]


def along_readout(kspace: Complex, *, back: bool = False) -> Complex:
    """Centred transform along the samples (coil, sample, line)."""
    transform = np.fft.fft if back else np.fft.ifft
    return np.fft.fftshift(transform(np.fft.ifftshift(kspace, 1), axis=1), 1)


def flipped(kspace: Complex) -> Complex:
    """Every second line turned."""
    kspace = kspace.copy()
    kspace[..., 1::2] = kspace[:, ::-1, 1::2]
    return kspace


def pixel_by_pixel(kspace: Complex, reference: Complex) -> Complex:
    """Lines of odd number without the phase that those of the reference have relative to their neighbours."""
    lines, known = along_readout(flipped(kspace)), along_readout(flipped(reference))
    between = (known[..., 1:-1:2] * (known[..., :-2:2] + known[..., 2::2]).conj()).sum((0, 2))
    lines[..., 1::2] *= np.exp(-1j * np.angle(between))[:, None]
    return along_readout(lines, back=True)


def every_readout(kspace: Complex, reference: Complex) -> Complex:
    """Every line without the phase of the reference line of its number."""
    lines, known = along_readout(flipped(kspace)), along_readout(flipped(reference))
    phase = np.angle((known * known[..., :1].conj()).sum(0))
    return along_readout(lines * np.exp(-1j * phase), back=True)


def energies(image: torch.Tensor, inside: torch.Tensor) -> tuple[float, float]:
    """Mean energy of the ghost and of the background, relative to that of the object."""
    moved = inside.roll(inside.shape[-1] // 2, -1)
    energy = image.square()
    ghost, empty = energy[moved & ~inside].mean(), energy[~moved & ~inside].mean()
    return float(ghost / energy[inside].mean()), float(empty / energy[inside].mean())


def measure() -> tuple[dict[str, torch.Tensor], dict[str, dict[str, float]]]:
    """The images, and the energies of ghost and background in each."""
    folder = data() / "scans"
    scan, reference = (upmri.load(folder / f"phantom_4ch_{name}.dat") for name in ("epi", "epi_nophase"))
    raw, known = (one.kspace[0].numpy().astype(np.complex128) for one in (scan, reference))
    made = {
        "as stored": raw,
        "flipped": flipped(raw),
        "upmri.correct_ghosts": upmri.correct_ghosts(scan, reference).kspace[0].numpy(),
        "pixel by pixel": pixel_by_pixel(raw, known),
        "every readout": every_readout(raw, known),
    }
    images = {
        name: ifft2c(torch.from_numpy(kspace.astype(np.complex64))).abs().square().sum(0).sqrt()
        for name, kspace in made.items()
    }
    best = images["every readout"]
    inside = object_support((best / best.quantile(0.999))[None], dark=0.1)[0]
    before = energies(images["flipped"], inside)[0]
    found = {}
    for name, image in images.items():
        ghost, empty = energies(image, inside)
        found[name] = {"ghost": ghost, "background": empty, "relative": ghost / before}
    return images, found


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, help="also write a picture, into this folder")
    options = parser.parse_args()
    images, found = measure()
    lines = ["# Echo-planar phantom", "", "Mean energy relative to that of the object.", ""]
    lines += ["| | ghost | background | ghost, of that of the flipped scan |", "|---|---|---|---|"]
    for name, row in found.items():
        lines.append(f"| {name} | {row['ghost']:.5f} | {row['background']:.5f} | {row['relative']:.4f} |")
    RESULTS.write_text("\n".join(lines) + "\n")
    kept = RESULTS.with_suffix(".json")
    kept.write_text(json.dumps({"rows": [{"name": name, **row} for name, row in found.items()]}, indent=1) + "\n")
    record(kept)
    print(RESULTS.read_text())
    if options.pictures:
        draw(images, options.pictures / "epi_ghosts.png")


def draw(images: dict[str, torch.Tensor], path: Path) -> None:
    """The images, and the same ten times as bright."""
    import matplotlib.pyplot as plt

    shown = {name: images[name] for name in ("as stored", "flipped", "upmri.correct_ghosts", "every readout")}
    figure, axes = plt.subplots(2, len(shown), figsize=(3 * len(shown), 7), layout="constrained")
    top = shown["every readout"].quantile(0.995)
    for (name, image), column in zip(shown.items(), axes.T, strict=True):
        for axis, factor in zip(column, (1, 10), strict=True):
            axis.imshow(image.T, cmap="gray", vmin=0, vmax=top / factor)
            axis.set_axis_off()
        column[0].set_title(name)
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
