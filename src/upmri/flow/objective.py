"""The projected objective without ground truth: one residual, three projections of it, and a divergence term.

With noise e in y₀ = A x₀ + e, a network's prediction p of a target u = a' x₀ + b' x₁ (the image: a' = 1, b' = 0; the
velocity: a' = −1, b' = 1) can be compared with the data only through A. Its error through a filter R of N = A*A,

    E⟨p − u, R N (p − u)⟩ = E⟨p, R N p⟩ − 2 Re E⟨p, R A* u_Y⟩ + 2 Re E⟨p, R A* a' e⟩ + const,    u_Y = a' y₀ + b' A x₁,

has the gradient 2 r in p, r = R (N p − A* u_Y), and a last term that vanishes when e did not enter p, and is otherwise,
by Stein's lemma, 2 a' σ₀² times the divergence of R A* p in the data. R is

- N⁺ by k steps of conjugate gradients: the paper's projection, P = N⁺ N;
- B = (N + λI)⁻¹: the damped one, W = B N;
- I on lines that were not input to the network: no solve, and no divergence.

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
    """R = N⁺, approximated by k steps of conjugate gradients from 0."""

    iterations: int = 10

    def __call__(self, operator: Operator, image: Tensor) -> Tensor:
        """R applied."""
        return conjugate_gradients(operator.normal, image, 0.0, iterations=self.iterations)


@dataclass(frozen=True)
class DampedFilter:
    """R = B = (N + λI)⁻¹."""

    damping: float | Tensor

    def __call__(self, operator: Operator, image: Tensor) -> Tensor:
        """R applied."""
        return operator.solve(image, self.damping)


def no_filter(operator: Operator, image: Tensor) -> Tensor:  # noqa: ARG001
    """R = I: the plain error on the sampled lines."""
    return image


def projected_loss(prediction: Tensor, operator: Operator, target: Tensor, filter_: Filter) -> Tensor:
    """Loss of each slice, (slice,), whose gradient in the prediction is 2 r, r = R (N p − A* u_Y).

    Its value is Re⟨p, r − R A* u_Y⟩ = ⟨p, R N p⟩ − 2 Re⟨p, R A* u_Y⟩: the squared error but for a constant.

    Parameters
    ----------
    prediction
        p, (slice, H, W).
    operator
        A of the loss lines.
    target
        A* u_Y, (slice, H, W).
    filter_
        R. No graph goes through it.
    """
    residual, aim = filtered(prediction, operator, target, filter_)
    return loss_of(prediction, residual, aim)


@torch.no_grad()
def filtered(prediction: Tensor, operator: Operator, target: Tensor, filter_: Filter, *others: Tensor) -> Tensor:
    """R applied to N p − A* u_Y, to A* u_Y and to other images, all at once."""
    return filter_(operator, torch.stack([operator.normal(prediction) - target, target, *others]))


def loss_of(prediction: Tensor, residual: Tensor, aim: Tensor) -> Tensor:
    """:func:`projected_loss` from r and R A* u_Y."""
    with torch.no_grad():
        value = _inner(prediction, residual - aim)
    surrogate = 2 * _inner(prediction, residual)
    return value + (surrogate - surrogate.detach())


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """Re⟨a, b⟩ of each slice."""
    return (a.conj() * b).real.flatten(1).sum(1)
