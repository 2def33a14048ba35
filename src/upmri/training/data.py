"""Undersampled slices to learn from: found, given coil maps once, kept in a cache, and dealt out in batches.

Everything random is drawn from a seed a sample, so that a batch is the same however many processes share it, and a
run that was broken off goes on as if it had not been.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from upmri.errors import InputError
from upmri.flow.path import TimeLaw, noise
from upmri.methods.base import Problem
from upmri.physics.contrast import vary
from upmri.physics.espirit import estimate_maps
from upmri.physics.masks import seed_for
from upmri.physics.simulate import simulate
from upmri.progress import bar
from upmri.scan import Scan
from upmri.training.config import DataConfig

# Part of the name of a cached slice: raise it when what is cached changes.
_VERSION = 1


@dataclass(frozen=True)
class Batch:
    """Slices of one size on the device, scaled so that their peak is about 1, each with random numbers of its own.

    Attributes
    ----------
    kspace, maps
        (slice, coil, H, W).
    mask
        (slice, 1 or H, W), and the same on the CPU, where lines are divided.
    sigma
        σ₀, (slice,).
    reference
        The truth as these maps see it, Σ_c conj(S_c) S_c' x, (slice, H, W), where there is one.
    seeds
        One a sample.
    step
        Which batch of the run it is.
    """

    kspace: Tensor
    maps: Tensor
    mask: Tensor
    sigma: Tensor
    reference: Tensor | None
    seeds: tuple[int, ...]
    step: int = 0

    def __len__(self) -> int:
        return len(self.seeds)

    @cached_property
    def lines(self) -> Tensor:
        """The mask on the CPU."""
        return self.mask.cpu()

    @cached_property
    def generators(self) -> list[torch.Generator]:
        """For decisions: on the CPU, one a sample."""
        return [torch.Generator().manual_seed(seed) for seed in self.seeds]

    def noise(self) -> Tensor:
        """x₁ ~ CN(0, 2I), (slice, H, W)."""
        device, like = self.kspace.device, self.kspace[0, 0]
        return torch.stack([noise(like, torch.Generator(device).manual_seed(seed + 1)) for seed in self.seeds])

    def times(self, law: TimeLaw) -> Tensor:
        """t, (slice,)."""
        return torch.cat([law.draw(1, generator) for generator in self.generators]).to(self.kspace.device)


class Slices:
    """Prepared slices, in groups of one size, dealt out in an order that the seed alone decides.

    Parameters
    ----------
    files
        Prepared slices in the cache.
    device
        Where batches go.
    resident
        Whether all slices stay there.
    """

    def __init__(self, files: Sequence[Path], device: torch.device, *, resident: bool = False) -> None:
        self._files, self._device = list(files), device
        self._kept: list[dict[str, Tensor] | None] = [None] * len(files)
        groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
        union: dict[tuple[int, int], Tensor] = {}
        for i, file in enumerate(self._files):
            item = _read(file, device if resident else torch.device("cpu"))
            coils, h, w = item["maps"].shape
            groups[coils, h, w, len(item["mask"])].append(i)
            lines = item["mask"].any(0).cpu()
            union[h, w] = lines | union.get((h, w), lines)
            if resident:
                self._kept[i] = item
        self.groups = [groups[key] for key in sorted(groups)]
        self.missed = {shape: int((~lines).sum()) for shape, lines in union.items() if not lines.all()}

    def __len__(self) -> int:
        return len(self._files)

    def warn(self) -> None:
        """Say where the method has nothing to stand on: lines that no scan has are never learnt."""
        for (h, w), count in self.missed.items():
            warnings.warn(
                f"{count} of {w} phase-encoding lines are in no {h}×{w} scan of the training set; what lies there "
                f"cannot be learnt (add scans whose masks differ)",
                stacklevel=2,
            )

    def epoch(self, size: int) -> int:
        """Batches in an epoch: each group is cut into whole batches, and a smaller one is dealt out round and round."""
        return sum(max(1, len(group) // size) for group in self.groups)

    def batch(self, step: int, size: int, seed: int, *, flips: bool, rank: int = 0, world: int = 1) -> Batch:
        """Return this process's share of the batch of a step."""
        epoch, place = divmod(step, self.epoch(size))
        order = torch.Generator().manual_seed(_hash(seed, "epoch", epoch))
        dealt = []
        for group in self.groups:
            shuffled = [group[i] for i in torch.randperm(len(group), generator=order).tolist()]
            shuffled *= -(-size // len(shuffled))
            dealt += [shuffled[i : i + size] for i in range(0, len(shuffled) - size + 1, size)]
        chosen = dealt[int(torch.randperm(len(dealt), generator=order)[place])]
        share = size // world
        first = rank * share
        seeds = [_hash(seed, step, first + i) for i in range(share)]
        return self.collect(chosen[first : first + share], seeds, flips=flips, step=step)

    def all(self, size: int) -> Iterator[Batch]:
        """Every slice once, always in the same order and with the same random numbers."""
        for group in self.groups:
            for i in range(0, len(group), size):
                yield self.collect(group[i : i + size], seeds=group[i : i + size])

    def collect(self, indices: Sequence[int], seeds: Sequence[int], *, flips: bool = False, step: int = 0) -> Batch:
        """Put slices of one size together."""
        items = [self._kept[i] or _read(self._files[i], self._device) for i in indices]
        fields: dict[str, Any] = {
            name: torch.stack([item[name] for item in items])
            for name in ("kspace", "maps", "mask", "sigma", "reference")
            if all(name in item for item in items)
        }
        if flips:
            coin = torch.tensor([[seed >> 7 & 1, seed >> 8 & 1] for seed in seeds], device=self._device).bool()
            for name in fields.keys() - {"sigma"}:
                fields[name] = _flip(_flip(fields[name], -2, coin[:, 0]), -1, coin[:, 1])
        return Batch(**{"reference": None, **fields}, seeds=tuple(seeds), step=step)


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
    for path in _files(config.scans, None):
        with open_source(path) as source:
            count = source.slices
        state = path.stat()
        stamp = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"
        jobs += [_Job(path, i, None, config, stamp) for i in range(count)]
    return jobs


def _image_jobs(config: DataConfig) -> list[_Job]:
    from upmri.formats import load_images

    jobs = []
    for path in _files(config.images, config.part):
        stamp = hashlib.sha256(path.read_bytes()).hexdigest()
        name = f"{path.parent.name}/{path.name}"
        for i in range(len(load_images(path))):
            rate = config.accelerations[seed_for(name, i, 0) % len(config.accelerations)]
            jobs.append(_Job(path, i, rate, config, stamp))
    return jobs


def _files(names: Sequence[str], part: str | None) -> list[Path]:
    """Files that are named, and those in folders that are."""
    files: list[Path] = []
    for name in names:
        path = Path(os.path.expandvars(name)).expanduser().absolute()
        if path.is_dir():
            wanted = None if part is None else _people(path, part)
            found = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
            files += [p for p in found if wanted is None or p.stem in wanted]
        elif path.is_file():
            files.append(path)
        else:
            raise InputError(f"{path}: expected a file or a folder, there is none")
    return files


def _people(folder: Path, part: str) -> set[str]:
    file = folder.parent / "splits.json"
    try:
        people: Any = json.loads(file.read_text())[folder.name][part]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: expected a list of the files of {folder.name} under {part!r}") from error
    return set(people)


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
        image = vary(np.abs(image), torch.Generator().manual_seed(seed))
    return simulate(image, config.coils, job.acceleration, noise=sigma, seed=seed % 2**31, anatomy=config.anatomy)


def _read(file: Path, device: torch.device) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    item = load_file(file, device=str(device))
    full = torch.zeros_like(item["maps"])
    full[..., item["mask"].any(0)] = item["kspace"]
    return {**item, "kspace": full}


def _flip(tensor: Tensor, axis: int, which: Tensor) -> Tensor:
    """Mirror some of the slices about DC: index i becomes 2·(n//2) − i, in an image and in its k-space alike."""
    if tensor.shape[axis] == 1:
        return tensor
    length = tensor.shape[axis]
    mirrored = tensor.index_select(axis, (2 * (length // 2) - torch.arange(length, device=tensor.device)) % length)
    return torch.where(which.reshape(-1, *(1,) * (tensor.ndim - 1)), mirrored, tensor)


def _hash(*parts: Any) -> int:
    """A seed from numbers and words, the same on every machine: 62 bits, the lowest 0 so that +1 is another."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 3 << 1
