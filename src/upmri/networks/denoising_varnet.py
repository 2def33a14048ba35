"""Denoising VarNet (Millard and Chiew 2024): two U-Nets a cascade, for sampled entries and for all others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from upmri.networks.cnn import UNet, on_channels
from upmri.physics.operator import Operator


class DenoisingVarNet(nn.Module):
    """K cascades with two U-Nets each: R_k fills in the entries that were not sampled, D_k denoises the others.

    Published for the k-space of coil images, with a gradient step on the data and no exact consistency, which would
    put the noise of the data back. For an image x with F S x as its k-space, combined by S*F*, a cascade is

        x ← x − η_k (N x − A*y) + (Π − N) R_k(x) + N D_k(x),

    from x = A*y, as Σ|S_c|² = 1 on the support Π. η_k = 1 before training, as published. The published network also
    estimates the coil maps, which are known here.

    Parameters
    ----------
    cascades
        Number of cascades K.
    width
        Channels at the first level of each U-Net. With the same width there are twice as many weights as in a VarNet.
    """

    def __init__(self, *, cascades: int = 10, width: int = 32) -> None:
        super().__init__()
        self.passes = 2 * cascades
        self.filling = nn.ModuleList(UNet(width) for _ in range(cascades))
        self.denoising = nn.ModuleList(UNet(width) for _ in range(cascades))
        self.steps = nn.Parameter(torch.ones(cascades))

    def forward(self, operator: Operator, adjoint: Tensor) -> Tensor:
        """Image (slice, H, W) from A and A*y, (slice, H, W)."""
        support, x = operator.support, adjoint
        for eta, filling, denoising in zip(self.steps, self.filling, self.denoising, strict=True):
            fill, clean = (support * on_channels(network, x) for network in (filling, denoising))
            x = x + eta * adjoint + fill + operator.normal(clean - fill - eta * x)
        return x
