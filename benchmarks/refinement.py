"""Coil maps refined inside the reconstruction: share of the gap between ESPIRiT maps and true maps that is closed.

Simulated scans (16 coils, σ₀ = 0.01) of the anatomies under UPMRI_DATA, 4× and 8×: the same lines, noise and coils with
ESPIRiT maps, with refined ones (`refine_maps=True`) and with the true maps. With `--real`, fully sampled scans in vivo
with random lines; they have no true maps. Their reference is the combination of the coils' full images by ESPIRiT maps
of the full scan; the table has the gain against the root sum of squares, too, which holds the noise of the background.
Runs with torch, numpy and safetensors alone.

    UPMRI_DATA=… python benchmarks/refinement.py [--part val] [--slices 6] [--real 3] [-o FILE.md]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import upmri
from people import GROUPS, data, scans
from provenance import record
from upmri.core.device import pick_device
from upmri.evaluation.benchmark.text_tables import markdown_table
from upmri.evaluation.metrics import psnr
from upmri.physics.espirit import find_maps
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import random_lines

RATES = (4, 8)
REAL = ("invivo_brain_7ch", "invivo_brain_16ch")
RESULTS = Path(__file__).parent / "results"


def measure(scan: upmri.Scan, model: str, device: str, *, refine: bool) -> tuple[float, float]:
    """PSNR in dB, and seconds of the processor on a CPU, of the clock elsewhere."""
    clock = time.process_time if pick_device(device).type == "cpu" else time.perf_counter
    start = clock()
    rec = upmri.reconstruct(scan, model=model, device=device, refine_maps=refine)
    assert scan.reference is not None
    return psnr(rec.image, scan.reference).item(), clock() - start


def simulated(group: str, rate: float, part: str, slices: int, device: str) -> dict[str, Any]:
    """A row of the table, and the PSNR of each slice with all three maps."""
    model = GROUPS[group][0]
    rows = []
    for scan in scans(group, part, rate, slices, "true", 1):
        unknown = replace(scan, maps=None)
        rows.append(
            [measure(unknown, model, device, refine=False), measure(unknown, model, device, refine=True),
             measure(scan, model, device, refine=False)]
        )  # fmt: skip
    values = torch.tensor(rows, dtype=torch.float64)  # (slice, maps, PSNR and seconds)
    (before, after, true), seconds = values.mean(0).T
    gains = values[:, 1, 0] - values[:, 0, 0]
    found = {
        "espirit": before, "refined": after, "true": true, "gain": gains.mean(), "worst": gains.min(),
        "share": (after - before) / (true - before), "time": seconds[1] / seconds[0],
    }  # fmt: skip
    return {"group": group, "rate": rate, "slices": len(rows), **rounded(found), "each": values[..., 0].tolist()}


def rounded(found: dict[str, Any]) -> dict[str, float]:
    """Numbers for JSON."""
    return {name: round(float(value), 4) for name, value in found.items()}


def real(name: str, rate: float, draws: int, device: str) -> dict[str, Any]:
    """A row of the table: random lines of a fully sampled scan."""
    full = torch.from_numpy(np.load(data() / "scans" / f"{name}_kspace.npy"))[None]
    full = full.to(torch.complex64)
    coils, all_lines = ifft2c(full), torch.ones(1, 1, full.shape[-1], dtype=torch.bool)
    combined = (find_maps(full, all_lines).conj() * coils).sum(1)
    root = torch.linalg.vector_norm(coils, dim=1)
    rows = []
    for draw in range(draws):
        mask = random_lines(full.shape[-1], rate, seed=draw)[None]
        scan = upmri.Scan(kspace=full * mask[:, None], mask=mask)
        images = [upmri.reconstruct(scan, model="brain", device=device, refine_maps=on).image for on in (False, True)]
        rows.append([[psnr(image, reference).item() for image in images] for reference in (combined, root)])
    values = torch.tensor(rows)  # (draw, reference, maps)
    gains = values[..., 1] - values[..., 0]
    before, after = values[:, 0].mean(0)
    mean, least = gains.mean(0), gains.min(0).values
    found = {"espirit": before, "refined": after, "gain": mean[0], "worst": least[0], "gain, root": mean[1]}
    return {"scan": name, "rate": rate, "draws": draws, **rounded(found), "each": values[:, 0].tolist()}


FORMATS = {
    "rate": "g",
    "slices": "d",
    "draws": "d",
    "gain": "+.2f",
    "worst": "+.2f",
    "gain, root": "+.2f",
    "share": ".0%",
}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    head = [name for name in rows[0] if name != "each"]
    body = [[f"{row[name]:{FORMATS.get(name, '.2f')}}" if name in FORMATS or not isinstance(row[name], str)
             else row[name] for name in head] for row in rows]  # fmt: skip
    return markdown_table(head, body)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="val", choices=("val", "test"))
    parser.add_argument("--slices", type=int, default=6, help="slices a group and rate, 0 for all")
    parser.add_argument("--groups", nargs="*", default=list(GROUPS))
    parser.add_argument("--real", type=int, default=0, metavar="DRAWS", help="random lines of the scans in vivo")
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"part": options.part}
    if options.groups:
        found["rows"] = []
        for group in options.groups:
            for rate in RATES:
                found["rows"].append(simulated(group, rate, options.part, options.slices, options.device))
                print(found["rows"][-1], flush=True)
    if options.real:
        found["real"] = [real(name, 4, options.real, options.device) for name in REAL]
    page = "\n\n".join([f"People: {options.part}.", *(table(found[key]) for key in ("rows", "real") if key in found)])
    print(page)
    if options.out is not None:
        options.out.write_text(page)
        kept = options.out.with_suffix(".json")
        kept.write_text(json.dumps(found, indent=1) + "\n")
        record(kept, ["brain", "cardiac"], options.device)


if __name__ == "__main__":
    main()
