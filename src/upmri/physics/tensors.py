"""Tensors among Python objects: taken from NumPy, checked, found, moved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.core.fields import from_numpy

Array = Tensor | np.ndarray[Any, Any]
Target = str | torch.device | torch.dtype


def as_tensor(value: Array) -> Tensor:
    """Turn a NumPy array into a tensor; tensors stay as they are."""
    return value if isinstance(value, Tensor) else from_numpy(value)


def holders(value: Any) -> Iterator[Any]:
    """Whatever has a ``device`` and a ``dtype`` within a value: tensors, those of modules, and operators."""
    if isinstance(value, nn.Module):
        yield from [*value.parameters(), *value.buffers()]
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from holders(part)
    elif isinstance(getattr(value, "device", None), torch.device) and hasattr(value, "dtype"):
        yield value


def moved(value: Any, target: Target) -> Any:
    """Copy a value with its tensors on a device, or in a precision (a complex type or its real one)."""
    if isinstance(value, Tensor):
        if not isinstance(target, torch.dtype):
            return value.to(target)
        if value.is_complex():
            return value.to(target.to_complex())
        return value.to(target.to_real()) if value.is_floating_point() else value
    if isinstance(value, nn.Module):
        return copy.deepcopy(value)._apply(lambda tensor: moved(tensor, target))
    if isinstance(value, dict):
        return {key: moved(part, target) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(moved(part, target) for part in value)
    return value.to(target) if next(holders(value), None) is not None else value


def as_complex(value: Array) -> Tensor:
    """Turn real numbers into complex ones of the same precision; complex ones stay as they are."""
    value = as_tensor(value)
    return value if value.is_complex() else value.to(torch.promote_types(value.dtype, torch.complex64))


def of_shape(value: Array, shape: tuple[int, ...], field: str) -> Tensor:
    """Turn an array of exactly this shape into a tensor; one with fewer slices or coils would be broadcast."""
    value = as_tensor(value)
    if tuple(value.shape) != shape:
        raise InputError(f"expected {shape}, got {tuple(value.shape)}", field=field)
    return value


def of_all(parts: Sequence[Tensor | None], device: torch.device | str, field: str) -> Tensor | None:
    """What all scans have, one after another, or None if none of them has it."""
    given = [part.to(device) for part in parts if part is not None]
    if given and len(given) < len(parts):
        raise InputError(
            f"expected them of all scans or of none, got those of {len(given)} of {len(parts)}", field=field
        )
    return torch.cat(given) if given else None


def expect(value: Array, shape: tuple[int, ...], field: str) -> None:
    """Refuse a tensor that is not (…, shape), which might be broadcast to something else."""
    if value.shape[max(value.ndim - len(shape), 0) :] != shape:
        raise InputError(f"expected (…, {', '.join(map(str, shape))}), got {tuple(value.shape)}", field=field)


def each(apply: Callable[[Tensor], Any], value: Tensor, shape: tuple[int, ...], field: str) -> Tensor:
    """Apply a function of tensors of one shape to every entry of the leading axes; no gradients, NumPy results allowed.

    Parameters
    ----------
    apply
        The function.
    value
        (…, shape).
    shape
        Shape of one entry.
    field
        What the value is called in an error.
    """
    expect(value, shape, field)
    lead = value.shape[: value.ndim - len(shape)]
    value = value.detach().resolve_conj().resolve_neg()  # NumPy knows no lazy conjugates
    entries = value.reshape(-1, *shape)
    results = torch.stack([as_tensor(apply(entry)).to(value.device, value.dtype) for entry in entries])
    return results.reshape(*lead, *results.shape[1:])


def unit_maps(maps: Tensor) -> Tensor:
    """Coil maps (slice, coil, H, W) with Σ|S_c|² = 1 wherever they are not 0."""
    length = torch.linalg.vector_norm(maps, dim=1, keepdim=True)
    return maps / length.clamp_min(torch.finfo(length.dtype).tiny)


def near_peak(values: Tensor) -> Tensor:
    """The 99.9th percentile over the last axis, from the largest values alone: sorting all of them is slow."""
    at = 0.999 * (values.shape[-1] - 1)
    below = int(at)
    largest = values.topk(values.shape[-1] - below).values
    above = largest[..., -2] if largest.shape[-1] > 1 else largest[..., -1]
    return torch.lerp(largest[..., -1], above, at - below)
