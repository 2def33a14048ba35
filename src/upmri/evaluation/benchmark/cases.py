"""The scans of a benchmark: found, named, and made when they are needed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.evaluation.benchmark.plan import BenchmarkConfig, Group, Maps
from upmri.formats import load, load_images
from upmri.physics.espirit import estimate_maps
from upmri.physics.masks import seed_for
from upmri.physics.simulate import simulate
from upmri.training.selection import Slice, count_slices, draw_lines, keep_lines, select, with_maps


@dataclass(frozen=True)
class Task:
    """One undersampled scan of one slice of a group, with lines that may be drawn again."""

    slice: Slice
    group: Group
    acceleration: float
    maps: Maps
    draw: int = 0
    seed_of: int | None = None  # the slice whose array, phase and lines it shares; its own when None

    @property
    def key(self) -> str:
        """Names it in the store."""
        name, again = self.slice.name, f" draw {self.draw}" if self.draw else ""
        return f"{self.group.name} {name} {self.slice.index} {self.acceleration:g}x {self.maps}{again}"

    def make(self) -> Scan:
        """The scan, with maps and reference."""
        at, group = self.slice, self.group
        name = at.name if self.draw == 0 else f"{at.name} {self.draw}"
        index = at.index if self.seed_of is None else self.seed_of
        seed = seed_for(name, index, self.acceleration) % 2**31
        if at.is_image:
            image = load_images(at.path)[at.index]
            full = simulate(image, group.coils, 1, acs=0, noise=group.noise, seed=seed, anatomy=group.anatomy)
        else:
            full = load(at.path, at.index)
        scan = keep_lines(full, draw_lines(group, full.matrix[1], self.acceleration, seed))
        if self.maps == "exact":
            return scan
        return estimate_maps(replace(scan, maps=None)) if at.is_image else with_maps(scan, full)

    def neighbour(self, off: int) -> Task:
        """The same of another slice of the file, in the same array; the other way where there is none."""
        count = count_slices(self.slice.path, self.slice.is_image, self.group.only)
        for index in (self.slice.index + off, self.slice.index - off):
            if 0 <= index < count:
                return replace(self, slice=replace(self.slice, index=index), seed_of=self.slice.index)
        raise InputError(f"maps_off: {self.slice.path} has no slice {off} from slice {self.slice.index}")


def tasks(config: BenchmarkConfig) -> list[Task]:
    """All that are to be reconstructed, those of a slice one after another."""
    made = []
    for group in config.groups:
        found = select(group)
        if not found:
            raise InputError(f"groups: {group.name}: expected slices, found none")
        made += [
            Task(at, group, acceleration, maps, draw)
            for at in found
            for acceleration in config.accelerations
            for maps in config.maps
            for draw in range(config.draws)
        ]
    return made


def shown(config: BenchmarkConfig, made: list[Task]) -> set[str]:
    """Keys of the tasks whose images are kept: of slices in the middle of their groups."""
    kept: set[str] = set()
    for group in config.groups:
        here = [task for task in made if task.group is group and task.draw == 0]
        found = list(dict.fromkeys(task.slice for task in here))
        chosen = {found[(2 * i + 1) * len(found) // (2 * config.shown)] for i in range(config.shown)}
        kept |= {task.key for task in here if task.slice in chosen}
    return kept
