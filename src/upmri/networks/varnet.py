"""VarNet (Hammernik et al. 2018) with exact data consistency: each cascade has a network of its own."""

from __future__ import annotations

from torch import Tensor, nn

from upmri.networks.cnn import UNet, on_channels
from upmri.networks.layers import log_parameter
from upmri.physics.operator import Operator


class VarNet(nn.Module):
    """K cascades, each with its own U-Net U_k, and one shared damping λ > 0.

    From x = (N + λI)⁻¹ A*y, each cascade adds the output of its U-Net and restores data consistency:

        z = x + D U_k(x),    x = (N + λI)⁻¹ (A*y + λ z).

    U_k replaces the gradient −Σ_i K_iᵀ φ_i(K_i x) of the published field of experts (filters of 11×11 with trained
    activations). The solve replaces the published gradient step x − λ_k (N x − A*y), for two reasons: with few sampled
    lines, ten gradient steps are far from data consistency; and the last network could change sampled lines freely,
    which a loss on other lines would not correct. D is 1 on the support of the object and 0 outside, where the data
    give no information.

    Parameters
    ----------
    cascades
        Number of cascades K.
    width
        Channels at the first of three levels of each U-Net; the others have 2 and 3 times as many. With 32 and ten
        cascades there are 3.7 million weights.
    damping
        Initial λ. Its logarithm is the trained parameter. It is shared, so that N is factorised once.
    """

    def __init__(self, *, cascades: int = 10, width: int = 32, damping: float = 0.02) -> None:
        super().__init__()
        self.passes = cascades
        self.networks = nn.ModuleList(UNet(width) for _ in range(cascades))
        self.log_damping = log_parameter(damping)

    def forward(self, operator: Operator, adjoint: Tensor, *_ignored: Tensor) -> Tensor:
        """Image (slice, H, W) from A and A*y, (slice, H, W); further inputs of conditional networks have no effect."""
        damping, support = self.log_damping.exp(), operator.support
        x = operator.solve(adjoint, damping)
        for network in self.networks:
            z = x + support * on_channels(network, x)
            x = operator.solve(adjoint + damping * z, damping)
        return x
