"""Heart beats on people that no training saw: `cine` beside frame-by-frame, classical methods over time, and BART.

Simulated dynamic scans (16 coils, σ₀ = 0.01, 20 frames) of `cardiac_series` under UPMRI_DATA, 8× and 12×,
variable-density and interleaved lines in turn, no calibration lines; maps by ESPIRiT from the average over time, the
same for all methods. The heart is the 5 % of the pixels that vary most over time. BART's λ is chosen by
`--part val --tune`.

    UPMRI_DATA=… python benchmarks/cine.py [--series 3] [--rows 96] [--only cine llr …]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import upmri
from people import files
from provenance import record
from upmri.evaluation.metrics import psnr, ssim
from upmri.physics import simulate_series
from upmri.physics.dynamic_masks import Pattern
from upmri.physics.espirit import find_maps
from upmri.physics.frames import average_over_time
from upmri.physics.masks import seed_for

RESULTS = Path(__file__).parent / "results"
PATTERNS: tuple[Pattern, ...] = ("variable", "interleaved")
METHODS: dict[str, dict[str, Any]] = {
    "zero-filled": {},
    "sense": {},
    "upmri": {"model": "cardiac"},
    "tv-t": {},
    "l+s": {},
    "llr": {},
    "BART llr": {},
    "cine": {},
}
PICTURED = ("upmri", "tv-t", "llr", "BART llr", "cine")
# λ of BART's `pics -R L`, with its own scale of the data, by acceleration: the best of `--part val --tune`.
BART = {8.0: 0.002, 12.0: 0.001}
TRIED = (0.0005, 0.001, 0.002, 0.004, 0.008)
# Share of the pixels that count as heart.
HEART = 0.05


def scans(part: str, rate: float, limit: int, rows: int) -> list[upmri.Scan]:
    """Simulate scans of series spread evenly over the people of a part."""
    found = []
    for path in files("cardiac_series", part):
        with np.load(path) as file:
            found += [(f"{path.stem}, slice {i}", image) for i, image in enumerate(file["image"])]
    count = min(limit, len(found)) if limit else len(found)
    made = []
    for k in range(count):
        name, image = found[k * len(found) // count]
        first = (image.shape[1] - rows) // 2 if rows else 0
        cut = image[:, first : image.shape[1] - first]
        seed = seed_for(name, 0, rate) % 2**31
        scan = simulate_series(cut, acceleration=rate, seed=seed, pattern=PATTERNS[k % len(PATTERNS)])
        made.append(replace(with_maps(scan), name=name))
    return made


def with_maps(scan: upmri.Scan) -> upmri.Scan:
    """The scan with estimated maps, and the reference that belongs to them."""
    assert scan.maps is not None and scan.reference is not None  # noqa: PT018
    kspace, mask = average_over_time(scan, [0] * len(scan))
    maps = find_maps(kspace, mask).expand_as(scan.maps)
    return replace(scan, maps=maps, reference=(maps.conj() * scan.maps).sum(1) * scan.reference)


def bart(scan: upmri.Scan, lam: float) -> Tensor:
    """Locally low rank by BART, blocks of 8×8 pixels, 60 iterations."""
    assert scan.maps is not None
    frames, coils, h, w = scan.kspace.shape
    kspace = scan.kspace.numpy().transpose(2, 3, 1, 0).reshape(h, w, 1, coils, *[1] * 6, frames)
    with tempfile.TemporaryDirectory() as folder:
        for name, array in (("kspace", kspace), ("maps", scan.maps[0].numpy().transpose(1, 2, 0)[:, :, None])):
            (Path(folder) / f"{name}.hdr").write_text("# Dimensions\n" + " ".join(map(str, array.shape)) + "\n")
            array.ravel("F").tofile(Path(folder) / f"{name}.cfl")
        command = ["bart", "pics", "-S", "-d0", "-i60", "-b8", f"-RL:3:3:{lam}", "kspace", "maps", "image"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        image = np.fromfile(Path(folder) / "image.cfl", np.complex64).reshape(h, w, frames, order="F")
    return torch.from_numpy(image.transpose(2, 0, 1).copy())


def reconstruct(scan: upmri.Scan, method: str, device: str, **settings: Any) -> Tensor:
    """Images (frame, H, W)."""
    if method == "BART llr":
        return bart(scan, settings.get("lam", BART[round(scan.meta["simulated"]["acceleration"], 1)]))
    return upmri.reconstruct(scan, method, device=device, **METHODS[method] | settings).image


def score(image: Tensor, reference: Tensor) -> dict[str, float]:
    """PSNR and SSIM, means over frames, and PSNR of the heart, all of magnitudes; the peak is that of the series."""
    image, reference = image.abs(), reference.abs()
    moving = reference.std(0)
    heart = moving > moving.flatten().quantile(1 - HEART)
    error = (image - reference).square()
    peak = reference.max().square()
    return {
        "psnr": float(10 * (peak / error.mean()).log10()),
        "heart": float(10 * (peak / error[:, heart].mean()).log10()),
        "frame psnr": float(psnr(image, reference).mean()),
        "ssim": float(ssim(image, reference).mean()),
    }


def tune(part: str, rates: list[float], series: int, rows: int) -> None:
    """Print the mean PSNR of BART for each λ."""
    for rate in rates:
        made = scans(part, rate, series, rows)
        for lam in TRIED:
            found = [score(bart(scan, lam), scan.reference) for scan in made]  # type: ignore[arg-type]
            print(f"{rate:g}× λ = {lam}: " + ", ".join(f"{key} {mean(found, key):.2f}" for key in ("psnr", "heart")))


def mean(found: list[dict[str, float]], key: str) -> float:
    """Mean over series."""
    return sum(one[key] for one in found) / len(found)


def profile_picture(kept: dict[str, Tensor], reference: Tensor, path: Path) -> None:
    """One image column over time, for each method, at the column through the heart that varies most."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    reference = reference.abs()
    moving = reference.std(0)
    column = int(moving.sum(0).argmax())
    shown = {"reference": reference} | {name: image.abs() for name, image in kept.items()}
    heights = [1.7 * reference.shape[1] / reference.shape[2], 2.8]
    figure, axes = plt.subplots(
        2,
        len(shown),
        figsize=(1.7 * len(shown), sum(heights) + 0.5),
        constrained_layout=True,
        gridspec_kw={"height_ratios": heights},
    )
    white = float(reference.quantile(0.999)) if reference.numel() < 2**24 else float(reference.max())
    for (name, image), (top, bottom) in zip(shown.items(), axes.T, strict=True):
        top.imshow(image[0], cmap="gray", vmin=0, vmax=white)
        top.axvline(column, color="yellow", linewidth=0.5)
        top.set_title(name, fontsize=8)
        bottom.imshow(image[:, :, column].repeat(2, 1).T, cmap="gray", vmin=0, vmax=white, aspect="auto")
        for one in (top, bottom):
            one.set_xticks([])
            one.set_yticks([])
    axes[0, 0].set_ylabel("first frame", fontsize=8)
    axes[1, 0].set_ylabel("column over time, two beats", fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="test")
    parser.add_argument("--rates", type=float, nargs="+", default=[8.0, 12.0])
    parser.add_argument("--series", type=int, default=3, help="series for each rate, 0 for all")
    parser.add_argument("--rows", type=int, default=96, help="middle rows of the images that are simulated, 0 for all")
    parser.add_argument("--only", nargs="+", default=list(METHODS))
    parser.add_argument("--model", default=None, help="weights of cine")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tune", action="store_true", help="choose λ of BART")
    parser.add_argument("--picture", type=Path, help="file for the picture of a column over time")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "cine.json")
    given = parser.parse_args()
    if given.tune:
        tune(given.part, given.rates, given.series, given.rows)
        return
    methods = [name for name in METHODS if name in given.only and (name != "BART llr" or shutil.which("bart"))]
    results = json.loads(given.output.read_text()) if given.output.exists() else {}
    for rate in given.rates:
        made = scans(given.part, rate, given.series, given.rows)
        kept: dict[str, Tensor] = {}
        for name in methods:
            settings = {"model": given.model} if name == "cine" and given.model else {}
            found, start = [], time.perf_counter()
            for scan in made:
                image = reconstruct(scan, name, given.device, **settings)
                found.append(score(image, scan.reference))  # type: ignore[arg-type]
                kept.setdefault(name, image)
            seconds = (time.perf_counter() - start) / len(made)
            entry = {key: round(mean(found, key), 3) for key in found[0]}
            results[f"{given.part} {rate:g}x {name}"] = entry | {
                "series": len(made), "rows": given.rows, "seconds": round(seconds, 1), "each": found
            }  # fmt: skip
            print(f"{rate:g}× {name:12} " + "  ".join(f"{key} {value:.2f}" for key, value in entry.items()), flush=True)
            given.output.write_text(json.dumps(results, indent=1) + "\n")
            record(given.output, ["cardiac", given.model or "cine"], given.device)
        if given.picture is not None and rate == given.rates[0]:
            assert made[0].reference is not None
            profile_picture({name: kept[name] for name in PICTURED if name in kept}, made[0].reference, given.picture)


if __name__ == "__main__":
    main()
