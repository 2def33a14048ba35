"""How long an image takes: every entry alone on one device, one slice at a time and as many as pay."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from upmri.core.scan import Scan
from upmri.evaluation.benchmark.plan import BenchmarkConfig, Entry
from upmri.evaluation.benchmark.run import expanded
from upmri.evaluation.benchmark.tables import evaluations_of
from upmri.methods import build, pick_device
from upmri.methods.base import Method, Problem
from upmri.physics.phantom import image
from upmri.physics.simulate import simulate

# Larger batches are tried as long as they make an image cheaper by this factor.
_PAYS = 0.97


@dataclass(frozen=True)
class Timing:
    """Seconds an image with one slice at a time, and with the batch that is best, and the memory of either in bytes."""

    entry: str
    evaluations: int
    alone: float
    memory_alone: int
    batch: int
    best: float
    memory_best: int


def measure(
    config: BenchmarkConfig, device: str = "auto", *, size: int = 320, coils: int = 16, most: int = 32, repeats: int = 3
) -> list[Timing]:
    """Time the reconstruction of slices whose maps are known, median of some after one that is not counted.

    Parameters
    ----------
    config
        Whose entries; of one with choices, the first.
    device
        Where. Memory is measured on CUDA alone, and 0 elsewhere.
    size, coils
        Of the simulated scan, at 4×.
    most
        The largest batch that is tried.
    repeats
        How many are counted.
    """
    where = pick_device(device)
    scan = simulate(image((size, size)), coils, 4)
    return [_time(entry, scan, where, most, repeats) for entry in config.entries if not entry.sweep]


def company(device: str = "auto") -> str:
    """What else the machine has to do, to be asked before measuring: times are worth nothing in company."""
    told = [f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"] if hasattr(os, "getloadavg") else []
    where = pick_device(device)
    if where.type == "cuda":
        free, total = torch.cuda.mem_get_info(where)
        taken = total - free - torch.cuda.memory_reserved(where)
        told.append(f"{taken / 2**30:.1f} GiB of the device taken (its driver's own share included)")
    return ", ".join(told)


def _time(entry: Entry, scan: Scan, device: torch.device, most: int, repeats: int) -> Timing:
    first = next(entry.variants())
    method = build(first.method, **expanded(first.settings))
    with torch.no_grad():
        method = method.fit(_problem(scan, device))
        found: dict[int, tuple[float, int]] = {}
        batch = 1
        while batch <= most:
            try:
                found[batch] = _once(method, _copies(scan, batch), device, repeats)
            except torch.cuda.OutOfMemoryError:
                break
            if batch > 1 and found[batch][0] > _PAYS * found[batch // 2][0]:
                break
            batch *= 2
    best = min(found, key=lambda size: found[size][0])
    return Timing(entry.name, evaluations_of(entry), *found[1], best, *found[best])


def _once(method: Method, scan: Scan, device: torch.device, repeats: int) -> tuple[float, int]:
    """Seconds an image, and bytes at the most."""
    times = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(repeats + 1):
        problem = _problem(scan, device)
        start = time.perf_counter()
        method.reconstruct(problem)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - start) / len(scan))
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return sorted(times[1:])[len(times[1:]) // 2], memory


def _copies(scan: Scan, count: int) -> Scan:
    """The same slice so many times: what it costs does not depend on what is in it."""
    kspace, mask, maps = (
        None if part is None else part.expand(count, *part.shape[1:]) for part in (scan.kspace, scan.mask, scan.maps)
    )
    return Scan(kspace=kspace, mask=mask, maps=maps, noise=scan.noise)  # type: ignore[arg-type]


def _problem(scan: Scan, device: torch.device) -> Problem:
    return Problem(scan, device, torch.Generator().manual_seed(0))


def markdown(found: Sequence[Timing], title: str) -> str:
    """As the paper's second table."""
    head = ("method", "evaluations", "ms an image, alone", "best batch", "ms an image", "peak memory (GiB)")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in found:
        memory = f"{row.memory_best / 2**30:.1f}" if row.memory_best else "–"
        times = f"{1e3 * row.alone:.1f} | {row.batch} | {1e3 * row.best:.1f}"
        lines.append(f"| {row.entry} | {row.evaluations or '–'} | {times} | {memory} |")
    return f"### {title}\n\n" + "\n".join(lines) + "\n"


def long_csv(found: Sequence[Timing]) -> str:
    """The same, for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ["entry", "evaluations", "alone", "memory_alone", "batch", "best", "memory_best"]
    writer.writerow(names)
    writer.writerows([getattr(row, name) for name in names] for row in found)
    return out.getvalue()
