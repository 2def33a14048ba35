"""The two nouns that flow: a Scan goes into a method, a Reconstruction comes out."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from upmri.errors import InputError

Settings = dict[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan:
    """Undersampled multi-coil k-space of one or more slices, with what is known about it.

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
        A label, and whatever else the file said (JSON-like values).
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
        kspace = _complex("kspace", self.kspace)
        kspace = kspace[None] if kspace.ndim == 3 else kspace
        if kspace.ndim != 4 or 0 in kspace.shape:
            raise InputError(f"kspace: expected ([slice,] coil, readout, phase), none of them 0, got {_shape(kspace)}")
        n, _, h, w = kspace.shape
        noise = None if self.noise is None else _amount("noise", self.noise, "a finite σ₀ ≥ 0 in the units of kspace")
        _set(
            self,
            kspace=kspace,
            mask=_mask(self.mask, kspace),
            maps=_volume("maps", self.maps, tuple(kspace.shape)),
            reference=_volume("reference", self.reference, (n, h, w)),
            noise=noise,
            spacing=_spacing(self.spacing),
            name=_text("name", self.name),
            meta=_settings("meta", self.meta),
        )

    def __len__(self) -> int:
        return self.kspace.shape[0]

    def __getitem__(self, index: int | slice) -> Scan:
        """Return the scan of some slices only; like a list's, but that one slice is a scan of one slice."""
        from upmri.formats import geometry

        if not isinstance(index, slice):
            at = range(len(self))[operator.index(index)]
            index = slice(at, at + 1)
        wanted = range(len(self))[index]
        return replace(
            self,
            **geometry.cut(self.spacing, self.meta, wanted.start, wanted.step if len(wanted) > 1 else 1),
            kspace=self.kspace[index],
            mask=self.mask[index],
            maps=None if self.maps is None else self.maps[index],
            reference=None if self.reference is None else self.reference[index],
        )

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
        """Grid points per sampled point, averaged over slices."""
        return 1.0 / self.mask.float().mean().item()

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the scan to HDF5, bit for bit what :func:`upmri.load` gives back."""
        from upmri.formats import native

        return native.write_scan(self, Path(path), overwrite=overwrite)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reconstruction:
    """What a method made of a Scan.

    Parameters
    ----------
    image
        Complex (slice, readout, phase) in the units of the scan.
    samples, std
        When several were drawn: (n, slice, readout, phase), and their deviation (slice, readout, phase).
    reference
        The scan's, when it had one.
    method, settings, seconds
        How it was made: the method's name, every setting that shaped it, and the wall-clock time it took.
    spacing, name, meta
        The scan's.
    """

    image: Tensor
    samples: Tensor | None = None
    std: Tensor | None = None
    reference: Tensor | None = None
    method: str = ""
    settings: Settings = field(default_factory=dict)
    seconds: float = 0.0
    spacing: tuple[float, float, float] | None = None
    name: str = ""
    meta: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        image = _complex("image", self.image)
        image = image[None] if image.ndim == 2 else image
        if image.ndim != 3 or 0 in image.shape:
            raise InputError(f"image: expected (slice, readout, phase), got {_shape(image)}")
        samples = None if self.samples is None else _complex("samples", self.samples)
        if samples is not None and (samples.ndim != 4 or samples.shape[1:] != image.shape or len(samples) == 0):
            raise InputError(f"samples: expected n of the image's {_shape(image)}, got {_shape(samples)}")
        std = _volume("std", self.std, tuple(image.shape))
        if std is not None and bool(((std.real < 0) | (std.imag != 0)).any()):
            raise InputError("std: expected real values ≥ 0")
        _set(
            self,
            image=image,
            samples=samples,
            std=None if std is None else std.real.contiguous(),
            reference=_volume("reference", self.reference, tuple(image.shape)),
            method=_text("method", self.method),
            settings=_settings("settings", self.settings),
            seconds=_amount("seconds", self.seconds, "a finite duration ≥ 0"),
            spacing=_spacing(self.spacing),
            name=_text("name", self.name),
            meta=_settings("meta", self.meta),
        )

    def __len__(self) -> int:
        return self.image.shape[0]

    def save(self, path: str | Path, *, overwrite: bool = False, complex: bool = False) -> Path:  # noqa: A002
        """Write the image by the path's suffix; ``complex`` keeps the phase where the format allows a choice."""
        from upmri.formats import save

        return save(self, path, overwrite=overwrite, complex=complex)


def _set(frozen: object, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _tensor(name: str, value: Any) -> Tensor:
    """Return a CPU tensor of any numeric array, whatever its byte order and strides, or if it is read-only."""
    try:
        if not isinstance(value, Tensor):
            value = np.require(value, requirements=["C", "W"])
            value = torch.as_tensor(value.astype(value.dtype.newbyteorder("="), copy=False))
        # A conjugation or negation that torch has put off is done here, before anything looks at the numbers.
        tensor: Tensor = value.detach().cpu().resolve_conj().resolve_neg()
    except (TypeError, ValueError, RuntimeError) as error:
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InputError(f"{name}: expected a numeric array or tensor, got {kind}") from error
    return tensor


def _complex(name: str, value: Any) -> Tensor:
    """Return a finite complex64 CPU tensor; magnitudes are welcome everywhere but in k-space and maps."""
    tensor = _tensor(name, value)
    if not tensor.is_complex() and (name in ("kspace", "maps") or tensor.dtype == torch.bool):
        raise InputError(f"{name}: expected a complex array, got {tensor.dtype}".replace("torch.", ""))
    tensor = tensor.to(torch.complex64)
    if not torch.isfinite(torch.view_as_real(tensor)).all():
        raise InputError(f"{name}: expected finite values, found NaN or infinite ones (after conversion to complex64)")
    return tensor


def _volume(name: str, value: Any, shape: tuple[int, ...]) -> Tensor | None:
    """Return a complex64 tensor of this shape, of which a single slice may come without its axis; None stays None."""
    if value is None:
        return None
    tensor = _complex(name, value)
    volume = tensor[None] if tensor.ndim == len(shape) - 1 else tensor
    if volume.shape != shape:
        raise InputError(f"{name}: expected shape {shape}, got {_shape(tensor)}")
    return volume


def _amount(name: str, value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise InputError(f"{name}: expected {what}, got {value!r}")
    return number


def _spacing(value: Any) -> tuple[float, float, float] | None:
    if value is None:
        return None
    try:
        spacing = tuple(float(length) for length in value)
    except (TypeError, ValueError, RuntimeError):
        spacing = ()
    if len(spacing) != 3 or not all(math.isfinite(length) and length > 0 for length in spacing):
        raise InputError(f"spacing: expected three lengths in mm > 0, (readout, phase, slice), got {value!r}")
    return spacing


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name}: expected text, got {type(value).__name__}")
    return value


def _settings(name: str, value: Any) -> Settings:
    """Return a copy of a dictionary in the values JSON knows, so that what is written is what is read back."""
    try:
        plain = _plain(name, {} if value is None else value)
    except RecursionError as error:
        raise InputError(f"{name}: expected JSON-like values, got some nested without end") from error
    if not isinstance(plain, dict):
        raise InputError(f"{name}: expected a dictionary, got {type(value).__name__}")
    return plain


def _plain(name: str, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(f"{name}[{key!r}]", item) for key, item in value.items()}
    raise InputError(f"{name}: expected JSON-like values (text as keys), got {type(value).__name__}")


def _mask(value: Any, kspace: Tensor) -> Tensor:
    """Return the mask as bool (slice, 1 or readout, phase), checked against or found from where k-space is not 0."""
    n, _, h, w = kspace.shape
    filled = (kspace != 0).any(1)  # (slice, readout, phase)
    lines = filled.any(1, keepdim=True)
    if value is None:
        # A line with a stray zero is still a whole line. With more of them it is not: a partial echo, or a 2-D pattern,
        # whose gaps must not pass for measured zeros.
        gaps = (lines & ~filled).sum(1)
        mask = lines if int(gaps.max()) <= max(1, h // 100) else filled
    else:
        given = _tensor("mask", value)
        if given.is_complex() or not bool(((given == 0) | (given == 1)).all()):
            raise InputError("mask: expected booleans (or 0 and 1)")
        mask = given.bool()[(None,) * (3 - given.ndim)]
        if mask.ndim != 3 or mask.shape[0] not in (1, n) or mask.shape[1] not in (1, h) or mask.shape[2] != w:
            raise InputError(
                f"mask: expected (slice, 1 or readout, phase), (readout, phase) or (phase,) for {n} slices of {h}×{w}, "
                f"got {_shape(given)}"
            )
        mask = mask.expand(n, -1, -1).contiguous()
        stray = int((filled & ~mask).sum())
        if stray:
            raise InputError(f"mask: {stray} samples of kspace are not 0 where the mask says nothing was sampled")
        sampled, what, spare = (lines, "lines", 0.0) if mask.shape[1] == 1 else (filled, "points", 0.01)
        empty = (mask & ~sampled).flatten(1).sum(1)  # per slice, so that every slice of a valid scan is a valid scan
        if bool((empty > spare * mask.flatten(1).sum(1)).any()):
            raise InputError(
                f"mask: {int(empty.sum())} {what} are marked as sampled, but kspace is 0 there in every coil"
            )
    bare = (~mask.flatten(1).any(1)).nonzero().flatten().tolist()
    if bare:
        raise InputError(f"mask: nothing was sampled in slice {', '.join(map(str, bare[:8]))}; expected some of it")
    return mask
