"""MoDL (Aggarwal, Mani and Jacob 2019): one small CNN that alternates with exact data consistency."""

from __future__ import annotations

from torch import Tensor, nn

from upmri.networks.cnn import Cnn, on_channels
from upmri.networks.layers import log_parameter
from upmri.physics.operator import Operator


class MoDL(nn.Module):
    """K unrolls with one shared CNN C and one damping λ > 0.

    From x = A*y, each unroll adds the output of the CNN and restores data consistency:

        z = x + D C(x),    x = (N + λI)⁻¹ (A*y + λ z).

    The solve is exact for masks of lines. Its gradient, also in λ, is computed by implicit differentiation, not through
    iterations. D is 1 on the support of the object and 0 outside, where the data give no information. There are two
    differences to the paper: group norm replaces batch norm, with none after the last convolution, and the logarithm of
    λ is the trained parameter.

    Parameters
    ----------
    unrolls
        Number of unrolls K.
    layers, width
        Number of layers of the CNN, and number of channels between them.
    damping
        Initial λ.
    """

    def __init__(self, *, unrolls: int = 10, layers: int = 5, width: int = 64, damping: float = 0.05) -> None:
        super().__init__()
        self.unrolls = self.passes = unrolls
        self.network = Cnn(layers, width)
        self.log_damping = log_parameter(damping)

    def forward(self, operator: Operator, adjoint: Tensor) -> Tensor:
        """Image (slice, H, W) from A and A*y, (slice, H, W)."""
        damping, support = self.log_damping.exp(), operator.support
        x = adjoint
        for _ in range(self.unrolls):
            z = x + support * on_channels(self.network, x)
            x = operator.solve(adjoint + damping * z, damping)
        return x
