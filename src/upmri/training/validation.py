"""How good a network is: on held-out lines, and against reference images where there are some."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from upmri.learning.held_out import HeldOut, Reconstruct
from upmri.methods.base import Objective
from upmri.methods.learned import Learned
from upmri.methods.prior import Prior
from upmri.physics.problem import Problem
from upmri.physics.sense import sense_damping
from upmri.training.data import ValidationData


class _Averaged(nn.Module):
    """A network evaluated with other weights than its own."""

    def __init__(self, network: nn.Module, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self._parts = (network, weights)  # in a tuple, so that they are no submodules

    def forward(self, *args: Any) -> Tensor:
        network, weights = self._parts
        result: Tensor = functional_call(network, weights, args)
        return result


@torch.no_grad()
def validate(
    method: type[Learned],
    objective: Objective,
    network: nn.Module,
    average: dict[str, Tensor],
    slices: ValidationData,
    batch: int,
) -> dict[str, float]:
    """Return the gain of a method over SENSE in dB, with the averaged weights; the method is called as users call it.

    ``held_out_gain`` is measured on a fifth of the lines, which are held out, and needs no reference. ``gain`` is the
    PSNR over that of SENSE with all lines as input, where there is a reference.
    """
    network.eval()
    prior = Prior(_Averaged(network, average), objective, method.name)
    reconstruct = method(model=prior, **method.validation).reconstruct
    held_out, gains = [], []
    for problem in slices.all(batch):
        held_out.append(HeldOut.draw(problem).gain(reconstruct))
        if problem.reference is not None:
            gains.append(_gain(reconstruct, problem, problem.reference))
    values = {"held_out_gain": round(torch.cat(held_out).mean().item(), 4)}
    return values | ({"gain": round(torch.cat(gains).mean().item(), 4)} if gains else {})


def _gain(reconstruct: Reconstruct, problem: Problem, reference: Tensor) -> Tensor:
    images = (reconstruct(problem), problem.operator.solve(problem.adjoint, sense_damping(problem.sigma)))
    ours, sense = ((image.abs() - reference.abs()).square().sum((1, 2)) for image in images)
    return 10 * (sense / ours).log10()
