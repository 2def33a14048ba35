"""Which slices, of whom, and which of their lines: what training and benchmarks are told about data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats.files import find_files
from upmri.physics.espirit import estimate_maps
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import Counting, equispaced, random_lines, seed_for
from upmri.physics.receive_array import Anatomy


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Scans, or images of which scans are simulated, of some people.

    Parameters
    ----------
    scans
        Files of any supported format, or folders of them.
    images
        Files of images (.npz with ``image``, .npy, NIfTI), or folders of them.
    part
        Take of a folder only the files that ``splits.json`` beside it lists under this part.
    share, person
        Take only people whose names hash to a number in this share of [0, 1): parts that have nobody in common,
        without a list. A person is a ``file``, or a ``folder`` of those below the folders that are named.
    only
        Take only scans whose ``meta`` says this: ``{acquisition: AXT2}``.
    limit
        Slices at the most, evenly spread over all.
    coils, anatomy
        Of simulated scans.
    lines, counting, acs
        Where lines are drawn: ``random`` or ``equispaced``; whether calibration lines count among W/R; and how many
        there are at each acceleration, ``{4: 30, 8: 15}``, round(0.32 W/R) where that is not said.
    """

    scans: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    part: str | None = None
    share: tuple[float, float] = (0.0, 1.0)
    person: Literal["file", "folder"] = "file"
    only: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None
    coils: int = 16
    anatomy: Anatomy = "head"
    lines: Literal["random", "equispaced"] = "random"
    counting: Counting = "included"
    acs: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        low, high = self.share
        if not 0 <= low < high <= 1:
            raise InputError(f"share: expected 0 ≤ low < high ≤ 1, got {low} and {high}")
        if not all(type(n) is int and n > 0 for n in self.acs.values()):
            raise InputError(f"acs: expected numbers of lines, got {self.acs}")


@dataclass(frozen=True)
class Slice:
    """One slice of a file of images, or of a scan."""

    path: Path
    index: int
    person: str
    is_image: bool

    @property
    def name(self) -> str:
        """The file and its folder, wherever that is: what a simulation depends on."""
        return f"{self.path.parent.name}/{self.path.name}"


def select(selection: Selection) -> list[Slice]:
    """All slices, in the order of their files' names."""
    found = []
    for names, is_image in ((selection.scans, False), (selection.images, True)):
        for path in find_files(names, selection.part, deep=selection.person == "folder"):
            person = path.stem if selection.person == "file" else path.parent.name
            if selection.share[0] <= _hash(person) < selection.share[1]:
                count = count_slices(path, is_image, selection.only)
                found += [Slice(path, i, person, is_image) for i in range(count)]
    if selection.limit is not None and selection.limit < len(found):
        return [found[i * len(found) // selection.limit] for i in range(selection.limit)]
    return found


def count_slices(path: Path, is_image: bool, only: dict[str, Any]) -> int:
    """How many slices a file has; none, if it is a scan of another kind."""
    from upmri.formats import load_images, open_source

    if is_image:
        return len(load_images(path))
    with open_source(path) as source:
        if only:
            meta = source.read(0).meta
            if any(meta.get(key) != value for key, value in only.items()):
                return 0
        return source.slices


def draw_lines(selection: Selection, width: int, acceleration: float, seed: int) -> Tensor:
    """The lines of one slice, bool (1, W), the same for the same seed."""
    acs = next((lines for rate, lines in selection.acs.items() if float(rate) == acceleration), None)
    if selection.lines == "equispaced":
        if acceleration != int(acceleration):
            raise InputError(f"lines: equispaced ones need a whole acceleration, got {acceleration:g}")
        return equispaced(width, int(acceleration), acs, offset=seed % int(acceleration))
    seed = seed_for(str(seed), 0, acceleration)
    return random_lines(width, acceleration, acs, counting=selection.counting, seed=seed)


def keep_lines(full: Scan, lines: Tensor) -> Scan:
    """A fully sampled scan without most of its lines; what was not measured, as padding, stays so."""
    mask = lines[None] & full.mask
    return replace(full, kspace=full.kspace * mask[:, None], mask=mask)


def with_maps(scan: Scan, full: Scan) -> Scan:
    """Estimate maps from the lines that are left; the reference is what all lines give with them, Σ conj(S_c) F*y_c."""
    mapped = estimate_maps(replace(scan, maps=None))
    assert mapped.maps is not None  # noqa: S101
    return replace(mapped, reference=(mapped.maps.conj() * ifft2c(full.kspace)).sum(1))


def _hash(name: str) -> float:
    """A number in [0, 1) that a name has on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48
