"""The path x_t = (1−t) x₀ + t x₁ from images (t = 0) to noise (t = 1), x₁ ~ CN(0, 2I), and random times on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.checks import in_range

Field = Callable[[Tensor, Tensor], Tensor]
"""A network of images and times: z (n, H, W) complex, t (n,) ↦ (n, H, W) complex."""


def interpolate(x0: Tensor, x1: Tensor, t: Tensor) -> Tensor:
    """x_t = (1−t) x₀ + t x₁, (slice, …), for times (slice,)."""
    t = t.reshape(-1, *(1,) * (x0.ndim - 1)).to(x0.real.dtype)
    return (1 - t) * x0 + t * x1


def noise(like: Tensor, generator: torch.Generator | Sequence[torch.Generator]) -> Tensor:
    """x₁ ~ CN(0, 2I) of the shape of ``like``, (…, slice, H, W): variance 1 in each of the two real channels.

    It is drawn on the generator's device. With one generator per slice, a slice gets the same numbers alone as within a
    stack.
    """
    if not isinstance(generator, torch.Generator):
        drawn = [noise(like[..., i : i + 1, :, :], one) for i, one in enumerate(generator)]
        return torch.cat(drawn, -3)
    real = like.real.dtype
    parts = torch.randn(*like.shape, 2, dtype=real, generator=generator, device=generator.device)
    return torch.view_as_complex(parts).to(like.device)


def evaluate_field(field: Field, z: Tensor, t: float) -> Tensor:
    """f(z, t) of z (…, H, W) at one time t; all leading axes become one axis of slices."""
    flat = z.reshape(-1, *z.shape[-2:])
    times = torch.full((len(flat),), t, dtype=flat.real.dtype, device=flat.device)
    return field(flat, times).reshape(z.shape)


@dataclass(frozen=True)
class TimeLaw:
    """Random times t = sigmoid(location + scale · n), n ~ N(0, 1), and a share of exact zeros.

    Images that peak at 1 and noise of variance 2 have equal energy near t = 0.15, which is rare with location 0.

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

    def __post_init__(self) -> None:
        in_range(self, location=(-100, 100), scale=(0, 100), at_zero=(0, 1))

    def draw_each(self, generators: Sequence[torch.Generator]) -> Tensor:
        """One time from each generator, (slice,), on the CPU."""
        return torch.cat([self.draw(1, generator) for generator in generators])

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Times (count,)."""
        device = generator.device
        t = torch.sigmoid(self.location + self.scale * torch.randn(count, generator=generator, device=device))
        zero = torch.rand(count, generator=generator, device=device) < self.at_zero
        return torch.where(zero, 0.0, t)
