"""Settings of a benchmark: its scans, its methods with their settings, and the folder for the results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from upmri.core.checks import at_least, one_of
from upmri.core.errors import InputError
from upmri.core.settings import build, read_mapping
from upmri.training.selection import Selection

Maps = Literal["espirit", "exact"]


@dataclass(frozen=True, kw_only=True)
class Group(Selection):
    """Scans that are reported together: simulated from images, or fully sampled scans from which lines are removed.

    Parameters
    ----------
    name
        Name of the group in tables.
    scans, images, part, share, person, only, limit, side, coils, anatomy, lines, counting, acs
        Choice of slices and lines: see :class:`upmri.training.selection.Selection`. Never train and test with the same
        person.
    noise
        σ₀ of simulated scans.
    """

    name: str
    noise: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.images) == bool(self.scans):
            raise InputError("expected either images or scans", field="images")


@dataclass(frozen=True)
class Entry:
    """A method with its settings: one row of a table.

    Parameters
    ----------
    method, settings
        Name of the method, and arguments of :func:`upmri.reconstruct` other than their defaults.
    label
        Name in tables; the name of the method if not given.
    choices
        Settings with lists of values. All combinations are tried. Each cell of the table reports the one with the best
        mean PSNR, which is chosen with knowledge of the reference.
    sweep
        One setting with a list of values. All are tried and drawn as a curve instead of a row.
    learnt, evaluations
        Kind of training data and number of network evaluations in tables, where they differ from those of the method.
    noise_factor
        Factor on σ₀: the method gets this multiple of the noise level that it would estimate.
    maps_off
        Distance (in slices) of the slice whose maps are used instead of the right ones; 0 for the right ones.
    """

    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    label: str | None = None
    choices: dict[str, Any] = field(default_factory=dict)
    sweep: dict[str, Any] = field(default_factory=dict)
    learnt: str | None = None
    evaluations: int | None = None
    noise_factor: float = 1.0
    maps_off: int = 0

    def __post_init__(self) -> None:
        if len(self.sweep) > 1:
            raise InputError(f"expected one setting, got {', '.join(self.sweep)}", field="sweep")
        for key, tried in (("choices", self.choices), ("sweep", self.sweep)):
            if not all(isinstance(values, list) and values for values in tried.values()):
                raise InputError(f"expected a list of values for each setting, got {tried}", field=key)

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.method if self.label is None else self.label

    def variants(self) -> Iterator[Entry]:
        """Yield an entry for every combination of choices and every value of the sweep."""
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
    groups, accelerations
        Groups of scans, and the accelerations at which each is reconstructed.
    maps
        Origin of the maps: ``espirit``, from the undersampled scan; ``exact``, those of the simulation.
    entries
        Methods to compare.
    against
        Name of the entry that all others are compared with.
    draws
        Number of random patterns of lines for each slice and acceleration. With few slices, results depend on them.
    shown
        Number of slices of each group that are kept as pictures.
    seed
        Random seed for methods that draw random numbers.
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
        for key, names in (("groups", [g.name for g in self.groups]), ("entries", [e.name for e in self.entries])):
            if not names:
                raise InputError("expected at least one", field=key)
            if len(set(names)) < len(names):
                raise InputError(f"expected different names, got {', '.join(names)}", field=key)
        if not (self.accelerations and all(1 <= rate < math.inf for rate in self.accelerations)):
            raise InputError(
                f"expected at least one finite number ≥ 1, got {list(self.accelerations)}", field="accelerations"
            )
        if not self.maps:
            raise InputError("expected at least one", field="maps")
        at_least(self, 1, "draws", "shown")
        one_of(self, against=[entry.name for entry in self.entries])
        if "exact" in self.maps and any(group.scans for group in self.groups):
            raise InputError("measured scans have no true maps; expected [espirit]", field="maps")


def read_config(path: Path, changes: tuple[str, ...] = ()) -> BenchmarkConfig:
    """Return the checked configuration of a YAML file, with changes such as ``accelerations=[4]``."""
    return build(BenchmarkConfig, read_mapping(path, changes))
