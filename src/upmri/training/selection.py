"""Choice of files, people, slices and lines, for training and benchmarks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.checks import given, whole
from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats.folders import find_files
from upmri.physics.espirit import find_maps
from upmri.physics.fourier import ifft2c, lower_resolution
from upmri.physics.masks import Counting, equispaced, random_lines, seed_for
from upmri.physics.plane_masks import plane_mask
from upmri.physics.receive_array import Anatomy

Item = TypeVar("Item")

# Patterns of mixtures, and the share of 2-D patterns that leave out the corners of k-space.
_MIXTURES = {
    "both": ("random", "random", "equispaced"),
    "mixed": ("random",) * 4 + ("poisson",) * 2 + ("caipi", "separable"),
}
_ELLIPTIC = 0.5
# Share of the points of a 2-D mask that may be missing in a fully sampled scan: zeros by chance.
_SPARE = 0.01


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Scans, or images from which scans are simulated, of some people.

    Parameters
    ----------
    scans
        Files of any supported format, or folders of them.
    images
        Files of images (.npz with ``image``, .npy, NIfTI), or folders of them.
    part
        Part of the data set, ``train`` for instance: of a folder, only the files that ``splits.json`` beside it lists
        under this name.
    share
        Bounds (low, high) in [0, 1]: only people whose names have a hash, a number in [0, 1), between them. Shares
        that do not overlap have no person in common.
    person
        What stands for one person: every ``file``, or every ``folder`` below the named folders.
    only
        Required values in the ``meta`` of a scan: ``{acquisition: AXT2}``.
    limit
        Largest number of slices, spread evenly over all that were found.
    side
        Largest number of pixels of a side of images; larger ones get a lower resolution.
    coils, anatomy
        Number and arrangement of the receive coils of simulated scans.
    lines
        Pattern of the lines that are drawn, ``random`` or ``equispaced``; or of points, for two phase encodings:
        ``poisson``, ``caipi`` or ``separable`` (:mod:`upmri.physics.plane_masks`), half of them within an ellipse. With
        ``both``, a third of the slices have equispaced lines, the others random ones. With ``mixed``, half of the
        slices have random lines, and of the others half Poisson discs, a quarter each of the rest.
    counting
        Whether calibration lines count among the W/R lines: ``included`` or ``excluded``.
    acs
        Number of calibration lines (side of the block of points) by acceleration, ``{4: 30, 8: 15}``; round(0.32 W/R)
        lines, or the usual block, for accelerations not listed.
    """

    scans: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    part: str | None = None
    share: tuple[float, float] = (0.0, 1.0)
    person: Literal["file", "folder"] = "file"
    only: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None
    side: int | None = None
    coils: int = 16
    anatomy: Anatomy = "head"
    lines: Literal["random", "equispaced", "both", "poisson", "caipi", "separable", "mixed"] = "random"
    counting: Counting = "included"
    acs: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        low, high = self.share
        if not 0 <= low < high <= 1:
            raise InputError(f"expected 0 ≤ low < high ≤ 1, got {low} and {high}", field="share")
        if self.side is not None and not (type(self.side) is int and self.side > 0):
            raise InputError(f"expected a number of pixels, got {self.side!r}", field="side")
        if not all(_is_acceleration(rate) and type(n) is int and n > 0 for rate, n in self.acs.items()):
            raise InputError(
                f"expected numbers of lines by acceleration, such as {{4: 30}}, got {self.acs}", field="acs"
            )
        whole(self, 1, "coils", *given(self, "limit"))


@dataclass(frozen=True)
class Slice:
    """One slice of a file of images, or of a scan."""

    path: Path
    index: int
    person: str
    is_image: bool

    @property
    def name(self) -> str:
        """File name with its folder, but not the folders above: a simulation depends on this name."""
        return f"{self.path.parent.name}/{self.path.name}"


def select(selection: Selection) -> list[Slice]:
    """Return all slices, in the order of their file names."""
    found = []
    for names, is_image in ((selection.scans, False), (selection.images, True)):
        for path, person in files_of_people(selection, names):
            count = count_slices(path, is_image, selection.only)
            found += [Slice(path, i, person, is_image) for i in range(count)]
    return limited(selection, found)


def files_of_people(selection: Selection, names: Sequence[str]) -> list[tuple[Path, str]]:
    """Return those of the named files that are of people in the share, each with its person."""
    files = find_files(names, selection.part, deep=selection.person == "folder")
    known = [(path, path.stem if selection.person == "file" else path.parent.name) for path in files]
    low, high = selection.share
    return [(path, person) for path, person in known if low <= _hash(person) < high]


def limited(selection: Selection, found: list[Item]) -> list[Item]:
    """Return as many of what was found as the limit allows, spread evenly."""
    if selection.limit is None or selection.limit >= len(found):
        return found
    return [found[i * len(found) // selection.limit] for i in range(selection.limit)]


def count_slices(path: Path, is_image: bool, only: dict[str, Any]) -> int:
    """Return the number of slices of a file; 0 if its ``meta`` has not the values that ``only`` requires."""
    from upmri.formats import load_images, open_source

    if is_image:
        return len(load_images(path))
    with open_source(path) as source:
        if only:
            meta = source.read(0).meta
            if any(meta.get(key) != value for key, value in only.items()):
                return 0
        return source.slices


def read_image(selection: Selection, at: Slice) -> NDArray[Any]:
    """Return the image of a slice, (H, W), at the resolution that is used: magnitudes where it is lowered."""
    from upmri.formats import load_images

    image = load_images(at.path)[at.index]
    height, width = (min(length, selection.side or length) for length in image.shape)
    if (height, width) == image.shape:
        return image
    return np.asarray(lower_resolution(torch.from_numpy(np.array(image, np.complex64)), height, width).abs())


def given_acs(selection: Selection, acceleration: float) -> int | None:
    """Return the number of calibration lines that is given for an acceleration."""
    return next((lines for rate, lines in selection.acs.items() if float(rate) == acceleration), None)


def draw_lines(selection: Selection, width: int, acceleration: float, seed: int, height: int = 1) -> Tensor:
    """Return the lines of one slice, bool (1, W), or its points, bool (H, W), the same for the same seed."""
    acs = given_acs(selection, acceleration)
    patterns = _MIXTURES.get(selection.lines, (selection.lines,))
    pattern = patterns[seed_for(str(seed), 1, 0) % len(patterns)]
    if pattern in ("poisson", "caipi", "separable"):
        generator = torch.Generator().manual_seed(seed_for(str(seed), 0, acceleration))
        elliptic = bool(torch.rand((), generator=generator) < _ELLIPTIC)
        return plane_mask(pattern, (height, width), acceleration, acs, elliptic=elliptic, seed=generator)  # type: ignore[arg-type]
    if pattern == "equispaced":
        if acceleration != int(acceleration):
            raise InputError(f"expected a whole acceleration for equispaced lines, got {acceleration:g}", field="lines")
        return equispaced(width, int(acceleration), acs, offset=seed % int(acceleration))
    seed = seed_for(str(seed), 0, acceleration)
    try:
        return random_lines(width, acceleration, acs, counting=selection.counting, seed=seed)
    except InputError as error:
        if error.field == "acs" and selection.counting == "included":
            raise InputError(f"{error.message}, or counting: excluded", field="acs") from error
        raise


def keep_lines(full: Scan, lines: Tensor) -> Scan:
    """Return a fully sampled scan with these lines, bool (1 or H, W), only.

    Edges and corners of k-space that were not measured stay so. A scan that lacks lines or points between others is
    refused: the image of all its lines is no reference.
    """
    gaps = _gaps(full.mask, -1) | _gaps(full.mask, -2)
    what, spare = ("lines", 0) if full.mask.shape[1] == 1 else ("points", _SPARE * int(full.mask.sum()))
    if int(gaps.sum()) > spare:
        raise InputError(
            f"expected a fully sampled scan, of which lines are removed; {int(gaps.sum())} {what} are missing between "
            "others",
            field="mask",
        )
    mask = lines[None] & full.mask
    return replace(full, kspace=full.kspace * mask[:, None], mask=mask)


def with_maps(scan: Scan, full: Scan) -> Scan:
    """Estimate maps S of an undersampled scan by ESPIRiT; the reference is Σ conj(S_c) F*y_c, all lines of ``full``."""
    maps = find_maps(scan.kspace, scan.mask)
    return replace(scan, maps=maps, reference=(maps.conj() * ifft2c(full.kspace)).sum(1))


def _gaps(mask: Tensor, axis: int) -> Tensor:
    """Positions along an axis that were not sampled, between others that were, bool (slice, 1 or H, W)."""
    count = mask.cumsum(axis)
    return ~mask & (count > 0) & (count < count.amax(axis, keepdim=True))


def _is_acceleration(rate: object) -> bool:
    """Whether a key is a finite number ≥ 1; keys of JSON are texts."""
    try:
        return 1 <= float(rate) < math.inf  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def _hash(name: str) -> float:
    """Return a number in [0, 1) that depends only on the name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48
