"""The path x_t = (1−t) x₀ + t x₁ from data (t = 0) to noise (t = 1), x₁ ~ CN(0, 2I), and the times for training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Field = Callable[[Tensor, Tensor], Tensor]
"""z (n, H, W) complex, t (n,) ↦ (n, H, W) complex."""


def broadcast(t: Tensor, like: Tensor) -> Tensor:
    """Shape times (slice,) to multiply (slice, …)."""
    return t.reshape(-1, *(1,) * (like.ndim - 1)).to(like.real.dtype)


def interpolate(x0: Tensor, x1: Tensor, t: Tensor) -> Tensor:
    """x_t = (1−t) x₀ + t x₁ for times (slice,)."""
    t = broadcast(t, x0)
    return (1 - t) * x0 + t * x1


def noise(like: Tensor, generator: torch.Generator | Sequence[torch.Generator]) -> Tensor:
    """x₁ ~ CN(0, 2I), unit variance in each of the two real channels, drawn on the generator's device.

    Several generators are one for each slice of ``like``, (…, slice, H, W): a slice gets the same numbers alone as
    within a stack.
    """
    if not isinstance(generator, torch.Generator):
        drawn = [noise(like[..., i : i + 1, :, :], one) for i, one in enumerate(generator)]
        return torch.cat(drawn, -3)
    real = like.real.dtype
    parts = torch.randn(*like.shape, 2, dtype=real, generator=generator, device=generator.device)
    return torch.view_as_complex(parts).to(like.device)


def evaluate_field(field: Field, z: Tensor, t: float) -> Tensor:
    """f(z, t) of (…, H, W) at one time: all leading axes are slices to the field."""
    flat = z.reshape(-1, *z.shape[-2:])
    times = torch.full((len(flat),), t, dtype=flat.real.dtype, device=flat.device)
    return field(flat, times).reshape(z.shape)


@dataclass(frozen=True)
class TimeLaw:
    """t = sigmoid(location + scale · n), n ~ N(0, 1), with a share of the draws at t = 0 exactly.

    Images that peak at 1 and noise of variance 2 have equal energy near t = 0.15, which location 0 rarely draws.

    Parameters
    ----------
    location, scale
        Mean and standard deviation of logit(t).
    at_zero
        Share of the draws at t = 0.
    """

    location: float = 0.0
    scale: float = 1.0
    at_zero: float = 0.0

    def draw_each(self, generators: Sequence[torch.Generator]) -> Tensor:
        """One time from each generator, (slice,), on the CPU."""
        return torch.cat([self.draw(1, generator) for generator in generators])

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Times (count,)."""
        device = generator.device
        t = torch.sigmoid(self.location + self.scale * torch.randn(count, generator=generator, device=device))
        zero = torch.rand(count, generator=generator, device=device) < self.at_zero
        return torch.where(zero, 0.0, t)
