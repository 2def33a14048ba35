"""How often the bounds of `upmri` hold, on people who are neither in the training data nor in the calibration.

The scans of `people.py` (simulated, 16 coils, σ₀ = 0.01, 4× and 8×), with ESPIRiT maps and with true maps. For each
confidence: the share of held-out lines below their bound, and of the lines that were not acquired (with noise, as the
simulation knows them); the share of slices whose PSNR and SSIM are above their bounds, and by how much in the median;
the share of pixels of the object in their interval. Slices that get no bound are counted, and left out of the rest but
for the held-out lines.

    UPMRI_DATA=… python benchmarks/bounds.py [--slices 24] [--samples 8] [--device cuda] [--workers 8]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

import upmri
from ahead import in_processes
from people import GROUPS, RESULTS, simulate, slices
from provenance import record
from upmri.core.device import pick_device
from upmri.core.similarity import psnr, ssim
from upmri.learning.conformal import CONFIDENCES
from upmri.learning.held_out_bounds import Calibration, bound_slice
from upmri.learning.line_errors import measure_lines
from upmri.methods.prior import Prior
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import mean_image
from upmri.networks.precision import for_inference
from upmri.physics.fourier import fft1c
from upmri.physics.problem import Problem
from upmri.physics.simulate import complex_normal
from upmri.weights.files import load_prior

KEYS = [f"{confidence:g}" for confidence in CONFIDENCES]
KINDS = {"head": "brains", "torso": "hearts"}


def both_scans(job: tuple[Path, int, float, Any]) -> dict[str, upmri.Scan]:
    """One scan with true maps, and the same with ESPIRiT maps."""
    scan = simulate((*job, "true"))
    return {"true": scan, "espirit": upmri.estimate_maps(replace(scan, maps=None))}


@torch.no_grad()
def assess(prior: Prior, scan: upmri.Scan, known: upmri.Scan, samples: int, device: torch.device) -> dict[str, Any]:
    """Bounds of one slice, and whether they hold: of the scan as it is, and as it is known."""
    assert scan.maps is not None
    assert scan.reference is not None
    problem = Problem.from_scan(known, device)
    calibration = Calibration.from_card(prior.card, prior.source)
    made = Upmri(model=prior, samples=samples)(problem)
    image, truth = made.image.abs().cpu(), scan.reference.abs() / problem.scale.cpu()[:, None, None]
    lines = measure_lines(partial(mean_image, for_inference(prior.network)), problem, made.image)[0]
    scores = calibration.model.scores(lines)
    # Measurements of the lines that were not acquired, with noise of their own, and what the image says of them.
    coils = (scan.maps * scan.reference[:, None]).to(device) / problem.scale[:, None, None, None]
    noise = complex_normal(tuple(coils.shape), torch.Generator().manual_seed(1)).to(device) * problem.sigma[0]
    off = fft1c(problem.operator.maps * made.image[:, None]) - fft1c(coils) - noise
    missing = off.abs().square().mean((1, 2))[0].sqrt().cpu()[lines.columns]
    inside = problem.operator.support[0].cpu()
    row: dict[str, Any] = {
        "psnr": psnr(image, truth).item(), "ssim": ssim(image, truth).item(), "held_out": len(scores), "bounds": {}
    }  # fmt: skip
    for key in KEYS:
        found = bound_slice(calibration, key, lines, made.image[0].abs(), problem.operator.support[0])
        row["reason"] = found.reasons[0]
        row["bounds"][key] = {
            "lines": int((scores <= calibration.lines[key]).sum()),
            "missing": (missing <= found.lines[0, lines.columns]).double().mean().item(),
            "psnr": found.psnr[0],
            "ssim": found.ssim[0],
        }
        if made.std is not None and key in calibration.pixels and not row["reason"]:
            error = (image[0] - truth[0]).abs()[inside]
            covered = error <= calibration.pixels[key] * made.std[0].cpu()[inside]
            row["bounds"][key]["pixels"] = covered.double().mean().item()
    return row


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares over the slices of some rows."""
    bounded = [row for row in rows if not row["reason"]]
    found: dict[str, Any] = {"slices": len(rows), "without": len(rows) - len(bounded)}
    found["held_out"] = sum(row["held_out"] for row in rows)
    for key in KEYS:
        found[f"lines {key}"] = sum(row["bounds"][key]["lines"] for row in rows) / found["held_out"]
        here = [(row, row["bounds"][key]) for row in bounded]
        if not here:
            continue
        found[f"missing {key}"] = mean(bound["missing"] for _, bound in here)
        for name in ("psnr", "ssim"):
            slack = [row[name] - bound[name] for row, bound in here if bound[name] is not None]
            if slack:
                found |= {f"{name} {key}": mean(value >= 0 for value in slack), f"{name} slack {key}": median(slack)}
        covered = [bound["pixels"] for _, bound in here if "pixels" in bound]
        found |= {f"pixels {key}": mean(covered)} if covered else {}
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The shares as a table: three confidences in each cell."""
    lines = [
        "| | maps | slices, without bound | held-out lines | lines not acquired | PSNR holds, dB above | SSIM holds "
        "| pixels |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = {
            name: " · ".join(f"{100 * row[f'{name} {key}']:.0f}" if f"{name} {key}" in row else "–" for key in KEYS)
            for name in ("missing", "psnr", "ssim", "pixels")
        }
        held_out = " · ".join(f"{100 * row[f'lines {key}']:.1f}" for key in KEYS)
        slack = f", {row['psnr slack 0.9']:.1f}" if "psnr slack 0.9" in row else ""
        lines.append(
            f"| {row['name']} | {row['maps']} | {row['slices']}, {row['without']} | {held_out} ({row['held_out']}) "
            f"| {cells['missing']} | {cells['psnr']}{slack} | {cells['ssim']} | {cells['pixels']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=24, help="slices per group, rate and kind of maps")
    parser.add_argument("--samples", type=int, default=8, help="draws of the deviation, as in the calibration")
    parser.add_argument("--part", default="test")
    parser.add_argument("--groups", nargs="*", default=list(GROUPS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="processes that prepare scans; the result is the same")
    parser.add_argument("--model", nargs="*", default=[], metavar="NAME=FILE", help="instead of the shipped weights")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    assert "UPMRI_DATA" in os.environ, "UPMRI_DATA names the folder of the anatomies"
    device, models = pick_device(options.device), dict(pair.split("=", 1) for pair in options.model)
    rows: list[dict[str, Any]] = []
    fitted: dict[str, tuple[int, int]] = {}
    every: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for group in options.groups:
        name, anatomy = GROUPS[group]
        prior = load_prior(models.get(name, name), device)
        fitted[name] = Calibration.from_card(prior.card, prior.source).slices
        for rate in (4, 8):
            jobs = [(path, index, rate, anatomy) for path, index in slices(group, options.part, options.slices)]
            scans = list(in_processes(both_scans, jobs, options.workers))
            for maps in ("true", "espirit"):
                made = [assess(prior, scan["true"], scan[maps], options.samples, device) for scan in scans]
                every.setdefault((f"{KINDS[anatomy]}, {rate}×", maps), []).extend(made)
                rows.append({"name": f"{group}, {rate}×", "maps": maps, **summary(made)})
                print(json.dumps(rows[-1]), flush=True)
                for row in made:
                    print("  " + (row["reason"] or f"{row['psnr']:.1f} dB, bound {row['bounds']['0.9']['psnr']:.1f}"))
    total = [{"name": name, "maps": maps, **summary(made)} for (name, maps), made in every.items()]
    total.append({"name": "all", "maps": "both", **summary([row for made in every.values() for row in made])})
    result = {"part": options.part, "samples": options.samples, "calibration": fitted, "rows": [*rows, *total]}
    (options.out / "bounds.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "bounds.md").write_text(table([*rows, *total]))
    record(options.out / "bounds.json", [models.get(name, name) for name in fitted], options.device)
    print(table([*rows, *total]))


if __name__ == "__main__":
    main()
