"""Muon (Jordan and others, 2024) for the weights of convolutions, with AdamW for all others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# Decay of the mean gradient, and the spectral norm of a step of rate 1, so that rates that suit AdamW suit Muon, too.
_DECAY, _SIZE = 0.95, 12.0
# Odd polynomial a x + b x³ + c x⁵ whose iterations bring singular values close to 1, and their number.
_POLYNOMIAL, _ITERATIONS = (3.4445, -4.7750, 2.0315), 5
# Convolutions with fewer input or output channels, the first and last of a network, are left to AdamW. A conditioned
# network has 16 inputs, four of them constant images: with orthogonal steps there, a training that began with good
# weights made them worse (0.15 dB on held-out lines after 1,170 steps, otherwise 0.02 dB).
_LEAST = 32


class Muon(torch.optim.AdamW):
    """AdamW, except that the step of a convolution's weights is an orthogonal matrix.

    The mean gradient of a convolution, a matrix (outputs, inputs · kernel), becomes the nearest matrix with orthogonal
    rows or columns. So all directions in which the layer can change are learnt equally fast, also those with a small
    gradient.

    Parameters
    ----------
    parameters
        Weights to train.
    lr, weight_decay
        Learning rate and weight decay, as for AdamW; they suit both kinds of steps.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, weight_decay: float) -> None:
        given = list(parameters)
        self.matrices = [p for p in given if is_matrix(p)]
        super().__init__([p for p in given if not is_matrix(p)], lr=lr, weight_decay=weight_decay)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove all gradients."""
        super().zero_grad(set_to_none)
        for matrix in self.matrices:
            matrix.grad = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Change all weights that have a gradient."""
        loss = super().step(closure)
        group = self.param_groups[0]
        for matrix in self.matrices:
            if matrix.grad is None:
                continue
            state = self.state[matrix]
            if not state:
                state["exp_avg"] = torch.zeros_like(matrix)
            mean = state["exp_avg"].lerp_(matrix.grad, 1 - _DECAY)
            ahead = torch.lerp(mean, matrix.grad, 1 - _DECAY).flatten(1)
            change = orthogonal(ahead).view(matrix.shape)
            matrix.mul_(1 - group["lr"] * group["weight_decay"])
            matrix.add_(change, alpha=-group["lr"] * _SIZE)
        return loss


def is_matrix(weights: Tensor) -> bool:
    """Whether Muon trains these weights: those of convolutions with enough channels."""
    return weights.ndim == 4 and min(weights.shape[:2]) >= _LEAST


def moments_of(optimiser: torch.optim.AdamW, weights: Tensor) -> tuple[str, ...]:
    """Names of the moments that an optimiser keeps for these weights."""
    return ("exp_avg",) if isinstance(optimiser, Muon) and is_matrix(weights) else ("exp_avg", "exp_avg_sq")


def orthogonal(matrix: Tensor) -> Tensor:
    """The nearest matrix with orthonormal rows or columns, roughly: its singular values are about 1."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T).T
    a, b, c = _POLYNOMIAL
    x = matrix / torch.linalg.vector_norm(matrix).clamp(min=torch.finfo(matrix.dtype).tiny)
    for _ in range(_ITERATIONS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x
