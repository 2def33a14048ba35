"""Prepare slices for training, once: find them, read or simulate them, estimate their maps, and cache them."""

from __future__ import annotations

import hashlib
import json
import random
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.progress import bar
from upmri.core.scan import Scan
from upmri.formats import atomic
from upmri.physics.contrast import vary, with_fat
from upmri.physics.espirit import estimate_maps
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import seed_for
from upmri.physics.problem import Problem
from upmri.physics.simulate import simulate
from upmri.training.config import DataConfig
from upmri.training.selection import Slice, draw_lines, keep_lines, select

# Part of the name of a cached slice: raise it when what is cached changes.
_VERSION = 3
# Settings that decide over a slice, beside which it is.
_DECIDE = ("accelerations", "acs", "anatomy", "coils", "counting", "lines", "noise", "varied")
# Share of the images given another contrast whose outermost layer becomes fat.
_FAT = 0.6


def prepare(config: DataConfig, cache: Path, *, workers: int = 1, progress: bool = False) -> list[Path]:
    """Give every slice its maps and scale, once; return where they are kept.

    Parameters
    ----------
    config
        What to prepare.
    cache
        Folder for the prepared slices, named by what they were made of: nothing is made twice.
    workers
        Processes.
    progress
        Show a bar.
    """
    found = select(config)
    stamps = {path: _stamp(path, is_image) for path, is_image in {(at.path, at.is_image) for at in found}}
    jobs = [_Job(at, _rate(at, config), config, stamps[at.path]) for at in found]
    if not jobs:
        raise InputError("expected scans or images, found none", field="train")
    cache.mkdir(parents=True, exist_ok=True)
    files = [cache / f"{job.key}.safetensors" for job in jobs]
    todo = [(job, file) for job, file in zip(jobs, files, strict=True) if not file.exists()]
    with bar("preparing", len(todo), shown=progress) as advance:
        if workers > 1 and len(todo) > 1:
            # An executor, not a pool: where a script lacks its `if __name__ == "__main__"`, a pool would hang.
            context = torch.multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,)) as executor:
                for future in as_completed([executor.submit(_prepare, pair) for pair in todo]):
                    future.result()
                    advance()
        else:
            for pair in todo:
                _prepare(pair)
                advance()
    return files


@dataclass(frozen=True)
class _Job:
    slice: Slice
    acceleration: float | None  # of a scan to simulate or to undersample; None for a scan as it is
    config: DataConfig
    stamp: str

    @property
    def key(self) -> str:
        """What the slice is made of, and how."""
        facts = [getattr(self.config, key) for key in _DECIDE] if self.acceleration else []
        text = json.dumps([_VERSION, self.slice.name, self.stamp, self.slice.index, self.acceleration, facts])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _rate(at: Slice, config: DataConfig) -> float | None:
    """The slice's acceleration, always the same."""
    if not (at.is_image or config.undersample):
        return None
    return config.accelerations[seed_for(at.name, at.index, 0) % len(config.accelerations)]


def _stamp(path: Path, is_image: bool) -> str:
    """What changes with a file: the content of images; size and time of scans, which may be large."""
    if is_image:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    state = path.stat()
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"


def _prepare(pair: tuple[_Job, Path]) -> None:
    job, file = pair
    try:
        _make(job, file)
    except InputError as error:
        raise error.within(field=f"slice {job.slice.index}", path=job.slice.path) from error


def _make(job: _Job, file: Path) -> None:
    from safetensors.torch import save_file

    scan, truth = _scan(job)
    mapped = scan if scan.maps is not None else estimate_maps(scan)
    problem = Problem.from_scan(mapped)
    if truth is not None:
        assert mapped.maps is not None  # noqa: S101
        maps = mapped.maps
        truth = (maps.conj() * truth).sum(1) if truth.ndim == 4 else truth * problem.operator.support
        truth = truth / problem.scale[:, None, None]
    columns = mapped.mask[0].any(0)
    if int(columns.sum()) <= 4:
        raise InputError(f"expected more than 4 lines, got {int(columns.sum())}", field="mask")
    assert mapped.maps is not None  # noqa: S101
    tensors = {
        "kspace": problem.kspace[0][..., columns],
        "maps": mapped.maps[0],
        "mask": mapped.mask[0],
        "sigma": problem.sigma[0],
    } | ({} if truth is None else {"reference": truth[0]})
    with atomic.staged(file, overwrite=True) as stage:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, stage)


def _scan(job: _Job) -> tuple[Scan, Tensor | None]:
    """The scan, and the truth: an image, or, where its maps are to be estimated, which carry a phase, coil images."""
    from upmri.formats import load, load_images

    at, config = job.slice, job.config
    if job.acceleration is None:
        scan = load(at.path, at.index)
        known = scan.maps is not None and scan.reference is not None
        return scan, scan.maps * scan.reference[:, None] if known else scan.reference  # type: ignore[operator, index]
    seed = seed_for(at.name, at.index, job.acceleration)
    if at.is_image:
        dice, (low, high) = random.Random(seed), config.noise  # noqa: S311
        sigma = low * (high / low) ** dice.random() if high > low else low
        image = load_images(at.path)[at.index]
        if dice.random() < config.varied:
            generator = torch.Generator().manual_seed(seed)
            image = vary(np.abs(image), generator)
            image = with_fat(image, generator) if dice.random() < _FAT else image
        full = simulate(image, config.coils, 1, acs=0, noise=sigma, seed=seed % 2**31, anatomy=config.anatomy)
        assert full.maps is not None  # noqa: S101
        assert full.reference is not None  # noqa: S101
        truth = full.maps * full.reference[:, None]
    else:
        full = load(at.path, at.index)
        truth = ifft2c(full.kspace)
    lines = draw_lines(config, full.matrix[1], job.acceleration, seed % 2**31)
    return replace(keep_lines(full, lines), maps=None, reference=None), truth
