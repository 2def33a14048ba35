"""Quality of `upmri` and `upmri-paper` over steps T, conjugate gradient iterations k and λ, at 4× and 8×.

Simulated scans of T2 heads of test people, ESPIRiT maps, σ₀ = 0.01.

- T: images that `upmri` draws along the flow, single draws and their mean, beside the posterior mean, which has no T;
  Algorithm 1 as published and without noise in the unmeasured subspace, with k = 30.
- k: Algorithm 1 in both forms, with T = 10. `upmri` solves exactly and has no k.
- λ: `upmri` and `sense` have λ ∝ σ₀^1.5, so both get a σ₀ that is wrong by a factor. `upmri-paper` has no λ.

Every result is saved at once, and not computed again for the same slices and weights.

    UPMRI_DATA=… python benchmarks/sweeps.py [--slices 6] [--device auto] [--no-figures]
    python benchmarks/sweeps.py --redraw
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import upmri
from people import RESULTS, mean
from provenance import record
from upmri.core.device import pick_device
from upmri.evaluation.benchmark.cases import Task
from upmri.evaluation.benchmark.plan import Group
from upmri.evaluation.metrics import psnr, ssim
from upmri.inference.choice import build_method
from upmri.methods.base import Method
from upmri.physics.problem import Problem
from upmri.training.selection import select
from upmri.weights.files import load_prior

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
MODELS = {"upmri": "brain", "upmri-paper": str(ROOT / "models" / "brain-upmri-paper.safetensors")}
RATES = (4, 8)
STEPS, ITERATIONS, FACTORS = (2, 5, 10, 20, 50), (10, 20, 30, 40, 50), (0.25, 0.5, 1, 2, 4)
DRAWS, DRAWN = 2, (2, 5, 10)
METRICS = (psnr, ssim)
# 16 bits, the default on accelerators, would change PSNR by 0.01 dB.
EXACT = {"upmri": {"precision": "fp32"}}

Points = dict[float, dict[str, Any]]
"""Points of a curve: position on the axis → method, settings, and the factor of its σ₀."""


def point(method: str, noise_factor: float = 1, **settings: Any) -> dict[str, Any]:
    """A method with its settings, and the factor by which its σ₀ is wrong."""
    return {"method": method, "settings": settings, "noise_factor": noise_factor}


def paper(null_noise: bool, steps: int = 10, iterations: int = 30) -> dict[str, Any]:
    """Algorithm 1 with all settings, so that the point that two sweeps share has one name."""
    return point("upmri-paper", null_noise=null_noise, steps=steps, iterations=iterations)


def drawn(steps: int) -> dict[str, Any]:
    """Images drawn along the flow."""
    return point("upmri", samples=DRAWS, steps=steps)


# Figure → (label of its axis, curve → (points, name of their score)).
CURVES: dict[str, tuple[str, dict[str, tuple[Points, str]]]] = {
    "steps": (
        "steps T",
        {
            "upmri, posterior mean (no T)": ({t: point("upmri") for t in STEPS}, "psnr"),
            f"upmri, mean of {DRAWS} draws": ({t: drawn(t) for t in DRAWN}, "psnr"),
            "upmri, one draw": ({t: drawn(t) for t in DRAWN}, "one psnr"),
            "upmri-paper, no null-space noise": ({t: paper(False, steps=t) for t in STEPS}, "psnr"),
            "upmri-paper, as published": ({t: paper(True, steps=t) for t in STEPS}, "psnr"),
        },
    ),
    "iterations": (
        "conjugate gradients k",
        {
            "upmri-paper, no null-space noise": ({k: paper(False, iterations=k) for k in ITERATIONS}, "psnr"),
            "upmri-paper, as published": ({k: paper(True, iterations=k) for k in ITERATIONS}, "psnr"),
        },
    ),
    "noise": (
        "assumed σ₀ / true σ₀, λ ∝ (assumed σ₀)$^{1.5}$",
        {
            "upmri": ({f: point("upmri", f) for f in FACTORS}, "psnr"),
            "sense": ({f: point("sense", f) for f in FACTORS}, "psnr"),
        },
    ),
}


@cache
def scans(rate: float, slices: int) -> list[upmri.Scan]:
    """Scans of the T2 heads, as in the benchmark."""
    group = Group(name="T2 head", images=("$UPMRI_DATA/anatomies/brain_t2_head",), part="test", limit=slices)
    return [Task(at, group, rate, "espirit").make() for at in select(group)]


@torch.no_grad()
def score(found: list[upmri.Scan], method: Method, noise_factor: float, device: torch.device) -> dict[str, list[float]]:
    """PSNR and SSIM of each slice; for draws, those of their mean, and the average over single draws."""
    problems = [Problem.from_scan(replace(scan, noise=noise_factor * scan.noise), device) for scan in found]
    # Not `reconstruct`, which would also test the weights on held-out lines of every scan.
    results = [method(problem) for problem in problems]
    reference = torch.cat([problem.reference for problem in problems]).cpu()
    if results[0].samples is None:
        scores = {f.__name__: f(torch.cat([result.image for result in results]).cpu(), reference) for f in METRICS}
    else:
        samples = torch.cat([result.samples for result in results], 1).cpu()
        scores = {f.__name__: f(samples.mean(0), reference) for f in METRICS}
        scores |= {f"one {f.__name__}": torch.stack([f(one, reference) for one in samples]).mean(0) for f in METRICS}
    return {name: [round(value, 4) for value in values.tolist()] for name, values in scores.items()}


def work() -> dict[str, dict[str, Any]]:
    """All different points at every rate, by name."""
    points = [at for _, curves in CURVES.values() for points, _ in curves.values() for at in points.values()]
    return {name_of(at, rate): at | {"rate": rate} for at in points for rate in RATES}


def name_of(wanted: dict[str, Any], rate: float) -> str:
    """Name of a point at a rate."""
    return json.dumps([rate, wanted["method"], wanted["settings"], wanted["noise_factor"]], sort_keys=True)


def measure(path: Path, options: argparse.Namespace) -> None:
    """Measure all points that the file does not have, or has for other slices or weights."""
    device = pick_device(options.device)
    files = {method: getattr(options, method.replace("-", "_")) for method in MODELS if method in options.only}
    priors = {method: load_prior(model, device) for method, model in files.items()}
    todo = work()
    rows = {name: row for name, row in read(path).items() if name in todo}
    for name, wanted in todo.items():
        method = wanted["method"]
        if method not in options.only:
            continue
        facts = wanted | {"slices": options.slices, "weights": priors[method].digest if method in priors else None}
        if name in rows and facts.items() <= rows[name].items():
            continue
        found, start = scans(wanted["rate"], options.slices), time.perf_counter()
        built = build_method(method, **wanted["settings"], model=priors.get(method), **EXACT.get(method, {}))
        scores = score(found, built, wanted["noise_factor"], device)
        rows[name] = facts | scores
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows.values())
        path.write_text(f'{{"group": "T2 head", "part": "test", "rows": [\n{lines}\n]}}\n')
        record(path, files.values(), options.device)
        shown = {key: mean(values) for key, values in scores.items()}
        print(f"{name} {json.dumps(shown)} {time.perf_counter() - start:.0f} s", flush=True)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Saved results, by name."""
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return {name_of(row, row["rate"]): row for row in rows}


def draw(path: Path, folder: Path) -> None:
    """Draw one figure per axis, with one panel per rate; missing points are left out."""
    from upmri.evaluation.plots import curves

    rows = read(path)
    for name, (xlabel, wanted) in CURVES.items():
        panels = {
            f"T2 head, {rate}×": {
                label: {x: rows[key][score] for x, at in points.items() if (key := name_of(at, rate)) in rows}
                for label, (points, score) in wanted.items()
            }
            for rate in RATES
        }
        print(curves(panels, folder / f"sweeps_{name}.png", xlabel=xlabel, log=name != "iterations"))


def main() -> None:
    """Measure, print, save and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=6, help="slices, evenly spread over the test people")
    parser.add_argument("--only", nargs="*", default=["sense", *MODELS], help="methods to run")
    parser.add_argument("--upmri", default=MODELS["upmri"], metavar="MODEL", help="weights of upmri")
    parser.add_argument("--upmri-paper", default=MODELS["upmri-paper"], metavar="MODEL", help="weights of upmri-paper")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--redraw", action="store_true", help="only draw the saved results")
    parser.add_argument("--no-figures", action="store_true", help="only measure, without matplotlib")
    parser.add_argument("--out", type=Path, default=RESULTS / "sweeps.json")
    parser.add_argument("--figures", type=Path, default=FIGURES)
    options = parser.parse_args()
    if not options.redraw:
        measure(options.out, options)
    if not options.no_figures:
        draw(options.out, options.figures)


if __name__ == "__main__":
    main()
