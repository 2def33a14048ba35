"""MoDL (Aggarwal, Mani and Jacob 2019): one small CNN, used many times, with exact data consistency in between."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from upmri.networks.cnn import Cnn, on_channels
from upmri.physics.operator import Operator


class MoDL(nn.Module):
    """K unrolls that share one CNN and one damping λ > 0.

    From x = A*y, each unroll adds what the CNN C sees fit and returns to the data:

        z = x + D C(x),    x = (N + λI)⁻¹ (A*y + λ z).

    The solve is exact for masks of lines, and its gradient, in λ too, comes from the implicit rule: nothing is unrolled
    within an unroll. D keeps the object's support, outside which no coil would hold what the CNN puts there. Two things
    differ from the paper: group norm, for batch norm, and none of it after the last convolution; and λ is learnt as its
    logarithm.

    Parameters
    ----------
    unrolls
        K.
    layers, width
        Of the CNN.
    damping
        λ at the start.
    """

    def __init__(self, *, unrolls: int = 10, layers: int = 5, width: int = 64, damping: float = 0.05) -> None:
        super().__init__()
        self.unrolls = unrolls
        self.network = Cnn(layers, width)
        self.log_damping = nn.Parameter(torch.tensor(damping).log())

    def forward(self, operator: Operator, adjoint: Tensor) -> Tensor:
        """Predict the image, (slice, H, W).

        Parameters
        ----------
        operator, adjoint
            A and A*y, (slice, H, W).
        """
        damping, support = self.log_damping.exp(), operator.support
        x = adjoint
        for _ in range(self.unrolls):
            z = x + support * on_channels(self.network, x)
            x = operator.solve(adjoint + damping * z, damping)
        return x
