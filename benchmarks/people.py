"""The folder of data, the files of the people of a part, and simulated scans of them, which several benchmarks share.

Scans have 16 coils, σ₀ = 0.01 and the native resolution.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import upmri
from ahead import in_processes
from upmri.formats import load_images
from upmri.physics.masks import seed_for

# Group of anatomies → weights for it, and arrangement of its coils.
GROUPS = {
    "brain_t1_stripped": ("brain", "head"),
    "brain_t1_head": ("brain", "head"),
    "brain_t2_head": ("brain", "head"),
    "cardiac_cine": ("cardiac", "torso"),
}
RESULTS = Path(__file__).parent / "results"


def data() -> Path:
    """Folder with ``anatomies/`` and ``scans/``."""
    return Path(os.environ["UPMRI_DATA"])


def files(group: str, part: str) -> list[Path]:
    """Files of the people of a part, in the order of ``splits.json``."""
    folder = data() / "anatomies"
    names = json.loads((folder / "splits.json").read_text())[group][part]
    return [folder / group / f"{name}.npz" for name in names]


def slices(group: str, part: str, count: int) -> list[tuple[Path, int]]:
    """Slices spread evenly over the people of a part, all for a count of 0: files and numbers."""
    found = [(path, index) for path in files(group, part) for index in range(len(load_images(path)))]
    count = min(count, len(found)) or len(found)
    return [found[k * len(found) // count] for k in range(count)]


def scans(group: str, part: str, rate: float, limit: int, maps: str, workers: int) -> list[upmri.Scan]:
    """Simulate scans of these slices."""
    jobs = [(path, index, rate, GROUPS[group][1], maps) for path, index in slices(group, part, limit)]
    return [simulate(job) for job in jobs] if workers == 1 else list(in_processes(simulate, jobs, workers))


def simulate(job: tuple[Path, int, float, Any, str]) -> upmri.Scan:
    """One scan: its seed is its name's, so that every machine draws the same."""
    path, index, rate, anatomy, maps = job
    seed = seed_for(f"{path.parent.name}/{path.name}", index, rate) % 2**31
    scan = upmri.physics.simulate.simulate(load_images(path)[index], acceleration=rate, seed=seed, anatomy=anatomy)
    return scan if maps == "true" else upmri.estimate_maps(replace(scan, maps=None))


def mean(values: list[float]) -> float:
    """Rounded."""
    return round(sum(values) / len(values), 3)
