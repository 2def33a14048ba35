"""Supervised objectives: the squared error against full images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.learning.sure import OperatorNetwork
from upmri.methods.backbones import MoDLBackbone, VarNetBackbone
from upmri.physics.problem import Problem


def full_image(problem: Problem) -> Tensor:
    """Return the reference, (slice, H, W), which a supervised loss needs."""
    if problem.reference is None:
        raise InputError(
            "this objective needs full images, and there are scans without a reference; give fully sampled scans, or "
            "images to simulate scans of",
            field="train",
        )
    return problem.reference


def relative_error(network: OperatorNetwork, problem: Problem) -> Tensor:
    """‖f(A*y) − x‖² / ‖x‖² of each slice, (slice,)."""
    reference = full_image(problem)
    error = network(problem.operator, problem.adjoint) - reference
    return error.abs().square().sum((1, 2)) / reference.abs().square().sum((1, 2))


@dataclass(frozen=True)
class ModlObjective(MoDLBackbone):
    """MoDL (Aggarwal, Mani and Jacob 2019): ‖f(A*y) − x‖² / ‖x‖² → min, all K unrolls at once.

    The paper first trains one unroll and starts the K from it. Here the CNN starts at zero instead, where K unrolls are
    as stable as one; ``begin`` of a training run does as the paper does (the weights do not depend on K).

    Parameters
    ----------
    backbone, unrolls, layers, width, damping
        Network, see :class:`~upmri.methods.backbones.MoDLBackbone`.
    """

    supervised = True

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Error relative to the reference, (slice,)."""
        return relative_error(self.predictor(network, problem), problem)


@dataclass(frozen=True)
class VarnetObjective(VarNetBackbone):
    """VarNet (Hammernik et al. 2018): ‖f(A*y) − x‖² / ‖x‖² → min, of complex images (the paper has magnitudes).

    Parameters
    ----------
    backbone, cascades, width
        Network, see :class:`~upmri.methods.backbones.VarNetBackbone`.
    """

    supervised = True

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Error relative to the reference, (slice,)."""
        return relative_error(self.predictor(network, problem), problem)
