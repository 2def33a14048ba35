"""Quality on people that no training saw: `upmri` against `sense` with the best λ in hindsight.

Simulated scans (16 coils, σ₀ = 0.01) of the anatomies under UPMRI_DATA, at their native resolution, 4× and 8×, each
group for itself; maps by ESPIRiT from the undersampled scan, and the true maps beside. One λ a group and rate, the one
that gives `sense` the highest mean PSNR on these very slices. Same maps, so same support, for both.

    UPMRI_DATA=… python benchmarks/quality.py [--slices 24] [--also twin=FILE …]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import upmri
from provenance import record
from upmri.evaluation.metrics import psnr, ssim
from upmri.formats import load_images
from upmri.physics.masks import seed_for
from upmri.weights.catalogue import read_card

GROUPS = {
    "brain_t1_stripped": ("brain", "head"),
    "brain_t1_head": ("brain", "head"),
    "brain_t2_head": ("brain", "head"),
    "cardiac_cine": ("cardiac", "torso"),
}
DAMPINGS = [10 ** (k / 4) for k in range(-14, -3)]
RESULTS = Path(__file__).parent / "results"
# 16 bits, the default on accelerators, would change PSNR by 0.01 dB.
EXACT = {"precision": "fp32"}


def scans(group: str, part: str, rate: float, limit: int, maps: str, workers: int) -> list[upmri.Scan]:
    """Simulate scans of slices spread evenly over the people of a part."""
    folder = Path(os.environ["UPMRI_DATA"]) / "anatomies"
    people = json.loads((folder / "splits.json").read_text())[group][part]
    slices = [
        (folder / group / f"{name}.npz", i)
        for name in people
        for i in range(len(load_images(folder / group / f"{name}.npz")))
    ]
    count = min(limit, len(slices)) if limit else len(slices)
    jobs = [(*slices[k * len(slices) // count], rate, GROUPS[group][1], maps) for k in range(count)]
    if workers == 1:
        return [simulate(job) for job in jobs]
    with ProcessPoolExecutor(workers, torch.multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        return list(pool.map(simulate, jobs, chunksize=4))


def simulate(job: tuple[Path, int, float, Any, str]) -> upmri.Scan:
    """One scan: its seed is its name's, so that every machine draws the same."""
    path, index, rate, anatomy, maps = job
    seed = seed_for(f"{path.parent.name}/{path.name}", index, rate) % 2**31
    scan = upmri.physics.simulate.simulate(load_images(path)[index], acceleration=rate, seed=seed, anatomy=anatomy)
    return scan if maps == "true" else upmri.estimate_maps(replace(scan, maps=None))


def score(scans: list[upmri.Scan], method: str, device: str, **settings: Any) -> dict[str, list[float]]:
    """PSNR and SSIM of each slice."""
    images = [upmri.reconstruct(scan, method, device=device, **settings).image for scan in scans]
    pairs = [(image, scan.reference) for image, scan in zip(images, scans, strict=True)]
    return {f.__name__: [f(*pair).item() for pair in pairs] for f in (psnr, ssim)}


def mean(values: list[float]) -> float:
    """Rounded."""
    return round(sum(values) / len(values), 3)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=24, help="slices a group and rate, 0 for all")
    parser.add_argument("--part", default="test")
    parser.add_argument("--groups", nargs="*", default=list(GROUPS))
    parser.add_argument("--maps", nargs="*", default=["espirit", "true"])
    parser.add_argument("--model", nargs="*", default=[], metavar="NAME=FILE", help="instead of the shipped weights")
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME=FILE", help="further weights to compare")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("quality.json"))
    options = parser.parse_args()
    models = dict(pair.split("=", 1) for pair in options.model)
    extra = dict(pair.split("=", 1) for pair in options.also)
    rows = []
    for maps in options.maps:
        for group in options.groups:
            for rate in (4, 8):
                start = time.perf_counter()
                found = scans(group, options.part, rate, options.slices, maps, options.workers)
                tried = {damping: score(found, "sense", options.device, damping=damping) for damping in DAMPINGS}
                damping, sense = max(tried.items(), key=lambda item: mean(item[1]["psnr"]))
                name = GROUPS[group][0]
                results = {
                    "sense": sense,
                    "upmri": score(found, "upmri", options.device, model=models.get(name, name), **EXACT),
                }
                for label, file in extra.items():
                    if label.startswith(name):
                        results[label] = score(found, read_card(file)["method"], options.device, model=file)
                row = {"maps": maps, "group": group, "rate": rate, "slices": len(found), "lambda": round(damping, 5)}
                for label, values in results.items():
                    row |= {f"{label} {metric}": mean(numbers) for metric, numbers in values.items()}
                gains = [a - b for a, b in zip(results["upmri"]["psnr"], sense["psnr"], strict=True)]
                row |= {
                    "gain": mean(gains),
                    "worst": round(min(gains), 2),
                    "seconds": round(time.perf_counter() - start),
                    "each": {label: [round(one, 4) for one in values["psnr"]] for label, values in results.items()},
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
                lines = ",\n".join(json.dumps(row) for row in rows)
                options.out.write_text(f'{{"part": "{options.part}", "rows": [\n{lines}\n]}}\n')
                used = {models.get(GROUPS[each][0], GROUPS[each][0]) for each in options.groups}
                record(options.out, sorted(used | set(extra.values())), options.device)


if __name__ == "__main__":
    main()
