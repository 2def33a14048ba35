"""Scan and Reconstruction: the input and the output of every method.

Both accept NumPy arrays wherever they hold tensors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from upmri.core import fields, frame_places, geometry, ports
from upmri.core.bounds import Bounds
from upmri.core.errors import InputError
from upmri.core.fields import Settings


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan:
    """Undersampled multi-coil k-space of one or more slices, with everything known about it.

    Parameters
    ----------
    kspace
        Complex (slice, coil, readout, phase), or (coil, readout, phase) for one slice; unsampled entries are 0.
    mask
        Which entries were sampled: (slice, 1 or readout, phase), (readout, phase) or (phase,). Found from the zeros of
        ``kspace`` when not given.
    maps
        Coil sensitivities S_c, shaped like ``kspace``; Σ|S_c|² is 1 in the object and 0 outside.
    reference
        The image to compare with, (slice, readout, phase).
    noise
        σ₀ of the k-space noise, E|e|² = σ₀², in the units of ``kspace``.
    spacing
        Voxel size in mm along (readout, phase, slice).
    name, meta
        A label, and everything else that the file contains (JSON values).

    Examples
    --------
    >>> import numpy as np, upmri
    >>> kspace = np.ones((8, 64, 48), np.complex64)  # coil, readout, phase
    >>> kspace[..., 1::2] = 0  # lines that were not sampled
    >>> scan = upmri.Scan(kspace=kspace, name="demo")
    >>> scan
    Scan 'demo': 1 slice × 8 coils × 64 × 48, acceleration 2.00
      maps: no, reference: no, noise: unknown
      spacing: unknown
    """

    kspace: Tensor
    mask: Tensor = None  # type: ignore[assignment]
    maps: Tensor | None = None
    reference: Tensor | None = None
    noise: float | None = None
    spacing: tuple[float, float, float] | None = None
    name: str = ""
    meta: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        kspace = fields.complex_array("kspace", self.kspace)
        kspace = kspace[None] if kspace.ndim == 3 else kspace
        if kspace.ndim != 4 or 0 in kspace.shape:
            raise InputError(
                f"expected ([slice,] coil, readout, phase), none of them 0, got {tuple(kspace.shape)}", field="kspace"
            )
        n, _, h, w = kspace.shape
        noise = self.noise
        if noise is not None:
            noise = fields.amount("noise", noise, "a finite σ₀ ≥ 0 in the units of kspace")
        _set(
            self,
            kspace=kspace,
            mask=fields.mask(self.mask, kspace),
            maps=fields.volume("maps", self.maps, tuple(kspace.shape)),
            reference=fields.volume("reference", self.reference, (n, h, w)),
            noise=noise,
            spacing=fields.spacing(self.spacing),
            name=fields.text("name", self.name),
            meta=fields.settings("meta", self.meta),
        )

    def __len__(self) -> int:
        return self.kspace.shape[0]

    def __repr__(self) -> str:
        size = _size({"slices": len(self), "coils": self.coils}, self.matrix)
        known = {"maps": self.maps is not None, "reference": self.reference is not None}
        return (
            f"Scan {self.name!r}: {size}, acceleration {self.acceleration:.2f}\n"
            f"  {_yes_or_no(known)}, noise: {'unknown' if self.noise is None else f'{self.noise:.4g}'}\n"
            f"  spacing: {_millimetres(self.spacing)}"
        )

    def __getitem__(self, index: int | slice) -> Scan:
        """Return a scan of some slices. An index works as in a list, but gives a scan of one slice.

        Of a dynamic scan, ``meta["frames"]`` lists the frames and places of these slices.
        """
        if not isinstance(index, slice):
            at = range(len(self))[operator.index(index)]
            index = slice(at, at + 1)
        wanted = range(len(self))[index]
        about = geometry.cut(self.spacing, self.meta, wanted.start, wanted.step if len(wanted) > 1 else 1)
        return _taken(self, index, about | {"meta": frame_places.of_slices(about["meta"], len(self), wanted)})

    @property
    def coils(self) -> int:
        """Number of receive coils."""
        return self.kspace.shape[1]

    @property
    def matrix(self) -> tuple[int, int]:
        """Size (readout, phase)."""
        return self.kspace.shape[2], self.kspace.shape[3]

    @property
    def acceleration(self) -> float:
        """Grid points per sampled point, averaged over slices; infinite where nothing was sampled."""
        sampled = self.mask.float().mean().item()
        return 1.0 / sampled if sampled else math.inf

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the scan to HDF5. :func:`upmri.load` returns exactly the same values."""
        written: Path = ports.save_scan(self, Path(path), overwrite=overwrite)
        return written


def slice_of(scan: Scan, number: int) -> Scan:
    """Return one slice as a file gives it: ``meta["axes"]`` and ``meta["frames"]`` are those of the whole scan."""
    return _taken(scan, slice(number, number + 1), geometry.cut(scan.spacing, scan.meta, number, 1))


def _taken(scan: Scan, index: slice, about: Settings) -> Scan:
    """Return some slices with ``spacing`` and ``meta`` of their own."""
    return replace(
        scan,
        **about,
        kspace=scan.kspace[index],
        mask=scan.mask[index],
        maps=None if scan.maps is None else scan.maps[index],
        reference=None if scan.reference is None else scan.reference[index],
    )


def as_scan(given: Any) -> Scan:
    """Return a scan as it is, and k-space, an array or a tensor, as a scan; anything else is refused."""
    if isinstance(given, Scan):
        return given
    if isinstance(given, Tensor | np.ndarray):
        return Scan(kspace=given)  # type: ignore[arg-type]  # an array becomes a tensor
    hint = "; upmri.load reads a file" if isinstance(given, str | PathLike) else ""
    kind = type(given).__name__
    raise InputError(f"expected a Scan, or k-space as an array or tensor, got {kind}{hint}", field="scan")


@dataclass(frozen=True, eq=False, kw_only=True)
class Reconstruction:
    """The image that a method reconstructed from a Scan, and how.

    Parameters
    ----------
    image
        Complex (slice, readout, phase) in the units of the scan.
    samples, std
        If several images were drawn: all of them (n, slice, readout, phase), and the standard deviation of the
        magnitude (slice, readout, phase); that of ``upmri`` is averaged over neighbouring pixels.
    reference
        The reference image of the scan, if it has one.
    bounds
        Bounds on the error with the probability that they hold, if they were asked for.
    method, settings, seconds
        Name of the method, all its settings, and the wall-clock time it took.
    versions
        Versions of the programs used, by name; empty if not known.
    spacing, name, meta
        Copied from the scan.

    Examples
    --------
    >>> import torch, upmri
    >>> scan = upmri.simulate(torch.ones(1, 32, 32), coils=4, acceleration=2)
    >>> rec = upmri.reconstruct(scan, "zero-filled")
    >>> rec.image.shape, rec.method
    (torch.Size([1, 32, 32]), 'zero-filled')
    >>> path = rec.save("image.npy")
    """

    image: Tensor
    samples: Tensor | None = None
    std: Tensor | None = None
    reference: Tensor | None = None
    bounds: Bounds | None = None
    method: str = ""
    settings: Settings = field(default_factory=dict)
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    spacing: tuple[float, float, float] | None = None
    name: str = ""
    meta: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        image = fields.complex_array("image", self.image)
        image = image[None] if image.ndim == 2 else image
        if image.ndim != 3 or 0 in image.shape:
            raise InputError(f"expected (slice, readout, phase), got {tuple(image.shape)}", field="image")
        samples = None if self.samples is None else fields.complex_array("samples", self.samples)
        if samples is not None and (samples.ndim != 4 or samples.shape[1:] != image.shape or len(samples) == 0):
            raise InputError(f"expected n images of {tuple(image.shape)}, got {tuple(samples.shape)}", field="samples")
        std = fields.volume("std", self.std, tuple(image.shape))
        if std is not None and bool(((std.real < 0) | (std.imag != 0)).any()):
            raise InputError("expected real values ≥ 0", field="std")
        versions = fields.settings("versions", self.versions)
        lines = getattr(self.bounds, "lines", None)
        if self.bounds is not None and (lines is None or lines.shape != (image.shape[0], image.shape[2])):
            raise InputError(f"expected bounds of {image.shape[0]} slices of {image.shape[2]} lines", field="bounds")
        _set(
            self,
            image=image,
            samples=samples,
            std=None if std is None else std.real.contiguous(),
            reference=fields.volume("reference", self.reference, tuple(image.shape)),
            method=fields.text("method", self.method),
            settings=fields.settings("settings", self.settings),
            seconds=fields.amount("seconds", self.seconds, "a finite duration ≥ 0"),
            versions={key: fields.text(f"versions.{key}", version) for key, version in versions.items()},
            spacing=fields.spacing(self.spacing),
            name=fields.text("name", self.name),
            meta=fields.settings("meta", self.meta),
        )

    def __len__(self) -> int:
        return self.image.shape[0]

    def __repr__(self) -> str:
        _, *matrix = self.image.shape
        samples = 0 if self.samples is None else len(self.samples)
        known = {"reference": self.reference is not None, "std": self.std is not None}
        return (
            f"Reconstruction {self.name!r}: {_size({'slices': len(self)}, matrix)}, "
            f"by {self.method or 'an unknown method'} in {self.seconds:.3g} s\n"
            f"  samples: {samples}, {_yes_or_no(known)}\n"
            f"  spacing: {_millimetres(self.spacing)}"
        ) + ("" if self.bounds is None else f"\n  {self.bounds}")

    def save(self, path: str | Path, *, overwrite: bool = False, complex: bool = False) -> Path:  # noqa: A002
        """Write the image in the format of the path's suffix; ``complex`` keeps the phase where it is optional."""
        written: Path = ports.save_reconstruction(self, path, overwrite=overwrite, complex=complex)
        return written


def _size(counts: dict[str, int], matrix: Iterable[int]) -> str:
    """Return text such as ``2 slices × 16 coils × 128 × 96``."""
    named = (f"{count} {name if count != 1 else name.removesuffix('s')}" for name, count in counts.items())
    return " × ".join((*named, *map(str, matrix)))


def _yes_or_no(known: dict[str, bool]) -> str:
    return ", ".join(f"{name}: {'yes' if there else 'no'}" for name, there in known.items())


def _millimetres(spacing: tuple[float, float, float] | None) -> str:
    return "unknown" if spacing is None else " × ".join(f"{length:.4g}" for length in spacing) + " mm"


def _set(frozen: object, **values: Any) -> None:
    """Assign fields of a frozen dataclass: ``__post_init__`` has no other way to store the values it normalised."""
    for name, value in values.items():
        object.__setattr__(frozen, name, value)
