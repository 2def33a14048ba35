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
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import upmri
from people import data
from provenance import record
from upmri.evaluation.metrics import psnr
from upmri.physics.fourier import ifft2c

LINES = 24
Row = dict[str, Any]
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


def brain(path: Path, methods: list[str], draws: int) -> list[Row]:
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

    def scores(mask: Tensor, maps: Tensor | None) -> tuple[list[list[float]], Row]:
        scan = upmri.Scan(kspace=full.kspace * mask, mask=mask, maps=maps)
        made = [upmri.reconstruct(scan, method) for method in methods]
        quality = {key: made[0].settings[f"maps_{key}"] for key in ("quality", "unexplained")}
        return [[psnr(rec.image, x0, inside).item() for x0 in references] for rec in made], quality

    rows = []
    for pattern in ("regular", "random"):
        for number in range(2 if pattern == "regular" else draws):
            mask = draw(width, pattern, number, calibration=False)
            (joint, quality), (same, _) = scores(mask, None), scores(mask, given)
            other, _ = scores(draw(width, pattern, number, calibration=True), None)
            for i, method in enumerate(methods):
                about = {"scan": path.stem.removesuffix("_kspace"), "lines": f"{pattern} {number}", "method": method}
                combined = {"joint": joint[i][0], "same lines": same[i][0], "difference": joint[i][0] - same[i][0]}
                squares = {"joint, squares": joint[i][1], "same lines, squares": same[i][1]}
                rows.append(about | combined | squares | {"with 24 lines, squares": other[i][1]} | quality)
                print(line(rows[-1]), flush=True)
    return rows


def line(row: Row) -> str:
    """A line of the table of brains."""
    squares, same_squares, other = (row[f"{key}, squares"] for key in ("joint", "same lines", "with 24 lines"))
    cells = [f"{row['joint']:.2f} | {row['same lines']:.2f} | {row['difference']:+.2f}"]
    cells += [f"{squares:.2f} | {same_squares:.2f} | {squares - same_squares:+.2f}"]
    cells += [f"{other:.2f} | {squares - other:+.2f} | {row['quality']} {row['unexplained']:.4f}"]
    return f"| {row['scan']} | {row['lines']} | {row['method']} | {' | '.join(cells)} |"


def phantom(folder: Path, methods: list[str]) -> list[Row]:
    """Rows of the table for the scan with a reference scan."""
    scan = upmri.load(folder / "phantom_16ch_r2_kspace.npy")
    mapped = upmri.estimate_maps(scan, upmri.load(folder / "phantom_16ch_r2_reference.npy"))
    assert mapped.maps is not None
    inside = (mapped.maps != 0).any(1)
    rows = []
    for method in methods:
        one, other = (upmri.reconstruct(which, method) for which in (scan, mapped))
        x, x0 = (rec.image.abs() * inside for rec in (one, other))
        shares = {"unexplained": one.settings["maps_unexplained"], "reference": other.settings["maps_unexplained"]}
        rows.append({"method": method, "nrmse": ((x - x0).norm() / x0.norm()).item(), **shares})
    return rows


def main() -> None:
    """Print the tables, and write them if wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["sense", "upmri"])
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    folder = data() / "scans"
    head = (
        "| scan | lines | method | combined: joint [dB] | same lines | difference | sum of squares: joint [dB] "
        "| same lines | difference | with 24 lines | difference | maps, unexplained |"
    )
    table = [head, "|---" * 12 + "|"]
    print("\n".join(table))
    found: dict[str, list[Row]] = {"rows": []}
    for name in BRAINS:
        found["rows"] += brain(folder / f"{name}_kspace.npy", options.methods, options.draws)
    table += [line(row) for row in found["rows"]]
    more = ["", "| scan | method | NRMSE | unexplained, joint | unexplained, reference scan |", "|---" * 5 + "|"]
    found["phantom"] = phantom(folder, options.methods)
    for row in found["phantom"]:
        cells = f"{row['method']} | {row['nrmse']:.2%} | {row['unexplained']:.4f} | {row['reference']:.4f}"
        more.append(f"| phantom_16ch_r2 | {cells} |")
    print("\n".join(more))
    if options.out is not None:
        options.out.write_text("\n".join(table + more) + "\n")
        kept = options.out.with_suffix(".json")
        kept.write_text(json.dumps(found, indent=1) + "\n")
        record(kept, ["brain", "cardiac"])


if __name__ == "__main__":
    main()
