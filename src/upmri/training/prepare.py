"""Give slices what a lesson needs, once: find them, simulate or read them, estimate their maps, keep all in a cache."""

from __future__ import annotations

import hashlib
import json
import os
import random
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from upmri.errors import InputError
from upmri.files import find_files
from upmri.methods.base import Problem
from upmri.physics.contrast import vary, with_fat
from upmri.physics.espirit import estimate_maps
from upmri.physics.masks import seed_for
from upmri.physics.simulate import simulate
from upmri.progress import bar
from upmri.scan import Scan
from upmri.training.config import DataConfig

# Part of the name of a cached slice: raise it when what is cached changes.
_VERSION = 2
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
    jobs = _scan_jobs(config) + _image_jobs(config)
    if config.limit is not None and config.limit < len(jobs):
        jobs = [jobs[i * len(jobs) // config.limit] for i in range(config.limit)]
    if not jobs:
        raise InputError("data: expected scans or images to learn from, found none")
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
    path: Path
    index: int
    acceleration: float | None  # of a scan to simulate; None for a scan as it is
    config: DataConfig
    stamp: str

    @property
    def name(self) -> str:
        """What the simulation depends on: the file and its folder, wherever that is."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def key(self) -> str:
        """What the slice is made of, and how."""
        facts = asdict(replace(self.config, scans=(), images=(), part=None, limit=None)) if self.acceleration else {}
        text = json.dumps([_VERSION, self.name, self.stamp, self.index, self.acceleration, facts])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _scan_jobs(config: DataConfig) -> list[_Job]:
    from upmri.formats import open_source

    jobs = []
    for path in find_files(config.scans, None):
        with open_source(path) as source:
            count = source.slices
        state = path.stat()
        stamp = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"
        jobs += [_Job(path, i, None, config, stamp) for i in range(count)]
    return jobs


def _image_jobs(config: DataConfig) -> list[_Job]:
    from upmri.formats import load_images

    jobs = []
    for path in find_files(config.images, config.part):
        stamp = hashlib.sha256(path.read_bytes()).hexdigest()
        name = f"{path.parent.name}/{path.name}"
        for i in range(len(load_images(path))):
            rate = config.accelerations[seed_for(name, i, 0) % len(config.accelerations)]
            jobs.append(_Job(path, i, rate, config, stamp))
    return jobs


def _prepare(pair: tuple[_Job, Path]) -> None:
    job, file = pair
    try:
        _make(job, file)
    except InputError as error:
        raise InputError(f"{job.path}: slice {job.index}: {str(error).removeprefix(f'{job.path}: ')}") from error


def _make(job: _Job, file: Path) -> None:
    from safetensors.torch import save_file

    scan = _scan(job)
    truth = None
    if scan.reference is not None:
        # What a perfect reconstruction with estimated maps gives: they carry a phase of their own.
        truth = scan.reference if scan.maps is None else scan.maps * scan.reference[:, None]
    mapped = scan if scan.maps is not None and job.acceleration is None else estimate_maps(replace(scan, maps=None))
    problem = Problem(mapped, torch.device("cpu"), torch.Generator())
    if truth is not None:
        maps = problem.operator.maps
        truth = (maps.conj() * truth).sum(1) if truth.ndim == 4 else truth * problem.operator.support
        truth = truth / problem.scale[:, None, None]
    columns = mapped.mask[0].any(0)
    if int(columns.sum()) <= 4:
        raise InputError(f"mask: expected more than 4 lines, got {int(columns.sum())}")
    assert mapped.maps is not None  # noqa: S101
    tensors = {
        "kspace": problem.kspace[0][..., columns],
        "maps": mapped.maps[0],
        "mask": mapped.mask[0],
        "sigma": problem.sigma[0],
    } | ({} if truth is None else {"reference": truth[0]})
    stage = file.with_suffix(f".{os.getpid()}")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, stage)
    stage.replace(file)


def _scan(job: _Job) -> Scan:
    from upmri.formats import load, load_images

    if job.acceleration is None:
        return load(job.path, job.index)
    config = job.config
    image = load_images(job.path)[job.index]
    seed = seed_for(job.name, job.index, job.acceleration)
    dice, (low, high) = random.Random(seed), config.noise  # noqa: S311
    sigma = low * (high / low) ** dice.random() if high > low else low
    if dice.random() < config.varied:
        generator = torch.Generator().manual_seed(seed)
        image = vary(np.abs(image), generator)
        image = with_fat(image, generator) if dice.random() < _FAT else image
    return simulate(image, config.coils, job.acceleration, noise=sigma, seed=seed % 2**31, anatomy=config.anatomy)
