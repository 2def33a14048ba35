"""The paper's trends over T and k: the published algorithm on noise-free data beside noisy ones, and on other scales.

Simulated scans of T2 heads. With noise, more conjugate gradients k amplify it; without, the published trend appears.
One table for each noise level: PSNR in dB over T (k = 30) and over k (T = 10), as published, without the noise in the
unmeasured subspace, and by a single evaluation; SENSE and `upmri` beside. Results are saved one by one and not computed
again.

    UPMRI_DATA=… python benchmarks/paper_trends.py [--slices 6] [--maps exact] [--only NAME …] [--model LABEL=FILE …]

Images peak at 1 for the weights `brain-upmri-paper`, and at 100 for `brain-upmri-paper-peak`; `--model` adds others.
`--only` computes the rows whose names begin so.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import upmri
from provenance import record
from upmri.core.device import pick_device
from upmri.evaluation.benchmark.cases import Task
from upmri.evaluation.benchmark.plan import Group
from upmri.evaluation.benchmark.text_tables import markdown_table
from upmri.evaluation.metrics import psnr
from upmri.inference.choice import build_method, complete
from upmri.physics.problem import Problem
from upmri.training.selection import select
from upmri.weights.files import load_prior

ROOT = Path(__file__).parents[1]
NOISE, RATES = (0.01, 0.0), (4.0, 8.0)
MODELS = {"peak 1": "brain-upmri-paper", "peak 100": "brain-upmri-paper-peak"}
STEPS, ITERATIONS = (2, 5, 10, 20, 50), (10, 30, 50)
FACTS = ("name", "noise", "rate", "slices", "maps", "part", "weights")
FORMS = {
    "as published": {"null_noise": True},
    "no null-space noise": {"null_noise": False},
    "one evaluation": {"single_evaluation": True},
}


def points(models: dict[str, str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name of a row → method and settings."""
    made: dict[str, tuple[str, dict[str, Any]]] = {"sense": ("sense", {}), "upmri": ("upmri", {"model": "brain"})}
    for label, file in models.items():
        for form, switch in FORMS.items():
            settings = [{"steps": 10, "iterations": k} for k in ITERATIONS]
            if form != "one evaluation":  # which has no T
                settings += [{"steps": t, "iterations": 30} for t in STEPS if t != 10]
            for one in settings:
                t = "" if form == "one evaluation" else f" T {one['steps']}"
                made[f"{label}, {form}{t} k {one['iterations']}"] = ("upmri-paper", {"model": file, **switch, **one})
    return made


def scans(noise: float, rate: float, options: argparse.Namespace) -> list[upmri.Scan]:
    """Simulated scans of the T2 heads of a part."""
    group = Group(
        name="T2 head",
        images=("$UPMRI_DATA/anatomies/brain_t2_head",),
        part=options.part,
        limit=options.slices,
        noise=noise,
    )
    return [Task(at, group, rate, options.maps).make() for at in select(group)]


@torch.no_grad()
def score(found: list[upmri.Scan], method: str, settings: dict[str, Any], device: torch.device) -> list[float]:
    """PSNR of each slice."""
    values = []
    for scan in found:
        problem = Problem.from_scan(scan, device)
        ready, _ = complete(build_method(method, **settings), problem)
        assert problem.reference is not None
        values.append(psnr(ready.reconstruct(problem).cpu(), problem.reference.cpu()).item())
    return values


def main() -> None:
    """Compute what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=6)
    parser.add_argument("--maps", choices=("exact", "espirit"), default="exact")
    parser.add_argument("--part", default="test")
    parser.add_argument("--model", nargs="+", default=[], metavar="LABEL=FILE")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "paper_trends.json")
    parser.add_argument("--noise", type=float, nargs="+", default=NOISE, help="σ₀ of the scans")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    options = parser.parse_args()
    models = {label: str(ROOT / "models" / f"{name}.safetensors") for label, name in MODELS.items()}
    models |= dict(text.split("=", 1) for text in options.model)
    stored = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows: dict[str, dict[str, Any]] = {json.dumps([row[fact] for fact in FACTS]): row for row in stored}
    todo = {name: point for name, point in points(models).items() if name.startswith(tuple(options.only))}
    for noise in options.noise:
        for rate in options.rates:
            found: list[upmri.Scan] = []
            for name, (method, settings) in todo.items():
                facts = facts_of(name, settings, noise, rate, options)
                key = json.dumps(list(facts.values()))
                if key not in rows:
                    found = found or scans(noise, rate, options)
                    values = score(found, method, settings, pick_device(options.device))
                    rows[key] = facts | {"psnr": [round(value, 4) for value in values]}
                    lines = ",\n".join(json.dumps(row) for row in rows.values())
                    options.out.write_text(f'{{"rows": [\n{lines}\n]}}\n')
                    record(options.out, ["brain", *models.values()], options.device)
    for noise in options.noise:
        table = []
        for name, (_, settings) in todo.items():
            keys = [json.dumps(list(facts_of(name, settings, noise, rate, options).values())) for rate in options.rates]
            values = [rows[key]["psnr"] for key in keys]
            table.append([name, *(f"{sum(v) / len(v):.2f}" for v in values)])
        print(f"### σ₀ = {noise:g}, {options.slices} T2 slices ({options.part}), maps: {options.maps}\n")
        print(markdown_table(["", *(f"PSNR {rate:g}×" for rate in options.rates)], table))


def facts_of(
    name: str, settings: dict[str, Any], noise: float, rate: float, options: argparse.Namespace
) -> dict[str, Any]:
    """All that a result depends on, weights by the hash of their content."""
    digest = load_prior(settings["model"]).digest if "model" in settings else None
    values = (name, noise, rate, options.slices, options.maps, options.part, digest)
    return dict(zip(FACTS, values, strict=True))


if __name__ == "__main__":
    main()
