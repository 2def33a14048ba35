"""Accelerated proximal gradients, and the proximal map of the 1-norm."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def accelerated(step: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> Tensor:
    """Return x_K of x_k = P(z_k), z_{k+1} = x_k + (t_k − 1)/t_{k+1} (x_k − x_{k−1}) (Beck & Teboulle 2009).

    Parameters
    ----------
    step
        z ↦ P(z) = prox(z − τ∇f(z)), one step of proximal gradients.
    start, steps
        First z, and the number of steps K.
    """
    x = z = start
    t = 1.0
    for _ in range(steps):
        before, x = x, step(z)
        t_next = (1 + math.sqrt(1 + 4 * t**2)) / 2
        z = x + (t - 1) / t_next * (x - before)
        t = t_next
    return x


def soft(values: Tensor, threshold: float | Tensor) -> Tensor:
    """Shrink complex values towards 0: c max(0, 1 − λ/|c|)."""
    size = values.abs()
    return values * torch.where(size > threshold, 1 - threshold / size, 0)
