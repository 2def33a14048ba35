"""Sampling with a conditional network D(A*y, x_t, t, σ₀): from noise to images that agree with the data.

D predicts x₀ from the data and from a point of the path x_t = (1−t) x₀ + t x₁. At t = 1 this point contains no
information about x₀, and D is the posterior mean given the data. At smaller t, D depends on the point. Euler steps

    x̂ = D(A*y, x_t, t),    ê = (x_t − (1−t) x̂)/t,    x_t' = (1−t') x̂ + t' ê

on the straight line from x̂ to ê then lead to a different image for each x₁.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from upmri.flow.path import interpolate, noise
from upmri.physics.fourier import MIRRORS, mirror
from upmri.physics.operator import Operator

Predictor = Callable[[Operator, Tensor, Tensor, Tensor, Tensor], Tensor]
"""A conditional network: A, A*y, x_t, t, σ₀ ↦ D, (…, slice, H, W)."""

# Last time of a draw: at smaller times the noise t x₁ is weaker than the noise of a scan.
LAST = 0.005


class Mirrored:
    """The mean of D over a scan and its three mirror images; each result is mirrored back.

    The errors of the four results differ, so that the error of their mean is smaller.

    Parameters
    ----------
    network
        Conditional network D.
    """

    def __init__(self, network: Predictor) -> None:
        self._network = network
        self._operator: Operator | None = None
        self._mirrored: list[Operator] = []

    def __call__(self, operator: Operator, adjoint: Tensor, noisy: Tensor, t: Tensor, sigma: Tensor) -> Tensor:
        """Mean of D, (…, slice, H, W)."""
        if operator is not self._operator:  # mirrored operators are kept, because they keep their factors
            self._operator, self._mirrored = operator, [operator.mirror(dims) for dims in MIRRORS[1:]]
        total = torch.zeros_like(noisy)
        for dims, view in zip(MIRRORS, (operator, *self._mirrored), strict=True):
            image = self._network(view, mirror(adjoint, *dims), mirror(noisy, *dims), t, sigma)
            total += mirror(image, *dims)
        return total / len(MIRRORS)


def posterior_mean(network: Predictor, operator: Operator, adjoint: Tensor, sigma: Tensor) -> Tensor:
    """D(A*y, ·, 1, σ₀): the posterior mean given the data, (slice, H, W)."""
    return network(operator, adjoint, torch.zeros_like(adjoint), adjoint.real.new_ones(len(adjoint)), sigma)


def sample(
    network: Predictor,
    operator: Operator,
    mean: Tensor,
    adjoint: Tensor,
    sigma: Tensor,
    *,
    count: int,
    steps: int,
    start: float,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """Draw images (count, slice, H, W), all at the same time.

    Parameters
    ----------
    network
        Conditional network D.
    operator, adjoint, sigma
        Operator A, A*y, (slice, H, W), and noise level σ₀, (slice,).
    mean
        Posterior mean, (slice, H, W), used for D at times above ``start``.
    count, steps
        Number of draws, and number of evaluations of D for each draw.
    start
        First time; later times decrease geometrically to 0.005.
    generators
        One random generator per slice, for x₁.
    """
    t = _times(start, steps)
    x1 = noise(mean.expand(count, *mean.shape), generators)
    x = interpolate(mean.expand_as(x1), x1, mean.real.new_full((1,), t[0]))
    for now, then in zip(t, [*t[1:], 0.0], strict=True):
        predicted = network(operator, adjoint, x, mean.real.new_full((len(adjoint),), now), sigma)
        x = (1 - then) * predicted + then / now * (x - (1 - now) * predicted)
    return x


def _times(start: float, steps: int) -> list[float]:
    if steps == 1:
        return [start]
    ratio = (LAST / start) ** (1 / (steps - 1))
    return [start * ratio**i for i in range(steps)]
