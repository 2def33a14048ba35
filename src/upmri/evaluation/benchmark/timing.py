"""Time and memory for one image: every entry on one device, one slice at a time and in batches."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from upmri.core.device import pick_device
from upmri.core.scan import Scan
from upmri.evaluation.benchmark.plan import BenchmarkConfig, Entry
from upmri.evaluation.benchmark.run import expanded
from upmri.evaluation.benchmark.tables import evaluations_of
from upmri.evaluation.benchmark.text_tables import csv_table, markdown_table
from upmri.inference.choice import build_method, complete
from upmri.methods.base import Method
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.simulate import simulate

# A larger batch is tried as long as the last one reduced the time for an image to this fraction.
_PAYS = 0.97


@dataclass(frozen=True)
class Timing:
    """Seconds for one image, alone and in the best batch, and the memory of both in bytes."""

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
    """Time the reconstruction of slices whose maps are known: the median of several runs after one warm-up run.

    Parameters
    ----------
    config
        Benchmark whose entries are timed; of an entry with choices, the first variant.
    device
        Device to measure. Memory is measured on CUDA only, and 0 elsewhere.
    size, coils
        Matrix size and number of coils of the simulated scan, at 4×.
    most
        Largest batch that is tried.
    repeats
        Number of runs that are counted.
    """
    where = pick_device(device)
    scan = simulate(image((size, size)), coils, 4)
    return [_time(entry, scan, where, most, repeats) for entry in config.entries if not entry.sweep]


def machine_load(device: str = "auto") -> str:
    """Return the load of the machine and its device before the measurement: other programs make times worthless."""
    load = [f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"] if hasattr(os, "getloadavg") else []
    where = pick_device(device)
    if where.type == "cuda":
        free, total = torch.cuda.mem_get_info(where)
        taken = total - free - torch.cuda.memory_reserved(where)
        load.append(f"{taken / 2**30:.1f} GiB of the device in use (including the driver's own share)")
    return ", ".join(load)


def _time(entry: Entry, scan: Scan, device: torch.device, most: int, repeats: int) -> Timing:
    first = next(entry.variants())
    method = build_method(first.method, **expanded(first.settings))
    with torch.no_grad():
        method, _ = complete(method, _problem(scan, device))
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
    """Return the seconds for one image and the peak memory in bytes."""
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
    """Return a scan of ``count`` copies of a slice; the time does not depend on the content."""
    kspace, mask, maps = (
        None if part is None else part.expand(count, *part.shape[1:]) for part in (scan.kspace, scan.mask, scan.maps)
    )
    return Scan(kspace=kspace, mask=mask, maps=maps, noise=scan.noise)  # type: ignore[arg-type]


def _problem(scan: Scan, device: torch.device) -> Problem:
    return Problem.from_scan(scan, device)


def timing_markdown(found: Sequence[Timing], title: str) -> str:
    """Return the times as a Markdown table, with the columns of the paper's second table."""
    head = ("method", "evaluations", "ms per image, alone", "best batch", "ms per image", "peak memory (GiB)")
    rows = []
    for row in found:
        memory = f"{row.memory_best / 2**30:.1f}" if row.memory_best else "–"
        times = (f"{1e3 * row.alone:.1f}", str(row.batch), f"{1e3 * row.best:.1f}")
        rows.append((row.entry, str(row.evaluations or "–"), *times, memory))
    return f"### {title}\n\n" + markdown_table(head, rows)


def timing_csv(found: Sequence[Timing]) -> str:
    """Return the same as CSV, times in seconds and memory in bytes."""
    names = [field.name for field in fields(Timing)]
    return csv_table(names, [[getattr(row, name) for name in names] for row in found])
