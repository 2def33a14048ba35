"""What lessons of a MoDL share: its shape, and that one evaluation is the image."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.methods.base import Lesson
from upmri.networks.modl import MoDL
from upmri.physics.sense import SenseOperator


@dataclass(frozen=True)
class Unrolls(Lesson):
    """A lesson for a MoDL.

    Parameters
    ----------
    unrolls, layers, width
        Of the network: K, and the layers and channels of its CNN.
    damping
        λ at the start.
    """

    unrolls: int = 10
    layers: int = 5
    width: int = 64
    damping: float = 0.05

    def __post_init__(self) -> None:
        for key, low, high in (("unrolls", 1, 64), ("layers", 2, 64), ("width", 1, 512)):
            if not low <= getattr(self, key) <= high:
                raise InputError(f"lesson.{key}: expected {low} to {high}, got {getattr(self, key)}")
        if not 1e-4 <= self.damping <= 100:
            raise InputError(f"lesson.damping: expected 1e-4 to 100, got {self.damping}")

    def network(self) -> nn.Module:
        """The unrolled network."""
        return MoDL(unrolls=self.unrolls, layers=self.layers, width=self.width, damping=self.damping)

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:  # noqa: ARG002
        """One evaluation, with all that was sampled."""
        image: Tensor = network(operator, operator.adjoint(kspace))
        return image
