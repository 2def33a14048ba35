"""Draws and standard deviations of `upmri` and of diffusion models, on people who are not in the training data.

The scans of `people.py`, 4× and 8×, with the true maps and with ESPIRiT maps. For every group, rate and kind of maps:

- bands: half the mean squared difference of two draws over the squared error of the mean, by band of |k| (below 8, 8 to
  16, 16 to 32, 32 to 48, above; 1 is right), and the same on lines that were not input, without the truth;
- one draw: mean squared error of the mean of all draws over that of one of them, in dB (−3.0 is right for the
  posterior mean, (1 + 1/n)/2 for the mean of n draws: −2.3 for 6);
- within two: share of pixels whose error (of the magnitude) is within two deviations (95 % is right);
- rank correlation of deviation and error over the pixels of a slice.

With estimated maps the true image is Σ_c conj(S_c) (S_c x₀)_true, which has their phase. The gain of the bootstrap was
fitted on validation people without truth (`calibrate.py`). `ddnm` and `dds` have the settings that were best on
validation people. Their image is the mean of the n draws, whose error has 1 + 1/n of the variance: their spread is
multiplied by that, and the deviation around the mean divided by √(1 − 1/n).

    UPMRI_DATA=… python benchmarks/uncertainty.py [--slices 8] [--device cuda] [--methods upmri flow ddnm dds]

`uncertainty_figures.py` draws the pictures, from the results.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import upmri
from people import GROUPS, RESULTS, scans
from provenance import record
from upmri.core.device import pick_device
from upmri.learning.bootstrap import deviation
from upmri.learning.draw_test import BandTest, on_held_out, on_sampled, on_truth
from upmri.methods.ddnm import Ddnm
from upmri.methods.dds import Dds
from upmri.methods.upmri import Upmri
from upmri.physics.problem import Problem
from upmri.weights.files import load_prior

DEVIATIONS = [k / 4 for k in range(1, 15)]
MODELS = Path(__file__).parent.parent / "models"
# The diffusion models, with the settings of configs/benchmark/means.yaml.
DIFFUSION = {"ddnm": partial(Ddnm, damping=0.03), "dds": partial(Dds, weight=10.0)}
Draw = Callable[[Problem], tuple[Tensor, Tensor]]


def sampler(method: str, kind: str, options: argparse.Namespace, count: int) -> Draw | None:
    """Mean and draws of a problem by a method; None where it has no weights for this kind of images."""
    if method in ("upmri", "flow"):
        prior = load_prior(options.models.get(kind, kind), options.device)
        whole = Upmri(model=prior, samples=count, steps=options.steps if method == "flow" else None)

        def around(problem: Problem) -> tuple[Tensor, Tensor]:
            found = whole(problem)
            return found.image, found.samples

        return around
    file = options.models.get(f"{kind}-ddnm", MODELS / f"{kind}-ddnm.safetensors")
    if not Path(file).exists():
        return None
    prior = load_prior(file, options.device)
    single = DIFFUSION[method](model=prior)

    def alone(problem: Problem) -> tuple[Tensor, Tensor]:
        seeds = [[seed * 1000 + j for seed in problem.seeds] for j in range(count)]
        drawn = torch.stack([single.reconstruct(problem.with_seeds(each)) for each in seeds])
        return drawn.mean(0), drawn

    return alone


def prepare(found: list[upmri.Scan], maps: str, device: torch.device, first: int) -> tuple[Problem, Tensor, Tensor]:
    """Problem, the true image as seen through its maps, and its magnitude, (slice, H, W)."""
    given = found if maps == "true" else [replace(scan, maps=None) for scan in found]
    problem = Problem.from_scans(given, device).with_seeds(range(first, first + len(found)))
    true_maps, image = (torch.cat([getattr(scan, name) for scan in found]).to(device) for name in ("maps", "reference"))
    scale = problem.scale[:, None, None]
    seen = (problem.operator.maps.conj() * true_maps).sum(1) * image / scale
    return problem, seen, image.abs() / scale


def ranks(values: Tensor) -> Tensor:
    """Ranks in ascending order."""
    return values.argsort().argsort().double()


def assess(mean: Tensor, drawn: Tensor, magnitude: Tensor, inside: Tensor, own: int) -> dict[str, Any]:
    """Results of one slice: mean and draws (H, W) and (count, H, W), the pixels of the object; ``own`` as in `cell`."""
    error = (mean.abs() - magnitude).abs()[inside]
    std = deviation(drawn[:, None], mean[None])[0][inside] * (1 / (1 - 1 / own) if own else 1) ** 0.5
    squared = [(image.abs() - magnitude).square().mean() for image in (drawn.mean(0), *drawn)]
    return {
        "within": [(error <= k * std).double().mean().item() for k in DEVIATIONS],
        "rank correlation": torch.corrcoef(torch.stack([ranks(error), ranks(std)]))[0, 1].item(),
        "one draw": 10 * torch.log10(squared[0] / torch.stack(squared[1:]).mean()).item(),
        "psnr": 10 * torch.log10(magnitude.max().square() / (mean.abs() - magnitude).square().mean()).item(),
    }


def cell(
    draw: Draw, few: Draw, found: list[upmri.Scan], maps: str, own: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Results of the slices of a group at one rate, as their mean; ``own`` draws are averaged to the image, or 0."""
    tests, on_lines, slices = [], [], []
    for first in range(0, len(found), options.batch):
        problem, truth, magnitude = prepare(found[first : first + options.batch], maps, options.device, first)
        mean, drawn = draw(problem)
        tests.append(on_truth(mean, drawn, truth, problem.unknowns))
        inside = problem.operator.support
        slices += [assess(mean[i], drawn[:, i], magnitude[i], inside[i], own) for i in range(len(problem))]
        if first < options.lines:
            pair = (on_held_out(few, problem.with_seeds(problem.seeds)), on_sampled(few, problem))
            on_lines.append(pair)
    whole = BandTest.join(tests)
    result = {"bands": rounded(whole.ratio * (1 + 1 / own if own else 1)), "outer ranks": rounded(whole.outer_ranks)}
    if on_lines:
        for name, parts in zip(("held-out lines", "sampled lines"), zip(*on_lines, strict=True), strict=True):
            result[name] = rounded(BandTest.join(parts).ratio)
    columns = {name: torch.tensor([each[name] for each in slices]).double() for name in slices[0]}
    within = columns.pop("within")
    two = within[:, DEVIATIONS.index(2)]
    result |= {name: round(values.mean().item(), 3) for name, values in columns.items()}
    return result | {
        "within two": round(two.mean().item(), 4),
        "least within two": round(two.min().item(), 3),
        "within": rounded(within.mean(0)),
    }


def rounded(values: Tensor) -> list[float]:
    """Numbers for JSON."""
    return [round(value, 3) for value in values.tolist()]


def weights_of(options: argparse.Namespace) -> set[str]:
    """Weights of the shipped priors, and of the samplers where they take part."""
    kinds = {GROUPS[group][0] for group in options.groups}
    names = kinds | {f"{kind}-ddnm" for kind in kinds if DIFFUSION.keys() & set(options.methods)}
    files = {name: Path(options.models.get(name, MODELS / f"{name}.safetensors")) for name in names}
    return {
        str(files[name]) if files[name].exists() else name for name in names if name in kinds or files[name].exists()
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown of all results."""
    columns = (
        "method", "maps", "group", "rate", "slices", "bands: < 8, 8–16, 16–32, 32–48, > 48", "on held-out lines",
        "on sampled lines", "one draw (dB)", "within two", "rank correlation", "PSNR (dB)",
    )  # fmt: skip
    text = f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|\n"
    for row in rows:
        kinds = (row["bands"], row.get("held-out lines"), row.get("sampled lines"))
        bands = [" ".join(f"{value:.2f}" for value in kind) if kind else "–" for kind in kinds]
        cells = (
            row["method"], row["maps"], row["group"].replace("_", " "), f"{row['rate']}×", row["slices"], *bands,
            f"{row['one draw']:.2f}", f"{100 * row['within two']:.1f} %", f"{row['rank correlation']:.2f}",
            f"{row['psnr']:.2f}",
        )  # fmt: skip
        text += f"| {' | '.join(map(str, cells))} |\n"
    return text


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=8, help="slices per group and rate, 0 for all")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--methods", nargs="*", default=["upmri", "flow"], choices=["upmri", "flow", "ddnm", "dds"])
    parser.add_argument("--steps", type=int, default=8, help="evaluations of a draw along the flow")
    parser.add_argument("--lines", type=int, default=0, help="slices that are tested on lines, too, per group and rate")
    parser.add_argument("--line-samples", type=int, default=4, help="draws of that test")
    parser.add_argument("--part", default="test")
    parser.add_argument("--groups", nargs="*", default=list(GROUPS))
    parser.add_argument("--rates", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--maps", nargs="*", default=["espirit", "true"])
    parser.add_argument("--batch", type=int, default=4, help="slices of one call")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="processes that simulate")
    parser.add_argument(
        "--model", nargs="*", default=[], metavar="NAME=FILE", help="other weights: brain, cardiac, brain-ddnm, …"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "uncertainty.json")
    options = parser.parse_args()
    options.device, options.models = pick_device(options.device), dict(pair.split("=", 1) for pair in options.model)
    stored = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows: list[dict[str, Any]] = [row for row in stored if row["method"] not in options.methods]
    with torch.no_grad():
        for group in options.groups:
            for rate in options.rates:
                found = scans(group, options.part, rate, options.slices, "true", options.workers)
                for maps in options.maps:
                    for method in options.methods:
                        start = time.perf_counter()
                        kind = GROUPS[group][0]
                        draw = sampler(method, kind, options, options.samples)
                        few = sampler(method, kind, options, options.line_samples)
                        if draw is None or few is None:
                            print(f"no weights of {method} for {group}", flush=True)
                            continue
                        row = {"method": method, "maps": maps, "group": group, "rate": rate, "slices": len(found)}
                        row["samples"] = options.samples
                        own = options.samples if method in DIFFUSION else 0
                        row |= cell(draw, few, found, maps, own, options)
                        row["seconds"] = round(time.perf_counter() - start)
                        rows.append(row)
                        print(json.dumps({key: row[key] for key in row if key != "within"}), flush=True)
                        result = {"part": options.part, "deviations": DEVIATIONS}
                        options.out.write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")
                        options.out.with_suffix(".md").write_text(table(rows))
                        record(options.out, sorted(weights_of(options)), str(options.device))


if __name__ == "__main__":
    main()
