"""Coil maps without calibration lines, on real scans: joint estimation against ESPIRiT from 24 calibration lines.

    UPMRI_DATA=… python benchmarks/maps.py [--draws 3] [--methods sense upmri] [-o FILE.md]

Brains: fully sampled scans, R = 2, every second line or random ones. PSNR inside the support of maps of the central 24
lines, against two references made of all lines: the coils combined with these maps, which favours the maps themselves,
and the root of the sum of squares of the coils, which favours none. Each row has as many lines, W/2:

- *joint*: lines without calibration lines, maps from these lines alone;
- *same lines*: the same lines, maps by ESPIRiT from the central 24 lines, which are used for nothing else;
- *with 24 lines*: the central 24 lines and fewer others, maps by ESPIRiT from the scan itself.

Phantom: a scan without calibration lines and its reference scan; NRMSE of the magnitude with maps of the one against
maps of the other, inside the support of the reference scan's maps. No setting was chosen on these scans.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch import Tensor

import upmri
from upmri.evaluation.metrics import psnr
from upmri.physics.fourier import ifft2c

LINES = 24
BRAINS = ("invivo_brain_16ch", "invivo_brain_7ch")


def draw(width: int, pattern: str, number: int, *, calibration: bool) -> Tensor:
    """W/2 lines, bool (W,): regular or random, with the central 24 among them or without any added."""
    mask = torch.zeros(width, dtype=torch.bool)
    if calibration:
        mask[width // 2 - LINES // 2 : width // 2 + LINES // 2] = True
    if pattern == "random":
        free = (~mask).nonzero().flatten()
        generator = torch.Generator().manual_seed(number)
        mask[free[torch.randperm(len(free), generator=generator)[: width // 2 - int(mask.sum())]]] = True
    elif calibration:  # as regular as the number of lines allows
        free = (~mask).nonzero().flatten()
        count = width // 2 - LINES
        mask[free[((torch.arange(count) + 0.5 * (number + 1) / 2) * len(free) / count).long()]] = True
    else:
        mask[number % 2 :: 2] = True
    return mask


def brain(path: Path, methods: list[str], draws: int) -> list[str]:
    """Rows of the table for a fully sampled scan."""
    full = upmri.load(path)
    width = full.matrix[1]
    central = torch.zeros(width, dtype=torch.bool)
    central[width // 2 - LINES // 2 : width // 2 + LINES // 2] = True
    given = upmri.estimate_maps(upmri.Scan(kspace=full.kspace * central)).maps
    assert given is not None
    inside = (given != 0).any(1)
    coils = ifft2c(full.kspace)
    references = [(given.conj() * coils).sum(1), coils.abs().square().sum(1).sqrt()]

    def scores(mask: Tensor, maps: Tensor | None) -> tuple[list[list[float]], str]:
        scan = upmri.Scan(kspace=full.kspace * mask, mask=mask, maps=maps)
        made = [upmri.reconstruct(scan, method) for method in methods]
        quality = f"{made[0].settings['maps_quality']} {made[0].settings['maps_unexplained']:.4f}"
        return [[psnr(rec.image, x0, inside).item() for x0 in references] for rec in made], quality

    rows = []
    for pattern in ("regular", "random"):
        for number in range(2 if pattern == "regular" else draws):
            mask = draw(width, pattern, number, calibration=False)
            (joint, quality), (same, _) = scores(mask, None), scores(mask, given)
            other, _ = scores(draw(width, pattern, number, calibration=True), None)
            for i, method in enumerate(methods):
                cells = [f"{a:.2f} | {b:.2f} | {a - b:+.2f}" for a, b in zip(joint[i], same[i], strict=True)]
                cells += [f"{b:.2f} | {a - b:+.2f}" for a, b in zip(joint[i][1:], other[i][1:], strict=True)]
                name = path.stem.removesuffix("_kspace")
                rows.append(f"| {name} | {pattern} {number} | {method} | {' | '.join(cells)} | {quality} |")
                print(rows[-1], flush=True)
    return rows


def phantom(folder: Path, methods: list[str]) -> list[str]:
    """Rows of the table for the scan with a reference scan."""
    scan = upmri.load(folder / "phantom_16ch_r2_kspace.npy")
    mapped = upmri.estimate_maps(scan, upmri.load(folder / "phantom_16ch_r2_reference.npy"))
    assert mapped.maps is not None
    inside = (mapped.maps != 0).any(1)
    rows = []
    for method in methods:
        one, other = (upmri.reconstruct(which, method) for which in (scan, mapped))
        x, x0 = (rec.image.abs() * inside for rec in (one, other))
        rows.append(
            f"| phantom_16ch_r2 | {method} | {((x - x0).norm() / x0.norm()).item():.2%} | "
            f"{one.settings['maps_unexplained']:.4f} | {other.settings['maps_unexplained']:.4f} |"
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Print the tables, and write them if wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["sense", "upmri"])
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    folder = Path(os.environ["UPMRI_DATA"]) / "scans"
    head = (
        "| scan | lines | method | combined: joint [dB] | same lines | difference | sum of squares: joint [dB] "
        "| same lines | difference | with 24 lines | difference | maps, unexplained |"
    )
    table = [head, "|---" * 12 + "|"]
    print("\n".join(table))
    for name in BRAINS:
        table += brain(folder / f"{name}_kspace.npy", options.methods, options.draws)
    more = ["", "| scan | method | NRMSE | unexplained, joint | unexplained, reference scan |", "|---" * 5 + "|"]
    print("\n".join(more))
    table += more + phantom(folder, options.methods)
    if options.out is not None:
        options.out.write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
