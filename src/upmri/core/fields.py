"""What the fields of a Scan or a Reconstruction may be: each is checked, and brought into one form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from upmri.core.errors import InputError

Settings = dict[str, Any]


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


def complex_array(name: str, value: Any) -> Tensor:
    """Return a finite complex64 CPU tensor; magnitudes are welcome everywhere but in k-space and maps."""
    tensor = _tensor(name, value)
    if not tensor.is_complex() and (name in ("kspace", "maps") or tensor.dtype == torch.bool):
        raise InputError(f"{name}: expected a complex array, got {tensor.dtype}".replace("torch.", ""))
    tensor = tensor.to(torch.complex64)
    if not torch.isfinite(torch.view_as_real(tensor)).all():
        raise InputError(f"{name}: expected finite values, found NaN or infinite ones (after conversion to complex64)")
    return tensor


def volume(name: str, value: Any, shape: tuple[int, ...]) -> Tensor | None:
    """Return a complex64 tensor of this shape, of which a single slice may come without its axis; None stays None."""
    if value is None:
        return None
    tensor = complex_array(name, value)
    volume = tensor[None] if tensor.ndim == len(shape) - 1 else tensor
    if volume.shape != shape:
        raise InputError(f"{name}: expected shape {shape}, got {tuple(tensor.shape)}")
    return volume


def amount(name: str, value: Any, what: str) -> float:
    """Return a finite number ≥ 0."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise InputError(f"{name}: expected {what}, got {value!r}")
    return number


def spacing(value: Any) -> tuple[float, float, float] | None:
    """Return three lengths > 0; None stays None."""
    if value is None:
        return None
    try:
        spacing = tuple(float(length) for length in value)
    except (TypeError, ValueError, RuntimeError):
        spacing = ()
    if len(spacing) != 3 or not all(math.isfinite(length) and length > 0 for length in spacing):
        raise InputError(f"spacing: expected three lengths in mm > 0, (readout, phase, slice), got {value!r}")
    return spacing


def text(name: str, value: Any) -> str:
    """Return text, and take nothing else for it."""
    if not isinstance(value, str):
        raise InputError(f"{name}: expected text, got {type(value).__name__}")
    return value


def settings(name: str, value: Any) -> Settings:
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


def mask(value: Any, kspace: Tensor) -> Tensor:
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
                f"got {tuple(given.shape)}"
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
