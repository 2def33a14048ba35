"""What lessons of a VarNet share: its shape, and that one evaluation is the image."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.methods.base import Lesson
from upmri.networks.varnet import VarNet
from upmri.physics.sense import SenseOperator


@dataclass(frozen=True)
class Cascades(Lesson):
    """A lesson for a VarNet.

    Parameters
    ----------
    cascades, width
        Of the network: how many cascades, and channels of each U-Net's first level.
    """

    cascades: int = 10
    width: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.cascades <= 64:
            raise InputError(f"lesson.cascades: expected 1 to 64, got {self.cascades}")
        if not 1 <= self.width <= 256:
            raise InputError(f"lesson.width: expected 1 to 256, got {self.width}")

    def network(self) -> nn.Module:
        """The cascades."""
        return VarNet(cascades=self.cascades, width=self.width)

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:  # noqa: ARG002
        """One evaluation, with all that was sampled."""
        image: Tensor = network(operator, operator.adjoint(kspace))
        return image
