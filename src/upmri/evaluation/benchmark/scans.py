"""The scans of a benchmark: found, named, and made when they are needed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from upmri.errors import InputError
from upmri.evaluation.benchmark.config import BenchmarkConfig, Group, Maps
from upmri.files import find_files
from upmri.formats import load_images, open_source
from upmri.physics.espirit import estimate_maps
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import equispaced, random_lines, seed_for
from upmri.physics.simulate import simulate
from upmri.scan import Scan


@dataclass(frozen=True)
class Slice:
    """One slice of a group, fully sampled: an image to scan, or a scan to take lines from."""

    group: Group
    path: Path
    index: int

    @property
    def name(self) -> str:
        """The file and its folder, wherever that is: what a simulation depends on."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def person(self) -> str:
        """Whose it is."""
        return _person(self.group, self.path)


@dataclass(frozen=True)
class Task:
    """One undersampled scan of one slice."""

    slice: Slice
    acceleration: float
    maps: Maps

    @property
    def key(self) -> str:
        """Names it in the store."""
        parts = (self.slice.group.name, self.slice.name, self.slice.index, f"{self.acceleration:g}x", self.maps)
        return " ".join(map(str, parts))

    def make(self, *, maps_off: int = 0) -> Scan:
        """The scan, with maps and reference; with the maps of another slice if so wished."""
        scan = _undersampled(self)
        if not maps_off:
            return scan
        other = replace(self, slice=_neighbour(self.slice, maps_off))
        return replace(scan, maps=_undersampled(other).maps)


def tasks(config: BenchmarkConfig) -> list[Task]:
    """All that are to be reconstructed, those of a slice one after another."""
    return [
        Task(slice_, acceleration, maps)
        for group in config.groups
        for slice_ in slices(group)
        for acceleration in config.accelerations
        for maps in config.maps
    ]


def slices(group: Group) -> list[Slice]:
    """The slices of a group."""
    low, high = group.share
    paths = [p for p in find_files(group.images or group.scans, group.part) if low <= _hash(_person(group, p)) < high]
    found = [Slice(group, path, i) for path in paths for i in range(_count(group, path))]
    if not found:
        raise InputError(f"groups: {group.name}: expected slices, found none")
    count = len(found) if group.limit is None else min(group.limit, len(found))
    return [found[i * len(found) // count] for i in range(count)]


def shown(config: BenchmarkConfig) -> set[str]:
    """Keys of the tasks whose images are kept: of slices in the middle of their groups."""
    kept: set[str] = set()
    for group in config.groups:
        found = slices(group)
        chosen = {found[(2 * i + 1) * len(found) // (2 * config.shown)] for i in range(config.shown)}
        kept |= {task.key for task in tasks(replace(config, groups=(group,))) if task.slice in chosen}
    return kept


@lru_cache(maxsize=4)
def _undersampled(task: Task) -> Scan:
    group, index = task.slice.group, task.slice.index
    seed = seed_for(task.slice.name, index, task.acceleration) % 2**31
    if group.images:
        image = load_images(task.slice.path)[index]
        full = simulate(image, group.coils, 1, acs=0, noise=group.noise, seed=seed, anatomy=group.anatomy)
    else:
        with open_source(task.slice.path) as source:
            full = source.read(index)
    mask = _mask(group, full.matrix[1], task.acceleration, seed)[None] & full.mask
    scan = replace(full, kspace=full.kspace * mask[:, None], mask=mask)
    if task.maps == "exact":
        return scan
    mapped = estimate_maps(replace(scan, maps=None))
    if group.images:
        return mapped
    assert mapped.maps is not None  # noqa: S101
    # What all of the k-space gives with the same maps: the truth, as far as they know it.
    return replace(mapped, reference=(mapped.maps.conj() * ifft2c(full.kspace)).sum(1), noise=full.noise)


def _mask(group: Group, width: int, acceleration: float, seed: int) -> Tensor:
    acs = next((lines for rate, lines in group.acs.items() if float(rate) == acceleration), None)
    if group.lines == "equispaced":
        return equispaced(width, acceleration, acs, offset=seed % int(acceleration))  # type: ignore[arg-type]
    return random_lines(width, acceleration, acs, counting=group.counting, seed=seed_for(str(seed), 0, acceleration))


def _neighbour(slice_: Slice, off: int) -> Slice:
    """Another slice of the same file, of the same size; the other way where there is none."""
    count = _count(slice_.group, slice_.path)
    for index in (slice_.index + off, slice_.index - off):
        if 0 <= index < count:
            return replace(slice_, index=index)
    raise InputError(f"maps_off: {slice_.path} has no slice {off} from slice {slice_.index}")


@lru_cache(maxsize=1024)
def _count_of(path: Path, images: bool, only: tuple[tuple[str, object], ...]) -> int:
    if images:
        return len(load_images(path))
    with open_source(path) as source:
        if only:
            meta = source.read(0).meta
            if any(meta.get(key) != value for key, value in only):
                return 0
        return source.slices


def _count(group: Group, path: Path) -> int:
    return _count_of(path, bool(group.images), tuple(group.only.items()))


def _person(group: Group, path: Path) -> str:
    return path.stem if group.person == "file" else path.parent.name


def _hash(name: str) -> float:
    """A number in [0, 1) that a name has on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48
