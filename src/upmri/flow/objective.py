"""The projected objective without ground truth: a filtered residual, and a divergence term.

A network's prediction p of a target u = a' x₀ + b' x₁ (the image: a' = 1, b' = 0; the velocity: a' = −1, b' = 1) can be
compared with data y₀ = A x₀ + e only through A. Its error with a filter R, a function of N = A*A,

    E⟨p − u, R N (p − u)⟩ = E⟨p, R N p⟩ − 2 Re E⟨p, R A* u_Y⟩ + 2 Re E⟨p, R A* a' e⟩ + const,    u_Y = a' y₀ + b' A x₁,

has the gradient 2 r in p, with r = R (N p − A* u_Y), except for the last term. This term is 0 if p does not depend on
e. Otherwise, by Stein's lemma, it is 2 a' σ₀² times the divergence of R A* p in the data. R is one of

- N⁺ by k steps of conjugate gradients, the projection P = N⁺ N of the paper;
- B = (N + λI)⁻¹, the damped projection W = B N;
- I, on lines that were not input to the network, without solve and without divergence.

With the identity for A and a full image for y₀ this is supervised flow matching.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.physics.operator import Operator
from upmri.physics.solve import conjugate_gradients

Filter = Callable[[Operator, Tensor], Tensor]
"""R as a function of A and an image."""


@dataclass(frozen=True)
class KrylovFilter:
    """R = N⁺, approximated by k = ``iterations`` steps of conjugate gradients from 0."""

    iterations: int = 10

    def __call__(self, operator: Operator, image: Tensor) -> Tensor:
        """R x, (…, slice, H, W)."""
        return conjugate_gradients(operator.normal, image, 0.0, iterations=self.iterations)


@dataclass(frozen=True)
class DampedFilter:
    """R = B = (N + λI)⁻¹, with λ = ``damping``, one number or (slice,)."""

    damping: float | Tensor

    def __call__(self, operator: Operator, image: Tensor) -> Tensor:
        """R x, (…, slice, H, W)."""
        return operator.solve(image, self.damping)


def no_filter(operator: Operator, image: Tensor) -> Tensor:  # noqa: ARG001
    """R = I: the plain error on the sampled lines."""
    return image


def projected_loss(prediction: Tensor, operator: Operator, target: Tensor, filter_: Filter) -> Tensor:
    """Loss of each slice, (slice,), whose gradient in the prediction is 2 r, r = R (N p − A* u_Y).

    Its value is Re⟨p, r − R A* u_Y⟩ = ⟨p, R N p⟩ − 2 Re⟨p, R A* u_Y⟩, the squared error up to a constant.

    Parameters
    ----------
    prediction
        Prediction p, (slice, H, W).
    operator
        Operator A of the loss lines.
    target
        Target A* u_Y, (slice, H, W).
    filter_
        Filter R; no gradients flow through it.
    """
    residual, filtered_target = filtered(prediction, operator, target, filter_)
    return loss_of(prediction, residual, filtered_target)


@torch.no_grad()
def filtered(prediction: Tensor, operator: Operator, target: Tensor, filter_: Filter, *others: Tensor) -> Tensor:
    """R (N p − A* u_Y), R A* u_Y and R z of other images z, stacked, computed in one call of the filter."""
    return filter_(operator, torch.stack([operator.normal(prediction) - target, target, *others]))


def loss_of(prediction: Tensor, residual: Tensor, filtered_target: Tensor) -> Tensor:
    """:func:`projected_loss` from r and R A* u_Y, (slice,)."""
    with torch.no_grad():
        value = _inner(prediction, residual - filtered_target)
    surrogate = 2 * _inner(prediction, residual)
    return value + (surrogate - surrogate.detach())


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """Re⟨a, b⟩ of each slice."""
    return (a.conj() * b).real.flatten(1).sum(1)
