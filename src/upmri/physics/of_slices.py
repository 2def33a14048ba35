"""Values of each slice that a caller gives: noise levels and random seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from upmri.core.checks import checked_seed
from upmri.core.errors import InputError


def noise_levels(
    sigma: float | Tensor | Callable[[], Tensor] | None, count: int
) -> Tensor | Callable[[], Tensor] | None:
    """Return σ₀ of ``count`` slices as a tensor; a function that returns it later, or None, stays as it is."""
    if sigma is None or callable(sigma):
        return sigma
    try:
        levels = torch.as_tensor(sigma)
    except (TypeError, ValueError, RuntimeError):
        levels = torch.zeros(0)
    right = not levels.is_complex() and levels.dtype != torch.bool and levels.shape in ((), (1,), (count,))
    # A tensor on a device is not looked at: that would wait for it.
    if not right or (levels.device.type == "cpu" and not bool((levels.isfinite() & (levels >= 0)).all())):
        raise InputError(f"expected σ₀ ≥ 0, one number or {count}, one per slice, got {sigma!r}", field="sigma")
    return levels


def seeds_of_slices(seeds: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return one seed for each of ``count`` slices; one number is taken for all."""
    each = seeds if isinstance(seeds, Iterable) else [seeds] * count
    values = tuple(checked_seed(seed, "seeds") for seed in each)
    if len(values) != count:
        raise InputError(f"expected one number or {count}, one per slice, got {len(values)}", field="seeds")
    return values
