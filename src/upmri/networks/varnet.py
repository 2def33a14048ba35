"""VarNet (Hammernik et al. 2018) with exact data consistency: cascades, each with a network of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from upmri.networks.cnn import UNet, on_channels
from upmri.physics.operator import Operator


class VarNet(nn.Module):
    """K cascades whose networks share nothing, and one damping λ > 0.

    From x = (N + λI)⁻¹ A*y, each cascade adds what its network sees fit and returns to the data:

        z = x + D U_k(x),    x = (N + λI)⁻¹ (A*y + λ z).

    U_k is a small U-Net. It replaces the gradient of Hammernik's field of experts, −Σ_i K_iᵀ φ_i(K_i x), filters of
    11×11 with learnt activations. The solve replaces his gradient step x − λ_k (N x − A*y): ten of those go a short
    way towards the data where few lines were sampled, and leave what was sampled as the last network puts it, which a
    loss on other samples never looks at. D keeps the object's support, outside which no coil would hold what the U-Net
    puts there.

    Parameters
    ----------
    cascades
        K.
    width
        Channels of a U-Net's first level; it has three, of 1, 2 and 3 times as many. With 32 and ten cascades there are
        3.7 million weights.
    damping
        λ at the start; it is learnt, as its logarithm, and shared, so that N is factorised once.
    """

    def __init__(self, *, cascades: int = 10, width: int = 32, damping: float = 0.02) -> None:
        super().__init__()
        self.networks = nn.ModuleList(UNet(width) for _ in range(cascades))
        self.log_damping = nn.Parameter(torch.tensor(damping).log())

    def forward(self, operator: Operator, adjoint: Tensor) -> Tensor:
        """Predict the image, (slice, H, W).

        Parameters
        ----------
        operator, adjoint
            A and A*y, (slice, H, W).
        """
        damping, support = self.log_damping.exp(), operator.support
        x = operator.solve(adjoint, damping)
        for network in self.networks:
            z = x + support * on_channels(network, x)
            x = operator.solve(adjoint + damping * z, damping)
        return x
