"""The networks that objectives train: their settings, and how they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from upmri.core.checks import in_range, one_of
from upmri.flow.conditional import posterior_mean
from upmri.learning.sure import OperatorNetwork
from upmri.methods.base import Objective
from upmri.networks.adm import SIZES
from upmri.networks.image import ImageNetwork
from upmri.networks.modl import MoDL
from upmri.networks.unrolled import Unrolled
from upmri.networks.varnet import VarNet
from upmri.physics.problem import Problem

# The network of ``upmri``, which all objectives below can train, too.
UNROLLED = "unrolled"


class OperatorBackbone(Objective):
    """An objective for a network f(A, A*y), or for that of ``upmri``, which also depends on σ₀.

    Subclasses are dataclasses with a field ``backbone``, the name of the network, one of ``backbones``.
    """

    backbones: ClassVar[tuple[str, ...]]
    backbone: str

    def __post_init__(self) -> None:
        one_of(self, backbone=self.backbones)

    def predictor(self, network: nn.Module, problem: Problem, noisier: float = 1.0) -> OperatorNetwork:
        """Return f(A, A*y) for data with the noise level of a problem, or a multiple of it."""
        if self.backbone != UNROLLED:
            return network
        return lambda operator, adjoint: posterior_mean(network, operator, adjoint, noisier * problem.sigma)

    def correct(self, image: Tensor, problem: Problem) -> Tensor:  # noqa: ARG002
        """Return the image as the network made it; overridden where it was trained with noisier data."""
        return image


@dataclass(frozen=True)
class VarNetBackbone(OperatorBackbone):
    """An objective for a VarNet.

    Parameters
    ----------
    backbone
        Network: ``varnet``, or ``unrolled``, that of ``upmri``.
    cascades, width
        Number of cascades, and channels at the first level of each U-Net.
    """

    backbones: ClassVar[tuple[str, ...]] = ("varnet", UNROLLED)

    cascades: int = 10
    width: int = 32
    backbone: str = "varnet"

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, cascades=(1, 64), width=(1, 256))

    def network(self) -> nn.Module:
        """Return the network with fresh weights."""
        kind = Unrolled if self.backbone == UNROLLED else VarNet
        return kind(cascades=self.cascades, width=self.width)


@dataclass(frozen=True)
class MoDLBackbone(OperatorBackbone):
    """An objective for a MoDL.

    Parameters
    ----------
    backbone
        Network: ``modl``, or ``unrolled``, that of ``upmri``, in which ``layers`` has no effect.
    unrolls, layers, width
        Number of unrolls K, and layers and channels of the CNN.
    damping
        Initial λ.
    """

    backbones: ClassVar[tuple[str, ...]] = ("modl", UNROLLED)

    unrolls: int = 10
    layers: int = 5
    width: int = 64
    damping: float = 0.05
    backbone: str = "modl"

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, unrolls=(1, 64), layers=(2, 64), width=(1, 512), damping=(1e-4, 100))

    def network(self) -> nn.Module:
        """Return the network with fresh weights."""
        if self.backbone == UNROLLED:
            return Unrolled(cascades=self.unrolls, width=self.width, damping=self.damping)
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
