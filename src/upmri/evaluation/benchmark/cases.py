"""The scans of a benchmark: their selection, their keys, and their simulation when they are needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from upmri.core.errors import InputError
from upmri.core.evenly import evenly
from upmri.core.scan import Scan
from upmri.evaluation.benchmark.file_digest import file_digest
from upmri.evaluation.benchmark.plan import BenchmarkConfig, Group, Maps
from upmri.formats import load
from upmri.physics.espirit import find_maps
from upmri.physics.masks import seed_for
from upmri.physics.simulate import simulate
from upmri.training.selection import (
    Slice,
    count_slices,
    draw_lines,
    given_acs,
    keep_lines,
    read_image,
    select,
    with_maps,
)


@dataclass(frozen=True)
class Task:
    """One undersampled scan of one slice: its group, acceleration, kind of maps and number of the draw of its lines."""

    slice: Slice
    group: Group
    acceleration: float
    maps: Maps
    draw: int = 0
    seed_of: int | None = None  # index of the slice whose coils, phase and lines are used; None: its own

    @property
    def key(self) -> str:
        """The name of the scan in tables and in the database."""
        name, again = self.slice.name, f" draw {self.draw}" if self.draw else ""
        return f"{self.group.name} {name} {self.slice.index} {self.acceleration:g}x {self.maps}{again}"

    @property
    def origin(self) -> dict[str, Any]:
        """All that the data of the scan depend on and its key does not have: file, and settings of the group."""
        group = self.group
        facts: dict[str, Any] = {
            "file": file_digest(self.slice.path),
            "lines": group.lines,
            "counting": group.counting,
            "acs": given_acs(group, self.acceleration),
        }
        if self.slice.is_image:
            facts |= {"coils": group.coils, "anatomy": group.anatomy, "noise": float(group.noise), "side": group.side}
        return facts

    def make(self) -> Scan:
        """Load or simulate the scan, with maps and reference."""
        at, group = self.slice, self.group
        name = at.name if self.draw == 0 else f"{at.name} {self.draw}"
        index = at.index if self.seed_of is None else self.seed_of
        seed = seed_for(name, index, self.acceleration) % 2**31
        if at.is_image:
            image = read_image(group, at)
            full = simulate(image, group.coils, 1, acs=0, noise=group.noise, seed=seed, anatomy=group.anatomy)
        else:
            full = load(at.path, at.index)
        scan = keep_lines(full, draw_lines(group, full.matrix[1], self.acceleration, seed, full.matrix[0]))
        if self.maps == "exact":
            return scan
        return replace(scan, maps=find_maps(scan.kspace, scan.mask)) if at.is_image else with_maps(scan, full)

    def neighbour(self, off: int) -> Task:
        """Return the task of the slice ``off`` further, or ``off`` back at the end of the file, with the same coils."""
        count = count_slices(self.slice.path, self.slice.is_image, self.group.only)
        for index in (self.slice.index + off, self.slice.index - off):
            if 0 <= index < count:
                return replace(self, slice=replace(self.slice, index=index), seed_of=self.slice.index)
        raise InputError(
            f"there is no slice at a distance of {off} from slice {self.slice.index}",
            field="maps_off",
            path=self.slice.path,
        )


def tasks(config: BenchmarkConfig) -> list[Task]:
    """Return all scans to reconstruct, those of one slice after each other; an error if two have the same key."""
    made: list[Task] = []
    for group in config.groups:
        found = select(group)
        if not found:
            raise InputError("expected slices, found none", field=f"groups.{group.name}")
        made += [
            Task(at, group, acceleration, maps, draw)
            for at in found
            for acceleration in config.accelerations
            for maps in config.maps
            for draw in range(config.draws)
        ]
    known: dict[str, Task] = {}
    for task in made:
        if (other := known.setdefault(task.key, task)) is not task:
            raise _same_key(other, task)
    return made


def _same_key(one: Task, other: Task) -> InputError:
    """Return the error that two scans look the same in tables and in the database."""
    if one.slice == other.slice:
        what = f"expected each scan once, this file or its acceleration is given twice: {other.slice.path}"
    else:
        what = (
            f"expected different names (folder/file), got {one.slice.path} and {other.slice.path}; "
            "put them in different groups, or rename a folder"
        )
    return InputError(f"{what} (scan {other.key!r})", field=f"groups.{other.group.name}", path=other.slice.path)


def with_pictures(config: BenchmarkConfig, made: list[Task]) -> set[str]:
    """Return the keys of the tasks whose images are kept: slices spread evenly over each group."""
    kept: set[str] = set()
    for group in config.groups:
        here = [task for task in made if task.group is group and task.draw == 0]
        chosen = evenly(list(dict.fromkeys(task.slice for task in here)), config.shown)
        kept |= {task.key for task in here if task.slice in chosen}
    return kept
