"""MoDL (Aggarwal, Mani and Jacob 2019): an unrolled network learnt from full images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.errors import InputError
from upmri.methods.base import Lesson, Problem
from upmri.methods.learned import Learned
from upmri.methods.supervised import relative_error
from upmri.networks.modl import MoDL
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


@dataclass(frozen=True)
class MoDLLesson(Lesson):
    """The squared error against the truth, ‖f(A*y) − x‖² / ‖x‖² → min, all K unrolls at once.

    The paper first teaches one unroll and begins the K with it. Here the CNN begins at zero instead, where K unrolls
    are as tame as one; ``begin`` of a training run does as the paper does (the weights do not depend on K).

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

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The error relative to the truth, (slice,)."""
        return relative_error(network, batch)

    def predict(self, network: nn.Module, operator: SenseOperator, adjoint: Tensor, sigma: Tensor) -> Tensor:  # noqa: ARG002
        """One evaluation."""
        image: Tensor = network(operator, adjoint)
        return image


@dataclass(frozen=True)
class Modl(Learned):
    """One evaluation of the network.

    Parameters
    ----------
    model
        A file of weights trained with ``method: modl``.
    """

    name = "modl"
    summary = "an unrolled CNN with exact data consistency, learnt from full images"
    needs = "full images"
    evaluations = 1
    lesson = MoDLLesson

    def reconstruct(self, problem: Problem) -> Tensor:
        """The network's image."""
        image: Tensor = self.load(problem).network(problem.operator, problem.adjoint)
        return image
