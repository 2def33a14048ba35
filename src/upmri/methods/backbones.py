"""The networks that objectives train: their settings, and how they are made."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from upmri.core.checks import in_range, one_of
from upmri.methods.base import Objective
from upmri.networks.adm import SIZES
from upmri.networks.image import ImageNetwork
from upmri.networks.modl import MoDL
from upmri.networks.varnet import VarNet


@dataclass(frozen=True)
class VarNetBackbone(Objective):
    """An objective for a VarNet.

    Parameters
    ----------
    cascades, width
        Number of cascades, and channels at the first level of each U-Net.
    """

    cascades: int = 10
    width: int = 32

    def __post_init__(self) -> None:
        in_range(self, cascades=(1, 64), width=(1, 256))

    def network(self) -> nn.Module:
        """Return a VarNet with fresh weights."""
        return VarNet(cascades=self.cascades, width=self.width)


@dataclass(frozen=True)
class MoDLBackbone(Objective):
    """An objective for a MoDL.

    Parameters
    ----------
    unrolls, layers, width
        Number of unrolls K, and layers and channels of the CNN.
    damping
        Initial λ.
    """

    unrolls: int = 10
    layers: int = 5
    width: int = 64
    damping: float = 0.05

    def __post_init__(self) -> None:
        in_range(self, unrolls=(1, 64), layers=(2, 64), width=(1, 512), damping=(1e-4, 100))

    def network(self) -> nn.Module:
        """Return a MoDL with fresh weights."""
        return MoDL(unrolls=self.unrolls, layers=self.layers, width=self.width, damping=self.damping)


@dataclass(frozen=True)
class ImageBackbone(Objective):
    """An objective for the ADM U-Net on complex images.

    Parameters
    ----------
    size
        Size of the U-Net: ``tiny``, ``small`` or ``base``.
    """

    size: str = "small"

    def __post_init__(self) -> None:
        one_of(self, size=SIZES)

    def network(self) -> nn.Module:
        """Return a U-Net with fresh weights."""
        return ImageNetwork(self.size)
