"""Diffusion with a network that predicts the noise: cosine schedule, training loss, and sampling with data steps.

    x_t = a_t x₀ + σ_t ε,    a_t² = ᾱ_t,  σ_t² = 1 − ᾱ_t,  ε ~ CN(0, 2I),

at levels t = 0 (data), …, T (noise). The network is evaluated at t/T.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from upmri.core.checks import fraction, in_range
from upmri.core.errors import InputError
from upmri.flow.path import Field, evaluate_field, noise
from upmri.physics.solve import per_slice

Mixture = Callable[[Tensor, Tensor], Tensor]
"""New noise n and the network's ε̂ ↦ the noise to add."""
DataStep = Callable[[Tensor, float, float], tuple[Tensor, Tensor | float | Mixture]]
"""Estimate x̂₀, and a', σ' of the next level ↦ x̃₀, and the noise to add: its standard deviation per channel, one number
or (slice,), or a function that mixes it."""

# Bound for |x̂₀|, as images peak near 1. At the first levels x̂₀ is divided by a_T = 5e-5, and errors would grow with it.
BRIGHTEST = 4.0


@dataclass(frozen=True)
class Cosine:
    """The cosine schedule of Nichol and Dhariwal (2021).

        ᾱ_t = ∏ (1 − β_i), i ≤ t,    β_i = min(1 − f(i)/f(i−1), β_max),    f(i) = cos²((i/T + s)/(1 + s) · π/2).

    Parameters
    ----------
    levels
        Number of levels T.
    offset
        Offset s.
    largest
        Largest step β_max, below 1, because f(T) = 0 and a part of the image must remain.
    """

    levels: int = 1000
    offset: float = 0.008
    largest: float = 0.999

    def __post_init__(self) -> None:
        in_range(self, levels=(1, 100_000), offset=(0, 1))
        fraction(self, "largest")

    @cached_property
    def signal(self) -> Tensor:
        """ᾱ of levels 0, …, T, (T + 1,), in double precision."""
        place = torch.arange(self.levels + 1, dtype=torch.float64) / self.levels
        f = ((place + self.offset) / (1 + self.offset) * math.pi / 2).cos().square()
        kept = (f[1:] / f[:-1]).clamp_min(1 - self.largest)
        return torch.cat([f.new_ones(1), kept.cumprod(0)])

    def scales(self, level: int) -> tuple[float, float]:
        """a_t and σ_t."""
        signal = self.signal[level].item()
        return math.sqrt(signal), math.sqrt(1 - signal)

    def draw(self, generators: Sequence[torch.Generator]) -> Tensor:
        """One level from each generator, (slice,), uniform on 1, …, T."""
        return torch.cat([torch.randint(1, self.levels + 1, (1,), generator=g) for g in generators])

    def way_back(self, steps: int) -> list[int]:
        """Levels T, …, 0 of ``steps`` steps, evenly spaced."""
        if not 1 <= steps <= self.levels:
            raise InputError(f"expected 1 to {self.levels}, got {steps}", field="steps")
        return [round(self.levels * i / steps) for i in range(steps, -1, -1)]


def noise_loss(network: Field, schedule: Cosine, x0: Tensor, eps: Tensor, level: Tensor) -> Tensor:
    """Mean over pixels of |ε_θ(a_t x₀ + σ_t ε, t/T) − ε|², (slice,), at levels (slice,)."""
    signal = schedule.signal[level][:, None, None]
    a, sigma = (root.to(x0.real) for root in (signal.sqrt(), (1 - signal).sqrt()))
    predicted = network(a * x0 + sigma * eps, (level / schedule.levels).to(x0.real))
    return (predicted - eps).abs().square().mean((1, 2))


@torch.no_grad()
def denoise(
    network: Field,
    schedule: Cosine,
    x: Tensor,
    data_step: DataStep,
    *,
    steps: int,
    eta: float,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """Sample images x̃₀, (…, slice, H, W): at each level an estimate, a data step, and noise of the next level.

        x̂₀ = (x_t − σ_t ε̂)/a_t,    x_t' = a' x̃₀ + g (η n + √(1−η²) ε̂),    (x̃₀, g) = data_step(x̂₀, a', σ').

    A data step may also return the function (n, ε̂) ↦ noise, where the noise differs from direction to direction.

    Parameters
    ----------
    network, schedule
        Network ε_θ, which predicts ε̂ = ε_θ(x_t, t/T), and schedule with T levels.
    x
        Noise of the first level, (…, slice, H, W).
    data_step
        Step that combines the estimate with the data.
    steps
        Number of levels, each with one evaluation of the network.
    eta
        Share η of new noise at each level.
    generators
        One random generator per slice, for n ~ CN(0, 2I).
    """
    for now, then in pairwise(schedule.way_back(steps)):
        (a, sigma), (next_a, next_sigma) = schedule.scales(now), schedule.scales(then)
        eps = evaluate_field(network, x, now / schedule.levels)
        guess = (x - sigma * eps) / a
        guess = guess * (BRIGHTEST / guess.abs()).clamp_max(1)
        image, rest = data_step(guess, next_a, next_sigma)
        fresh = noise(x, generators)
        if callable(rest):
            x = next_a * image + rest(fresh, eps)
        else:
            x = next_a * image + per_slice(rest, x) * (eta * fresh + math.sqrt(1 - eta**2) * eps)
    return x
