"""What a benchmark is told: which scans, which methods with which settings, and where the results go."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from upmri.core.errors import InputError
from upmri.core.settings import build, read_mapping
from upmri.training.selection import Selection

Maps = Literal["espirit", "exact"]


@dataclass(frozen=True, kw_only=True)
class Group(Selection):
    """Scans that are reported together: images to simulate them of, or fully sampled scans to take lines from.

    Parameters
    ----------
    name
        Of the group.
    scans, images, part, share, person, only, limit, coils, anatomy, lines, counting, acs
        Which slices, and which of their lines: see :class:`upmri.training.selection.Selection`. Never both
        train and test on a person.
    noise
        σ₀ of simulated scans.
    """

    name: str
    noise: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.images) == bool(self.scans):
            raise InputError("images: expected images or scans, one of them")


@dataclass(frozen=True)
class Entry:
    """A method with its settings: one row of a table.

    Parameters
    ----------
    method, settings
        Which, and what :func:`upmri.reconstruct` is told besides.
    label
        How it is called; the method's name when not given.
    choices
        Settings of which every value is tried, and the best mean PSNR is reported, cell by cell: in hindsight.
    sweep
        One setting and its values: all are tried, and drawn as a curve instead of a row.
    learnt, evaluations
        What it learnt from and how often a network is asked, where that is not what the method's listing says.
    told_noise
        σ₀ that the method is told, over what it would find.
    maps_off
        Reconstruct with the maps of the slice so many further on.
    """

    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    label: str | None = None
    choices: dict[str, Any] = field(default_factory=dict)
    sweep: dict[str, Any] = field(default_factory=dict)
    learnt: str | None = None
    evaluations: int | None = None
    told_noise: float = 1.0
    maps_off: int = 0

    def __post_init__(self) -> None:
        if len(self.sweep) > 1:
            raise InputError(f"sweep: expected one setting, got {', '.join(self.sweep)}")
        for what, tried in (("choices", self.choices), ("sweep", self.sweep)):
            if not all(isinstance(values, list) and values for values in tried.values()):
                raise InputError(f"{what}: expected a list of values for each setting, got {tried}")

    @property
    def name(self) -> str:
        """How it is called."""
        return self.method if self.label is None else self.label

    def variants(self) -> Iterator[Entry]:
        """One for every combination of choices, and for every value of the sweep."""
        tried = self.choices | self.sweep
        for values in itertools.product(*tried.values()):
            settings = self.settings | dict(zip(tried, values, strict=True))
            yield replace(self, settings=settings, choices={}, sweep={})


@dataclass(frozen=True)
class BenchmarkConfig:
    """A benchmark.

    Parameters
    ----------
    output
        Folder of the store, the tables and the figures.
    groups, accelerations, maps
        Which scans. ``espirit``: maps from the undersampled scan; ``exact``: those it was simulated with.
    entries
        Which methods.
    against
        The entry that the others are compared with.
    draws
        How often lines are drawn for a slice at an acceleration: with few slices, much depends on where they fall.
    shown
        Of each group so many slices are kept as pictures.
    seed
        Of what methods draw.
    """

    output: str
    groups: tuple[Group, ...]
    entries: tuple[Entry, ...]
    accelerations: tuple[float, ...] = (4.0, 8.0)
    maps: tuple[Maps, ...] = ("espirit",)
    against: str = "upmri"
    draws: int = 1
    shown: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for what, names in (("groups", [g.name for g in self.groups]), ("entries", [e.name for e in self.entries])):
            if not names:
                raise InputError(f"{what}: expected at least one")
            if len(set(names)) < len(names):
                raise InputError(f"{what}: expected different names, got {', '.join(names)}")
        for key in ("draws", "shown"):
            if getattr(self, key) < 1:
                raise InputError(f"{key}: expected at least 1, got {getattr(self, key)}")
        if self.against not in {entry.name for entry in self.entries}:
            raise InputError(f"against: {self.against!r} is not among the entries")
        if "exact" in self.maps and any(group.scans for group in self.groups):
            raise InputError("maps: measured scans have no true maps; expected [espirit]")


def read_config(path: Path, changes: tuple[str, ...] = ()) -> BenchmarkConfig:
    """Read a configuration from YAML, with changes such as ``accelerations=[4]`` made to it."""
    made: BenchmarkConfig = build(BenchmarkConfig, read_mapping(path, changes), "")
    return made
