"""The way back from noise to images that a scan allows, with a network D(A*y, x_t, t, σ₀) that knows the scan.

D predicts x₀ from the data and from a point of the path x_t = (1−t) x₀ + t x₁. At t = 1 that point says nothing: D is
the mean of what the data allow, the read-out. Further down D takes sides with the noise that it is shown, and

    x̂ = D(A*y, x_t, t),    ê = (x_t − (1−t) x̂)/t,    x_t' = (1−t') x̂ + t' ê

leads from different noise to different images, Euler's way along the straight line from x̂ to ê.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from upmri.flow.path import interpolate, noise
from upmri.physics.fourier import mirror
from upmri.physics.sense import SenseOperator

Predictor = Callable[[SenseOperator, Tensor, Tensor, Tensor, Tensor], Tensor]
"""A, A*y, x_t, t, σ₀ ↦ D."""

# Below this time the noise is weaker than a scan's own, and nothing is left to decide.
LAST = 0.005


# The axes about which a scan is mirrored, one after another.
_MIRRORS: tuple[tuple[int, ...], ...] = ((), (-1,), (-2,), (-2, -1))


class Mirrored:
    """The mean of what D makes of a scan and of its three mirror images, each mirrored back.

    What is left of an image's errors when it is made four times in different ways: they are not the same in all.
    """

    def __init__(self, network: Predictor) -> None:
        self._network = network
        self._operator: SenseOperator | None = None
        self._mirrored: list[SenseOperator] = []

    def __call__(self, operator: SenseOperator, adjoint: Tensor, noisy: Tensor, t: Tensor, sigma: Tensor) -> Tensor:
        """D's mean."""
        if operator is not self._operator:  # whose factors are worth keeping
            views = [(_mirror(operator.maps, dims), _mirror(operator.mask, dims)) for dims in _MIRRORS[1:]]
            self._operator, self._mirrored = operator, [SenseOperator(maps, mask) for maps, mask in views]
        total = torch.zeros_like(noisy)
        for dims, seen in zip(_MIRRORS, (operator, *self._mirrored), strict=True):
            image = self._network(seen, _mirror(adjoint, dims), _mirror(noisy, dims), t, sigma)
            total += _mirror(image, dims)
        return total / len(_MIRRORS)


def _mirror(tensor: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in dims:
        tensor = mirror(tensor, dim)
    return tensor


def read_out(network: Predictor, operator: SenseOperator, adjoint: Tensor, sigma: Tensor) -> Tensor:
    """D(A*y, ·, 1, σ₀): the mean of what the data allow, (slice, H, W)."""
    return network(operator, adjoint, torch.zeros_like(adjoint), adjoint.real.new_ones(len(adjoint)), sigma)


def sample(
    network: Predictor,
    operator: SenseOperator,
    mean: Tensor,
    adjoint: Tensor,
    sigma: Tensor,
    *,
    count: int,
    steps: int,
    start: float,
    generator: torch.Generator,
) -> Tensor:
    """Draw images (count, slice, H, W), all of them side by side.

    Parameters
    ----------
    network
        D.
    operator, adjoint, sigma
        A, A*y, (slice, H, W), and σ₀, (slice,).
    mean
        The read-out: D above ``start``, where noise drowns whatever else the path could tell.
    count, steps
        Draws, and evaluations of D for each.
    start
        The time to start from; from there to the end the times fall geometrically.
    generator
        Of x₁.
    """
    t = _times(start, steps)
    x1 = noise(mean.expand(count, *mean.shape), generator)
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
