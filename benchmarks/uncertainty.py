"""Calibration of the standard deviation of `upmri`: its errors on people who are not in the training data.

The scans of `quality.py`, with ESPIRiT maps. The factor of the deviation was fitted on held-out k-space lines of
validation people, without ground truth. Errors are those of the magnitude, over the pixels of the object; all slices
have the same weight. Results are the share of pixels within k deviations (95 % at k = 2 is right), the rank correlation
of deviation and error over the pixels of a slice, and a figure.

    UPMRI_DATA=… python benchmarks/uncertainty.py [--slices 12] [--samples 16]
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import torch
from torch import Tensor

import upmri
from quality import GROUPS, RESULTS, mean, scans

DEVIATIONS = [k / 4 for k in range(1, 15)]


def ranks(values: Tensor) -> Tensor:
    """Ranks in ascending order."""
    return values.argsort().argsort().double()


def assess(scan: upmri.Scan, model: str, samples: int, device: str) -> tuple[list[float], float, float]:
    """Shares within k deviations, rank correlation, and error over deviation (root mean square) of one slice."""
    rec = upmri.reconstruct(scan, "upmri", model=model, samples=samples, device=device)
    inside = scan.maps.abs().square().sum(1) > 0
    error = (rec.image.abs() - scan.reference.abs()).abs()[inside]
    deviation = rec.std[inside]
    shares = [(error <= k * deviation).double().mean().item() for k in DEVIATIONS]
    correlation = torch.corrcoef(torch.stack([ranks(error), ranks(deviation)]))[0, 1].item()
    return shares, correlation, (error.square().mean() / deviation.square().mean()).sqrt().item()


def figure(rows: list[dict], path: Path) -> None:
    """Draw the shares within k deviations for every group and rate, beside those of a normal distribution."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
    for row in rows:
        style = "-" if row["rate"] == 4 else "--"
        axes.plot(DEVIATIONS, row["within"], style, label=f"{row['group'].replace('_', ' ')}, {row['rate']}×")
    axes.plot(DEVIATIONS, [math.erf(k / math.sqrt(2)) for k in DEVIATIONS], "k:", label="normal distribution")
    axes.axhspan(0.92, 0.98, color="0.9", zorder=0)
    axes.axvline(2, color="0.8", zorder=0)
    axes.set(xlabel="deviations", ylabel="share of pixels within", xlim=(0, 3.5), ylim=(0, 1.01))
    axes.legend(fontsize=7, frameon=False)
    fig.savefig(path, dpi=120)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=12, help="slices per group and rate, 0 for all")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--part", default="test")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--model", nargs="*", default=[], metavar="NAME=FILE", help="other weights")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    models = dict(pair.split("=", 1) for pair in options.model)
    rows = []
    for group, (name, _) in GROUPS.items():
        for rate in (4, 8):
            found = scans(group, options.part, rate, options.slices, "espirit", options.workers)
            made = [assess(scan, models.get(name, name), options.samples, options.device) for scan in found]
            within = [mean(list(column)) for column in zip(*(shares for shares, _, _ in made), strict=True)]
            row = {
                "group": group,
                "rate": rate,
                "slices": len(found),
                "within two": within[DEVIATIONS.index(2)],
                "rank correlation": mean([correlation for _, correlation, _ in made]),
                "error over deviation": mean([ratio for _, _, ratio in made]),
                "within": within,
            }
            rows.append(row)
            print(json.dumps({key: value for key, value in row.items() if key != "within"}), flush=True)
    result = {"part": options.part, "samples": options.samples, "deviations": DEVIATIONS, "rows": rows}
    (options.out / "uncertainty.json").write_text(json.dumps(result, indent=1) + "\n")
    figure(rows, options.out / "uncertainty.png")


if __name__ == "__main__":
    main()
