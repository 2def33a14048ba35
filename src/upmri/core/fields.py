"""The fields of a Scan or a Reconstruction: each is checked and brought into one form.

The name of a field is given for the :class:`InputError` that a wrong value raises.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from upmri.core.errors import InputError

Settings = dict[str, Any]
# False in a process that only hands scans on, to one that checks them: types and shapes are still checked, but arrays
# are not searched for NaN, nor a given mask compared with the zeros of k-space.
check_values = True
# Largest magnitudes of k-space that can be squared and added in single precision.
_SCALE = (1e-18, 1e16)
# Bits of a complex64 number without the signs of its parts.
_BUT_SIGNS = np.uint64(0x7FFFFFFF_7FFFFFFF)


def from_numpy(value: Any) -> Tensor:
    """Return a tensor of a NumPy array of any byte order and strides, read-only or not; copied only where needed."""
    array = np.require(value, requirements=["C", "W"])
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def cpu_tensor(name: str, value: Any) -> Tensor:
    """Return a dense CPU tensor of a tensor or NumPy array of any numeric type."""
    try:
        tensor: Tensor = value if isinstance(value, Tensor) else from_numpy(value)
        # torch conjugates and negates lazily; code that reads the memory needs the values.
        tensor = tensor.detach().cpu().to_dense().resolve_conj().resolve_neg()
    except (TypeError, ValueError, RuntimeError) as error:
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InputError(f"expected a numeric array or tensor, got {kind}", field=name) from error
    return tensor


def complex_array(name: str, value: Any) -> Tensor:
    """Return a finite complex64 CPU tensor. Real values are accepted, except in k-space and maps."""
    tensor = cpu_tensor(name, value)
    if not tensor.is_complex() and (name in ("kspace", "maps") or tensor.dtype == torch.bool):
        raise InputError(f"expected a complex array, got {str(tensor.dtype).removeprefix('torch.')}", field=name)
    tensor = tensor.to(torch.complex64)
    # The extremes, which NaN and infinity reach: twenty times faster than a comparison of each value.
    ends = _extremes(tensor) if check_values else ()
    if not all(bound.isfinite() for bound in ends):
        hint = "; samples that were not acquired are 0" if name == "kspace" else ""
        raise InputError(f"expected finite values in single precision, found NaN or infinity{hint}", field=name)
    largest = max((abs(float(bound)) for bound in ends), default=0.0)
    if name == "kspace" and largest and not _SCALE[0] <= largest <= _SCALE[1]:
        raise InputError(
            f"expected values of which the largest is between {_SCALE[0]:g} and {_SCALE[1]:g}, got {largest:.2g}; "
            "multiply all of k-space by one number",
            field=name,
        )
    return tensor


def has_samples(kspace: Tensor, *dims: int) -> Tensor:
    """Return where complex64 values are not 0 in any position along these axes.

    All bits of a sum over ``|`` but the signs: several times faster than a comparison of each value.
    """
    values = kspace.contiguous().numpy().view(np.uint64)
    return torch.from_numpy((np.bitwise_or.reduce(values, axis=dims) & _BUT_SIGNS) != 0)


def _extremes(tensor: Tensor) -> tuple[Tensor, ...]:
    parts = torch.view_as_real(tensor)
    return tuple(torch.aminmax(parts)) if parts.numel() else ()


def volume(name: str, value: Any, shape: tuple[int, ...]) -> Tensor | None:
    """Return a complex64 tensor of this shape. One slice may come without the slice axis; None stays None."""
    if value is None:
        return None
    tensor = complex_array(name, value)
    volume = tensor[None] if tensor.ndim == len(shape) - 1 else tensor
    if volume.shape != shape:
        raise InputError(f"expected shape {shape}, got {tuple(tensor.shape)}", field=name)
    return volume


def amount(name: str, value: Any, what: str) -> float:
    """Return a finite number ≥ 0."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise InputError(f"expected {what}, got {value!r}", field=name)
    return number


def spacing(value: Any) -> tuple[float, float, float] | None:
    """Return three lengths > 0; None stays None."""
    if value is None:
        return None
    try:
        spacing = () if isinstance(value, str) else tuple(float(length) for length in value)
    except (TypeError, ValueError, RuntimeError):
        spacing = ()
    if len(spacing) != 3 or not all(math.isfinite(length) and length > 0 for length in spacing):
        raise InputError(f"expected three lengths in mm > 0, (readout, phase, slice), got {value!r}", field="spacing")
    return spacing


def text(name: str, value: Any) -> str:
    """Return the value if it is text; nothing is converted."""
    if not isinstance(value, str):
        raise InputError(f"expected text, got {type(value).__name__}", field=name)
    return value


def settings(name: str, value: Any) -> Settings:
    """Return a copy of a dictionary with JSON values only, so that a file gives back what was written."""
    try:
        plain = _plain(name, {} if value is None else value)
    except RecursionError as error:
        raise InputError("expected JSON-like values, got values nested without end", field=name) from error
    if not isinstance(plain, dict):
        raise InputError(f"expected a dictionary, got {type(value).__name__}", field=name)
    return plain


def _plain(name: str, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(f"{name}.{key}", item) for key, item in value.items()}
    raise InputError(f"expected JSON-like values (text as keys), got {type(value).__name__}", field=name)


def mask(value: Any, kspace: Tensor) -> Tensor:
    """Return the mask, bool (slice, 1 or readout, phase): checked against the zeros of k-space, or found from them.

    In a slice whose k-space is 0 throughout nothing counts as sampled, whatever the mask says. One such slice may be
    part of a scan; several slices without any sample are an error.
    """
    n, _, h, w = kspace.shape
    if value is None or check_values:
        filled = has_samples(kspace, 1)  # (slice, readout, phase)
        lines = filled.any(1, keepdim=True)
    if value is None:
        # One zero by chance does not make a line incomplete. More zeros do: a partial echo or a 2-D pattern, whose gaps
        # must not count as measured zeros.
        gaps = (lines & ~filled).sum(1)
        mask = lines if int(gaps.max()) <= max(1, h // 100) else filled
    else:
        given = cpu_tensor("mask", value)
        if given.is_complex() or not bool(((given == 0) | (given == 1)).all()):
            raise InputError("expected booleans (or 0 and 1)", field="mask")
        mask = given.bool()[(None,) * (3 - given.ndim)]
        if mask.ndim != 3 or mask.shape[0] not in (1, n) or mask.shape[1] not in (1, h) or mask.shape[2] != w:
            raise InputError(
                f"expected (slice, 1 or readout, phase), (readout, phase) or (phase,) for {n} slices of {h}×{w}, "
                f"got {tuple(given.shape)}",
                field="mask",
            )
        if h > 1 and mask.shape[1] == h and bool((mask == mask[:, :1]).all()) and not bool(mask.all()):
            mask = mask[:, :1]  # whole lines
        mask = mask.expand(n, -1, -1).contiguous()
        if not check_values:
            return mask
        mask = mask & filled.flatten(1).any(1)[:, None, None]
        stray = int((filled & ~mask).sum())
        if stray:
            raise InputError(
                f"{stray} samples of kspace are not 0 where the mask says nothing was sampled", field="mask"
            )
        sampled, what, spare = (lines, "lines", 0.0) if mask.shape[1] == 1 else (filled, "points", 0.01)
        empty = (mask & ~sampled).flatten(1).sum(1)  # per slice, so that every slice of a valid scan is a valid scan
        if bool((empty > spare * mask.flatten(1).sum(1)).any()):
            raise InputError(
                f"{int(empty.sum())} {what} are marked as sampled, but kspace is 0 there in every coil", field="mask"
            )
    if n > 1 and not bool(mask.any()):
        slices = ", ".join(map(str, range(n)[:8]))
        raise InputError(f"expected samples in some slice; nothing was sampled in slice {slices}", field="mask")
    return mask
