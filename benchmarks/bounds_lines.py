"""Do bounds on PSNR hold for regular lines, little acceleration and much noise? Simulated scans, 16 coils.

    UPMRI_DATA=… python benchmarks/bounds_lines.py [--slices 5] [--part val] [--model brain] [-o FILE]

Prints, for each kind of lines, rate and σ₀, how many bounds of 90 % hold, and by how much the PSNR exceeds them.
The calibration has validation people, with other lines and noise; test people are neither in it nor in the training.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import upmri
from ahead import in_processes
from people import files
from provenance import record
from upmri.core.similarity import psnr
from upmri.physics.espirit import find_maps
from upmri.physics.masks import equispaced, random_lines

COILS, CALIBRATION = 16, 20
KINDS, RATES, NOISE = ("regular", "random"), (2, 4, 8), (0.01, 0.03)

Job = tuple[np.ndarray, str, int, float, int]
"""Image, kind of lines, rate, σ₀ and seed."""


def scan_of(job: Job) -> upmri.Scan:
    """One scan with ESPIRiT maps; its reference is the noise-free image that these maps combine."""
    image, kind, rate, noise, seed = job
    full = upmri.simulate(image[None], coils=COILS, acceleration=1, acs=0, noise=noise, seed=seed)
    assert full.maps is not None
    assert full.reference is not None
    width = full.matrix[1]
    regular = kind == "regular"
    mask = (
        equispaced(width, rate, CALIBRATION, offset=seed % rate) if regular else random_lines(width, rate, seed=seed)
    )[None]
    kspace = full.kspace * mask[:, None]
    maps = find_maps(kspace, mask)
    clean = (maps.conj() * full.maps * full.reference[:, None]).sum(1)
    return replace(full, kspace=kspace, mask=mask, maps=maps, reference=clean)


def excess(scan: upmri.Scan, model: str, device: str) -> float | None:
    """PSNR less its bound in dB; None where there is no bound."""
    assert scan.reference is not None
    rec = upmri.reconstruct(scan, model=model, bounds=True, device=device)
    assert rec.bounds is not None
    bound = rec.bounds.psnr[0]
    return None if bound is None else psnr(rec.image.abs(), scan.reference.abs()).item() - bound


def chosen(group: str, part: str, count: int) -> np.ndarray:
    """Slices spread evenly over the people of a part."""
    stack = np.concatenate([np.load(path)["image"] for path in files(group, part)]) / 220
    return stack[np.linspace(5, len(stack) - 6, count).astype(int)].astype(np.float32)


def summary(group: str, kind: str, rate: int, noise: float, found: Sequence[float | None]) -> dict[str, Any]:
    """How many bounds hold, out of how many, and by how much."""
    known = [round(value, 2) for value in found if value is not None]
    about = {"group": group, "kind": kind, "rate": rate, "noise": noise}
    return {**about, "hold": sum(value >= 0 for value in known), "count": len(known), "excesses": known}


def main() -> None:
    """Simulate, bound, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--groups", nargs="+", default=["brain_t2_head"])
    parser.add_argument("--part", default="val", help="people: val or test")
    parser.add_argument("--model", default="brain", help="name or file of weights of upmri")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="processes that prepare scans; the result is the same")
    parser.add_argument("-o", "--out", type=Path, help="file of the result (JSON)")
    given = parser.parse_args()
    rows = []
    for group in given.groups:
        images, settings = chosen(group, given.part, given.slices), list(product(KINDS, RATES, NOISE))
        jobs = [(image, *setting, seed) for setting in settings for seed, image in enumerate(images)]
        scans = in_processes(scan_of, jobs, given.workers)
        for setting in settings:
            row = summary(group, *setting, [excess(next(scans), given.model, given.device) for _ in images])
            rows.append(row)
            print(
                f"{group}, {row['kind']} lines, {row['rate']}×, σ₀ = {row['noise']}: {row['hold']} of {row['count']} "
                "hold; " + " ".join(f"{value:+.1f}" for value in row["excesses"]),
                flush=True,
            )
    if given.out:
        given.out.write_text(json.dumps({"part": given.part, "slices": given.slices, "rows": rows}, indent=1) + "\n")
        record(given.out, [given.model], given.device)


if __name__ == "__main__":
    main()
