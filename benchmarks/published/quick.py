"""A few rows of many tables once more, on the CPU, beside the stored ones: the same scans, seeds and weights.

What is compared one to one: slices of `sweeps.json` and, where it is stored, `brain-slices.csv`; draws of lines of the
brains in vivo; a series of `cine.json`; a volume; cells whose scans are few. Without `brain-slices.csv`, whole cells of
`cardiac.csv`. Every value is a PSNR in dB, or an energy in dB. Left out is what depends on the device by more than the
tolerance: methods that draw, the published algorithm, whose steps amplify rounding errors, and adaptation.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from statistics import mean
from typing import Any, NamedTuple

from published.methods_tables import value
from published.results import ROOT, MissingResultError, Results

TOLERANCE = 0.01
# Of numbers that are stored with two digits.
ROUNDED = TOLERANCE + 0.005


class Row(NamedTuple):
    """A number now and as it is stored, in dB."""

    name: str
    stored: float
    now: float
    tolerance: float = TOLERANCE

    @property
    def agrees(self) -> bool:
        """Whether the two differ by no more than the tolerance."""
        return abs(self.now - self.stored) <= self.tolerance


def sweeps(r: Results) -> Iterator[Row]:
    """Six T2 heads: `upmri` and `sense` with right and wrong σ₀."""
    import torch

    import sweeps as run
    from upmri.inference.choice import build_method
    from upmri.weights.files import load_prior

    points = [run.point(method, factor) for method in ("upmri", "sense") for factor in (0.5, 1, 2)]
    given = {"upmri": {"model": load_prior(run.MODELS["upmri"]), **run.EXACT["upmri"]}}
    for rate in run.RATES:
        scans = run.scans(rate, 6)
        for at in points:
            method = build_method(at["method"], **at["settings"], **given.get(at["method"], {}))
            now = run.score(scans, method, at["noise_factor"], torch.device("cpu"))["psnr"]
            stored = r.one("sweeps.json", "psnr", rate=rate, **at)
            name = f"T2 head, {rate}×, {at['method']}, σ₀ × {at['noise_factor']:g}"
            yield from (Row(f"{name}, slice {i}", a, b) for i, (a, b) in enumerate(zip(stored, now, strict=True)))


def benchmark(r: Results) -> Iterator[Row]:
    """Slices of every group with every method of one evaluation; without stored slices, cells of hearts."""
    from upmri.evaluation.benchmark import cases
    from upmri.evaluation.benchmark.plan import read_config
    from upmri.evaluation.metrics import evaluate
    from upmri.inference.reconstruct import reconstruct

    def psnr(task: Any, entry: Any) -> float:
        rec = reconstruct(task.make(), entry.method, seed=0, device="cpu", **entry.settings)
        return evaluate(rec)["psnr"]

    for name in ("brain", "cardiac"):
        config = read_config(ROOT / "configs" / "benchmark" / f"{name}.yaml", ("accelerations=[4,8]", "maps=[espirit]"))
        tasks = cases.tasks(config)
        plain = [entry for entry in config.entries if not entry.choices and "samples" not in entry.settings]
        if r.has(f"{name}-slices.csv"):
            where = {"maps": "espirit"}
            for group in config.groups:
                for rate in config.accelerations:
                    task = next(t for t in tasks if (t.group.name, t.acceleration) == (group.name, rate))
                    for entry in plain:
                        stored = r.all(f"{name}-slices.csv", "psnr", entry=entry.name, scan=task.key, **where)
                        if stored and r.all(f"{name}.csv", "evaluations", entry=entry.name)[0] <= 1:
                            yield Row(f"{task.key}, {entry.name}", stored[0], psnr(task, entry))
        elif name == "cardiac":
            for entry in (entry for entry in plain if entry.name in ("sense", "upmri")):
                now = [psnr(task, entry) for task in tasks if task.acceleration == 4]
                yield Row(f"heart, 4×, {entry.name}, mean of {len(now)}", value(r, entry.name, "heart", 4.0), mean(now))


def real_scans(r: Results) -> Iterator[Row]:
    """The first draw of lines of both brains in vivo at 4× and 8×."""
    import real_scans as run
    import upmri
    from upmri.evaluation.metrics import psnr

    entries = ("zero-filled", "sense", "l1-wavelet", "modl", "varnet", "ssdu", "weighted-ssdu", "rei", "upmri")
    for setting in run.settings([4.0, 8.0], ("phase",)):
        kspace, reference = setting.load()
        scan = setting.draw(kspace, 0)
        where = {"scan": setting.scan, "phase": setting.phase, "rate": setting.rate, "draw": 0}
        for entry in entries:
            method, given = run.ENTRIES[entry]
            image = upmri.reconstruct(scan, method, device="cpu", **given).image
            stored = r.one("real_scans.jsonl", "psnr", entry=entry, **where)
            yield Row(f"{setting.scan}, {setting.rate:g}×, draw 0, {entry}", stored, psnr(image, reference).item())


def cine(r: Results) -> Iterator[Row]:
    """The first heart beat at 8×."""
    import cine as run

    scan = run.scans("test", 8.0, 4, 64)[0]
    for method in ("tv-t", "llr", "cine"):
        now = run.score(run.reconstruct(scan, method, "cpu"), scan.reference)  # type: ignore[arg-type]
        stored = r.at("cine.json", f"test 8x {method}", "each")[0]
        yield from (Row(f"heart beat, 8×, {method}, {key}", stored[key], now[key]) for key in ("psnr", "heart"))


def volumes(r: Results) -> Iterator[Row]:
    """One volume at 2×3."""
    from dataclasses import replace

    import upmri
    import volumes as run

    person = r.distinct("volumes.json", "person")[0]
    full = run.volume(person, "caipi", 6, 24)
    mapped = upmri.estimate_maps(replace(full, maps=None, reference=None))
    for method, given in (("sense", {}), ("upmri", {"model": "brain"})):
        image = upmri.reconstruct(mapped, method, device="cpu", **given).image
        stored = r.one("volumes.json", "psnr", person=person, case="2×3 CAIPI", method=method)
        yield Row(f"volume of {person}, 2×3, {method}", stored, run.scores(image, full.reference)["psnr"])


def partial_fourier(r: Results) -> Iterator[Row]:
    """6/8 of the lines of a brain in vivo, either side."""
    import partial_fourier as run

    name = f"{run.SCANS[0]}, phase axis, 6/8"
    for method, now in run.gains(run.real(run.SCANS[0], "phase", 0.75, 1), "cpu").items():
        for key in ("without", "with"):
            stored = r.one("partial_fourier.json", key, name=name, method=method)
            yield Row(f"{name}, {method}, {key}", stored, now[key], ROUNDED)


def calibration(r: Results) -> Iterator[Row]:
    """24 calibration lines, and others around them."""
    import json
    import tempfile
    from argparse import Namespace
    from pathlib import Path

    import real_scans as run

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "now.json"
        run.calibration(path, Namespace(device="cpu"))
        for row in json.loads(path.read_text())["rows"]:
            stored = r.one("real_calibration.json", "psnr", lines=row["lines"], entry=row["entry"])
            yield Row(f"24 calibration lines, {row['lines']}, {row['entry']}", stored, row["psnr"])


def epi(r: Results) -> Iterator[Row]:
    """The ghost of the echo-planar phantom."""
    import epi as run

    for name, now in run.measure()[1].items():
        stored = r.one("epi.json", "ghost", name=name)
        yield Row(f"echo-planar ghost, {name}", 10 * math.log10(stored), 10 * math.log10(now["ghost"]))


CHECKS: dict[str, Callable[[Results], Iterator[Row]]] = {
    "epi": epi, "real-calibration": calibration, "sweeps": sweeps, "real-scans": real_scans, "benchmark": benchmark,
    "partial-fourier": partial_fourier, "volumes": volumes, "cine": cine,
}  # fmt: skip


def compare(names: list[str] | None = None) -> bool:
    """Print what agrees and what does not; return whether all of it does."""
    import time

    os.environ.setdefault("UPMRI_MODELS", str(ROOT / "models"))
    results, begin = Results(), time.perf_counter()
    wrong: list[Row] = []
    count = 0
    for name in names or CHECKS:
        start = time.perf_counter()
        try:
            rows = list(CHECKS[name](results))
        except MissingResultError as error:
            print(f"{name}: not compared, there is no {error}", flush=True)
            continue
        count += len(rows)
        wrong += [row for row in rows if not row.agrees]
        largest = max((abs(row.now - row.stored) for row in rows), default=0.0)
        print(f"{name}: {sum(row.agrees for row in rows)} of {len(rows)} agree, largest difference "
              f"{largest:.4f} dB, {time.perf_counter() - start:.0f} s", flush=True)  # fmt: skip
    for row in wrong:
        print(f"  {row.name}: stored {row.stored:.3f}, now {row.now:.3f} dB")
    took = (time.perf_counter() - begin) / 60
    print(f"{count - len(wrong)} of {count} numbers agree to {TOLERANCE} dB, in {took:.1f} minutes")
    return not wrong
