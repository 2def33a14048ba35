"""Lesions at 4×, 6× and 8×: what every method keeps of their contrast, how well it can be detected, and deviations.

FLAIR of people with multiple sclerosis (`brain_flair_ms`), with simulated coils, phase, lines and noise (16 coils,
σ₀ = 0.01, ESPIRiT maps of each undersampled scan).

- Synthetic lesions: 25 in a slice, one of each diameter and contrast, at random smooth places. Each slice is
  reconstructed with and without them, with the same coils, lines and noise.
- Real lesions: bright focal spots of the image by an automatic rule (`upmri.evaluation.focal_spots`), in a few slices
  for every method, in more for two.
- Deviations: those of `upmri` with `samples=8`, on the first `--deviations` slices of each.

Every result is saved at once in `--work` and not computed again. The tables and figures are made from there.

    UPMRI_DATA=… UPMRI_MODELS=models python benchmarks/lesions.py [--part test] [--slow] [--device auto]
    UPMRI_DATA=… python benchmarks/lesions.py --redraw
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import upmri
from lesions_cases import DIAMETERS, KINDS, Case, choose, make_case
from upmri.evaluation.benchmark.plan import Group
from upmri.evaluation.lesion_measures import contrast_kept, disc_and_ring, local_contrast, responses, templates
from upmri.evaluation.lesions import Lesion

RATES = (4, 6, 8)
FULL = "all lines"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "zero-filled": ("zero-filled", {}),
    "sense": ("sense", {}),
    "cg-sense": ("cg-sense", {}),
    "l1-wavelet": ("l1-wavelet", {}),
    **{
        name: (name, {"model": f"brain-{name}"})
        for name in ("modl", "varnet", "ssdu", "weighted-ssdu", "robust-ssdu", "rei", "moi", "ensure")
    },
    "upmri, 588 steps": ("upmri", {"model": "brain-upmri-short"}),
    "upmri": ("upmri", {"model": "brain"}),
    "upmri, adapted": ("upmri", {"model": "brain", "adapt": True}),
}
# Drawn step by step, 20 to 100 evaluations for an image, with the settings of configs/benchmark/samplers.yaml.
SLOW: dict[str, tuple[str, dict[str, Any]]] = {
    "ddnm": ("ddnm", {"model": "brain-ddnm", "damping": 0.03}),
    "dds": ("dds", {"model": "brain-ddnm", "weight": 10.0}),
    "ot-ode": ("ot-ode", {"model": "brain-ot-ode", "start": 0.3, "strength": 2.0}),
    "pnp-flow": ("pnp-flow", {"model": "brain-ot-ode", "alpha": 0.0}),
    "gtf2m": ("gtf2m", {"model": "brain-gtf2m"}),
    "upmri-paper": ("upmri-paper", {"model": "brain-upmri-paper"}),
}
EVERY = ("sense", "upmri")  # also reconstruct further slices with bright spots
SAMPLES = 8
SHOWN = ("zero-filled", "sense", "l1-wavelet", "modl", "upmri")  # images that figures need


@cache
def _templates(shape: tuple[int, int], lesions: tuple[Lesion, ...]) -> tuple[Tensor, Tensor]:
    """Templates of the lesions, and of all diameters at all their places."""
    every = [replace(lesion, diameter=d) for lesion in lesions for d in DIAMETERS]
    return templates(shape, lesions), templates(shape, every)


def measure_synthetic(case: Case, present: Tensor, absent: Tensor) -> dict[str, Any]:
    """Contrast kept, local contrasts in the image and in truth, and responses without lesions over the background."""
    own, every = _templates(tuple(present.shape), tuple(case.lesions))
    background = torch.tensor([lesion.background for lesion in case.lesions]).double()
    truth = case.truth(lesions=True)
    places = [(lesion.row, lesion.column, lesion.diameter) for lesion in case.lesions]
    return {
        "kind": [[lesion.diameter, lesion.contrast] for lesion in case.lesions],
        "place": [[lesion.row, lesion.column] for lesion in case.lesions],
        "kept": _rounded(contrast_kept(present, absent, own, case.lesions)),
        "local": _rounded(torch.tensor([local_contrast(present, *at) for at in places]) / background),
        "local_true": _rounded(torch.tensor([local_contrast(truth, *at) for at in places]) / background),
        "absent": _rounded(responses(absent, every).reshape(-1, len(DIAMETERS)) / background[:, None]),
    }


def measure_real(case: Case, image: Tensor) -> dict[str, Any]:
    """Contrast of bright spots, disc minus ring, in the image over that in truth."""
    truth = case.truth(lesions=False)
    kept = [local_contrast(image, *spot[:3]) / local_contrast(truth, *spot[:3]) for spot in case.spots]
    return {"spots": [list(spot[:3]) for spot in case.spots], "kept": _rounded(torch.tensor(kept))}


def measure_deviations(case: Case, rec: upmri.Reconstruction, without: upmri.Reconstruction | None) -> dict[str, Any]:
    """At each lesion: pixels of its disc, those with an error within two deviations, mean error and mean deviation.

    ``without`` is the reconstruction of the scan without lesions, whose deviation at the same pixels is given, too.
    """
    truth = case.truth(lesions=without is not None)
    error, std = rec.image[0].abs() - truth, rec.std[0]
    places = [spot[:3] for spot in case.spots]
    if without is not None:
        places = [(lesion.row, lesion.column, lesion.diameter) for lesion in case.lesions]
    inside = case.full.maps.abs().square().sum(1)[0] > 0
    rows = []
    for place in places:
        disc, _ = disc_and_ring(tuple(truth.shape), *place)
        row = [int(disc.sum()), int((error[disc].abs() <= 2 * std[disc]).sum()), error[disc].mean(), std[disc].mean()]
        rows.append([*row, 0.0 if without is None else without.std[0][disc].mean()])
    return {
        "lesions": [_rounded(torch.tensor(row)) for row in rows],
        "object": round((error[inside].abs() <= 2 * std[inside]).double().mean().item(), 4),
    }


def _rounded(values: Tensor) -> list[Any]:
    return [_rounded(row) if row.ndim else round(row.item(), 4) for row in values]


class Work:
    """Results of finished parts in a folder: measures as JSON lines, images for figures as NumPy files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "rows.jsonl"
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.rows: dict[str, dict[str, Any]] = {row["key"]: row for row in map(json.loads, lines)}

    def add(self, key: list[Any], values: dict[str, Any]) -> None:
        """Save the measures of a part."""
        row = {"key": " | ".join(map(str, key)), **values}
        self.rows[row["key"]] = row
        with self.file.open("a") as out:
            out.write(json.dumps(row) + "\n")

    def has(self, *key: Any) -> bool:
        """Whether a part is finished."""
        return " | ".join(map(str, key)) in self.rows

    def keep(self, name: str, **images: Tensor) -> None:
        """Save images for figures."""
        np.savez(self.folder / f"{name}.npz", **{key: image.numpy() for key, image in images.items()})


def run(options: argparse.Namespace, work: Work) -> None:
    """Measure all that is missing."""
    group = Group(name="FLAIR", images=("$UPMRI_DATA/anatomies/brain_flair_ms",), part=options.part)
    chosen = choose(group, options.slices, options.real, options.others)
    methods = METHODS | (SLOW if options.slow else {})
    methods = {name: methods[name] for name in options.only or methods}
    for at in dict.fromkeys(at for slices in chosen.values() for at in slices):
        case, where = make_case(at, group), f"{at.person} {at.index}"
        parts = [part for part, slices in chosen.items() if at in slices]
        if "synthetic" in parts and len(case.lesions) < len(KINDS):
            raise SystemExit(f"{where}: room for {len(case.lesions)} lesions only")
        for rate in RATES:
            scans = {there: case.scan(rate, lesions=there) for there in (False, True)[: 1 + ("synthetic" in parts)]}
            for label, (method, settings) in methods.items():
                if (parts == ["others"] and label not in EVERY) or all(
                    work.has(part, label, rate, where) for part in parts
                ):
                    continue
                start = time.perf_counter()
                images = {
                    there: upmri.reconstruct(scan, method, device=options.device, **settings).image[0]
                    for there, scan in scans.items()
                }
                _add(work, case, parts, label, rate, images)
                seconds = (time.perf_counter() - start) / len(scans)
                print(f"{where}, {rate}×, {label}: {seconds:.1f} s an image", flush=True)
            wanted = [part for part in parts if part != "others" and at in chosen[part][: options.deviations]]
            if not all(work.has("deviation", part, rate, where) for part in wanted):
                _deviations(work, case, wanted, rate, scans, options.device)
        if parts != ["others"] and not all(work.has(part, FULL, 1, where) for part in parts):
            images = {there: case.all_lines(lesions=there) for there in scans}
            _add(work, case, parts, FULL, 1, images)


def _add(work: Work, case: Case, parts: list[str], label: str, rate: int, images: dict[bool, Tensor]) -> None:
    where = f"{case.at.person} {case.at.index}"
    if label in (*SHOWN, FULL) and parts != ["others"]:
        work.keep(f"{where} {label} {rate}", **{f"lesions_{there}": x.abs() for there, x in images.items()})
    for part in parts:
        values = measure_synthetic(case, images[True], images[False]) if part == "synthetic" else None
        values = measure_real(case, images[False]) if values is None else values
        work.add([part, label, rate, where], {"part": part, "method": label, "rate": rate, "slice": where} | values)


def _deviations(
    work: Work, case: Case, parts: list[str], rate: int, scans: dict[bool, upmri.Scan], device: str
) -> None:
    where = f"{case.at.person} {case.at.index}"
    recs = {
        there: upmri.reconstruct(scan, "upmri", model="brain", samples=SAMPLES, device=device)
        for there, scan in scans.items()
    }
    work.keep(f"{where} deviation {rate}", **{f"lesions_{there}": rec.std[0] for there, rec in recs.items()})
    for part in parts:
        pair = (recs[True], recs[False]) if part == "synthetic" else (recs[False], None)
        values = measure_deviations(case, *pair)
        work.add(["deviation", part, rate, where], {"part": f"deviation {part}", "rate": rate, "slice": where} | values)


def main() -> None:
    """Measure, save, tabulate and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="val", help="val for settings, test to report")
    parser.add_argument("--slices", type=int, default=3, help="slices with synthetic lesions")
    parser.add_argument("--real", type=int, default=5, help="slices with bright spots")
    parser.add_argument(
        "--others", type=int, default=6, help=f"further slices with bright spots, {' and '.join(EVERY)}"
    )
    parser.add_argument("--deviations", type=int, default=3, help="slices of each for deviations")
    parser.add_argument("--slow", action="store_true", help="also methods that draw step by step")
    parser.add_argument("--only", nargs="*", help="names of methods to run, for trials")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("results/lesions"))
    parser.add_argument("--fresh", action="store_true", help="compute everything again")
    parser.add_argument("--redraw", action="store_true", help="only tables and figures")
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(options.work / options.part, ignore_errors=True)
    work = Work(options.work / options.part)
    if not options.redraw:
        run(options, work)
    from lesions_figures import draw
    from lesions_tables import write

    write(work, options.part, None if options.redraw else options.device)
    draw(work, options.part)


if __name__ == "__main__":
    main()
