"""Prepare slices for training, once: find them, read or simulate them, estimate their maps, and cache them."""

from __future__ import annotations

import hashlib
import json
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from upmri.core.errors import InputError, first_of
from upmri.core.progress import bar
from upmri.core.scan import Scan
from upmri.formats import atomic
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import mean_image
from upmri.physics.contrast import vary, with_fat
from upmri.physics.fourier import ifft2c
from upmri.physics.maps import estimate_maps
from upmri.physics.masks import seed_for
from upmri.physics.problem import Problem
from upmri.physics.quality import repair
from upmri.physics.refine_maps import refine_maps
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import simulate
from upmri.training.config import DataConfig
from upmri.training.selection import Slice, draw_lines, keep_lines, read_image, select
from upmri.training.workers import by_processes
from upmri.weights.catalogue import find_weights
from upmri.weights.files import load_prior

# Part of the name of a cached slice: raise it when what is cached changes.
_VERSION = 4
# Settings that the content of a simulated or undersampled slice depends on.
_CONTENT = ("accelerations", "acs", "anatomy", "coils", "counting", "lines", "noise", "varied")
# Share of the images given another contrast whose outermost layer becomes fat.
_FAT = 0.6


Run = Callable[[deque[Callable[[], Any]]], Iterator[tuple[Any, Any]]]
"""Calls functions by other processes; yields each with what it returned, or the error that it raised."""


def prepare(
    config: DataConfig,
    cache: Path,
    *,
    workers: int = 1,
    progress: bool = False,
    run: Run | None = None,
    known: Mapping[str, Path] | None = None,
) -> list[Path]:
    """Prepare every slice with its coil maps and scale, once; return the files.

    Slices without samples and images of nothing are left out with a warning. Faulty coils and maps of a wrong length
    are repaired as in a reconstruction (:func:`upmri.physics.quality.repair`).

    Parameters
    ----------
    config
        Choice of slices, and settings of their simulation.
    cache
        Folder for the prepared slices. The name of a file is a hash of everything that its content depends on, so that
        no slice is prepared twice.
    workers
        Number of processes.
    progress
        Whether to show a bar with the remaining time.
    run
        What prepares slices instead of processes of this machine: the workers of a cluster. Slices that cannot be
        prepared do not stop the others then; the first of them is the error at the end.
    known
        Prepared slices in other folders, by the name of the file.
    """
    found = select(config)
    stamps = {path: _stamp(path, is_image) for path, is_image in {(item.path, item.is_image) for item in found}}
    jobs = [_Job(item, config, stamps[item.path], _drawn(item, config)) for item in found]
    if not jobs:
        raise InputError("expected scans or images, found none", field="train")
    atomic.make_folder(cache)
    files = [(known or {}).get(name, cache / name) for name in (f"{job.key}.safetensors" for job in jobs)]
    todo = [(job, file) for job, file in zip(jobs, files, strict=True) if not file.exists()]
    made: list[Path | None] = []
    with bar("preparing", len(todo), shown=progress) as advance:
        if run is not None:
            made += _spread(run, todo, advance)
        elif workers > 1 and len(todo) > 1:
            with by_processes(workers, [partial(_prepare, pair) for pair in todo]) as futures:
                for future in as_completed(futures):
                    made.append(future.result())
                    advance()
        else:
            for pair in todo:
                made.append(_prepare(pair))
                advance()
    return _not_empty(files, found, {file for file in made if file is not None})


def _not_empty(files: list[Path], slices: list[Slice], without: set[Path]) -> list[Path]:
    """Return the files but those of empty slices, which were not made."""
    empty = [item for file, item in zip(files, slices, strict=True) if file in without]
    if not empty:
        return files
    nothing, field = ("nothing is shown", "image") if empty[0].is_image else ("nothing was sampled", "mask")
    if len(empty) == len(files):
        raise InputError(f"expected at least one slice that is not empty; {nothing}", field=field, path=empty[0].path)
    more = f" and {len(empty) - 1} more of {len(files)} slices" if len(empty) > 1 else ""
    warnings.warn(f"{empty[0].path}: {nothing} in slice {empty[0].index}{more}; left out", stacklevel=3)
    return [file for file in files if file not in without]


def _spread(run: Run, todo: list[tuple[_Job, Path]], advance: Callable[[], None]) -> list[Path | None]:
    errors: list[InputError] = []
    failures: list[BaseException] = []  # of the program or the machine
    made = []
    for _, found in run(deque(partial(_prepare, pair) for pair in todo)):
        if isinstance(found, InputError):
            errors.append(found)
        elif isinstance(found, BaseException):
            failures.append(found)
        else:
            made.append(found)
        advance()
    if failures:
        raise failures[0]
    if errors:
        raise first_of(errors, "slices")
    return made


@dataclass(frozen=True)
class _Drawn:
    """What is drawn for a scan to simulate or to undersample, the same in every run."""

    name: str
    acceleration: float
    seed: int
    sigma: float
    varied: bool  # whether the image gets another contrast
    fat: bool  # and its outermost layer becomes fat


@dataclass(frozen=True)
class _Job:
    slice: Slice
    config: DataConfig
    stamp: str
    drawn: _Drawn | None  # None for a scan as it is

    @property
    def key(self) -> str:
        """Hash of everything that the content of the prepared slice depends on."""
        name, acceleration = (self.drawn.name, self.drawn.acceleration) if self.drawn else (self.slice.name, None)
        facts = [getattr(self.config, key) for key in _CONTENT] if self.drawn else []
        if self.config.side is not None:
            facts.append(self.config.side)
        if self.config.refine_maps:
            facts.append(hashlib.sha256(find_weights(self.config.refine_maps).read_bytes()).hexdigest())
        text = json.dumps([_VERSION, name, self.stamp, self.slice.index, acceleration, facts])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _drawn(item: Slice, config: DataConfig) -> _Drawn | None:
    if not (item.is_image or config.undersample):
        return None
    first = _draw(item, config, item.name)
    if not (config.draw and item.is_image and first.varied):
        return first
    return replace(_draw(item, config, f"{item.name} {config.draw}"), varied=True)


def _draw(item: Slice, config: DataConfig, name: str) -> _Drawn:
    acceleration = config.accelerations[seed_for(name, item.index, 0) % len(config.accelerations)]
    seed = seed_for(name, item.index, acceleration)
    rng, (low, high) = random.Random(seed), config.noise  # noqa: S311
    sigma = low * (high / low) ** rng.random() if high > low else low
    return _Drawn(name, acceleration, seed, sigma, rng.random() < config.varied, rng.random() < _FAT)


def _stamp(path: Path, is_image: bool) -> str:
    """Text that changes with a file: a hash of images; path, size and time of scans, which may be large."""
    if is_image:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    state = path.stat()
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"


def _prepare(pair: tuple[_Job, Path]) -> Path | None:
    """Prepare a slice; return its file if that was not made, because the slice is empty."""
    job, file = pair
    try:
        return None if _make(job, file) else file
    except InputError as error:
        raise error.within(field=f"slice {job.slice.index}", path=job.slice.path) from error


def _make(job: _Job, file: Path) -> bool:
    from safetensors.torch import save as serialise

    found = _scan(job)
    if found is None or not bool(found[0].mask.any()):
        return False
    scan, truth = found
    scan, notes = repair(scan)
    mapped = scan if scan.maps is not None else estimate_maps(scan)
    problem = Problem.from_scan(mapped)
    scale = problem.scale
    if job.config.refine_maps:
        problem = _refined(problem, job.config.refine_maps)
    assert isinstance(problem.operator, SenseOperator)  # noqa: S101
    maps = problem.operator.maps
    if truth is not None:
        if truth.ndim == 3:
            truth = truth * problem.operator.support
        else:
            truth = (maps.conj() * truth).sum(1)
            if notes.left_out:  # then given maps of the other coils are shorter than 1
                power = maps.abs().square().sum(1)
                truth = truth / torch.where(power > 0, power, 1)
        truth = truth / scale[:, None, None]
    columns = mapped.mask[0].any(0)
    if int(columns.sum()) <= 4:
        raise InputError(f"expected more than 4 lines, got {int(columns.sum())}", field="mask")
    tensors = {
        "kspace": problem.kspace[0][..., columns],
        "maps": maps[0],
        "mask": mapped.mask[0],
        "sigma": problem.sigma[0],
    } | ({} if truth is None else {"reference": truth[0]})
    with atomic.staged(file, overwrite=True) as stage:
        # Not `save_file`, whose error on a full disk is no `OSError`.
        stage.write_bytes(serialise({name: tensor.contiguous() for name, tensor in tensors.items()}))
    return True


@torch.no_grad()
def _refined(problem: Problem, model: str) -> Problem:
    network = Upmri(model=load_prior(model, shared=True)).prior.network
    return refine_maps(problem, mean_image(network, problem))


def _scan(job: _Job) -> tuple[Scan, Tensor | None] | None:
    """Return the scan and its ground truth: an image, or coil images where maps, which carry a phase, are estimated.

    None for an image of nothing, as the outer slices of a volume may be.
    """
    from upmri.formats import load

    item, config, drawn = job.slice, job.config, job.drawn
    if drawn is None:
        scan = load(item.path, item.index)
        known = scan.maps is not None and scan.reference is not None
        return scan, scan.maps * scan.reference[:, None] if known else scan.reference  # type: ignore[operator, index]
    seed = drawn.seed % 2**31
    if item.is_image:
        image: Any = read_image(config, item)
        if np.percentile(np.abs(image), 99.9) == 0:  # from which no scan can be simulated
            return None
        if drawn.varied:
            generator = torch.Generator().manual_seed(drawn.seed)
            image = vary(np.abs(image), generator)
            image = with_fat(image, generator) if drawn.fat else image
        full = simulate(image, config.coils, 1, acs=0, noise=drawn.sigma, seed=seed, anatomy=config.anatomy)
        assert full.maps is not None  # noqa: S101
        assert full.reference is not None  # noqa: S101
        truth = full.maps * full.reference[:, None]
    else:
        full = load(item.path, item.index)
        truth = ifft2c(full.kspace)
    lines = draw_lines(config, full.matrix[1], drawn.acceleration, seed, full.matrix[0])
    return replace(keep_lines(full, lines), maps=None, reference=None), truth
