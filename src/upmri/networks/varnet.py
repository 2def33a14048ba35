"""VarNet (Hammernik et al. 2018): gradient steps towards the data, each with a network of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from upmri.networks.cnn import UNet, on_channels
from upmri.physics.sense import SenseOperator


class VarNet(nn.Module):
    """K cascades that share nothing.

    From x = A*y, each cascade goes one step down the gradient of ½‖Ax − y‖² and adds what its network sees fit:

        x ← x − λ_k (N x − A*y) + D U_k(x).

    U_k is a small U-Net. It replaces the gradient of Hammernik's field of experts, −Σ_i K_iᵀ φ_i(K_i x), filters of
    11×11 with learnt activations: the data step is the paper's, the regulariser is not. D keeps the object's support,
    outside which no coil would hold what the U-Net puts there. No solve is needed, so any mask costs the same, and the
    data are never put in place of what the network says of them.

    Parameters
    ----------
    cascades
        K.
    width
        Channels of a U-Net's first level; it has three, of 1, 2 and 3 times as many. With 32 and ten cascades there are
        3.7 million weights.
    step
        λ_k at the start. They are learnt, as logarithms, so that they stay positive; up to 2 a step is stable.
    """

    def __init__(self, *, cascades: int = 10, width: int = 32, step: float = 1.0) -> None:
        super().__init__()
        self.networks = nn.ModuleList(UNet(width) for _ in range(cascades))
        self.log_steps = nn.Parameter(torch.full((cascades,), step).log())

    def forward(self, operator: SenseOperator, adjoint: Tensor) -> Tensor:
        """Predict the image, (slice, H, W).

        Parameters
        ----------
        operator, adjoint
            A and A*y, (slice, H, W).
        """
        support = operator.support
        x = adjoint
        for network, step in zip(self.networks, self.log_steps.exp(), strict=True):
            x = x - step * (operator.normal(x) - adjoint) + support * on_channels(network, x)
        return x
