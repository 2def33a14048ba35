"""Pictures of `uncertainty.py`: bands of k-space, from its results, and draws of a small brain.

python benchmarks/uncertainty_figures.py [--results benchmarks/results/uncertainty.json] [--out docs/figures]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import upmri

RESULTS = Path(__file__).parent / "results" / "uncertainty.json"
BANDS = ("< 8", "8–16", "16–32", "32–48", "> 48")
FIGURES = Path(__file__).parent.parent / "docs" / "figures"


def bands(result: dict[str, Any], path: Path) -> None:
    """Draw the spread over the error energy by band, one line for each group, rate and kind of maps."""
    methods = list(dict.fromkeys(row["method"] for row in result["rows"]))
    fig, panels = plt.subplots(
        1, len(methods), figsize=(3 * len(methods), 3.2), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, method in zip(panels[0], methods, strict=True):
        axes.axhspan(0.5, 1.6, color="0.9", zorder=0)
        axes.axhline(1, color="0.6", zorder=0)
        for row in result["rows"]:
            if row["method"] == method:
                style = "-" if row["rate"] == 4 else "--"
                axes.plot(BANDS, row["bands"], style, color="C0" if row["maps"] == "true" else "C1", linewidth=1)
        axes.set(title=method, xlabel="|k|", yscale="log", ylim=(0.005, 5))
    panels[0, 0].set_ylabel("spread over error energy")
    fig.savefig(path, dpi=120)


def draws(path: Path) -> None:
    """Draw the image, three draws less the image, the deviation and the error, of a small brain at 8×."""
    scan = upmri.simulate(upmri.demo.brain()[1], acceleration=8)
    rec = upmri.reconstruct(replace(scan, maps=None), samples=16)
    top = 3 * rec.std[rec.std > 0].mean().item()
    magnitude = rec.image.abs()
    pictures = [(magnitude, "image", 0.0, magnitude.max().item(), "gray")]
    pictures += [(rec.samples[j].abs() - magnitude, f"draw {j + 1} − image", -top, top, "RdBu") for j in range(3)]
    pictures += [
        (magnitude - scan.reference.abs(), "error", -top, top, "RdBu"),
        (rec.std, "deviation", 0.0, top, "inferno"),
    ]
    fig, axes = plt.subplots(2, 3, figsize=(8, 6), layout="constrained")
    for place, (values, title, low, high, colours) in zip(axes.flat, pictures, strict=True):
        place.imshow(values[0].numpy(), vmin=low, vmax=high, cmap=colours)
        place.set_title(title, fontsize=9)
        place.set_axis_off()
    fig.savefig(path, dpi=120)


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=FIGURES)
    options = parser.parse_args()
    draws(options.out / "draws.png")
    result = json.loads(options.results.read_text())
    bands(result, options.out / "draws_bands.png")


if __name__ == "__main__":
    main()
