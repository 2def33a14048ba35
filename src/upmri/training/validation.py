"""How good a network is: on k-space lines that it did not get, and against the truth where there is one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from upmri.learning.held_out import HeldOut
from upmri.methods.base import Lesson
from upmri.methods.sense import default_damping
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch, Slices


@torch.no_grad()
def validate(
    lesson: Lesson, network: nn.Module, average: dict[str, Tensor], slices: Slices, batch: int
) -> dict[str, float]:
    """Return the average's error over SENSE's, in dB and lower is better, on a fifth of the lines left out.

    ``held_out`` needs no truth; ``gain`` is the PSNR over SENSE's with all lines given, where there is a reference.
    """

    class _Average(nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            result: Tensor = functional_call(network, average, args)
            return result

    network.eval()
    held_out, gains = [], []
    for part in slices.all(batch):
        held_out.append(_held_out(lesson, _Average(), part))
        if part.reference is not None:
            gains.append(_gain(lesson, _Average(), part))
    values = {"held_out": round(torch.cat(held_out).mean().item(), 4)}
    return values | ({"gain": round(torch.cat(gains).mean().item(), 4)} if gains else {})


def _held_out(lesson: Lesson, network: nn.Module, batch: Batch) -> Tensor:
    test = HeldOut.draw(batch.maps, batch.mask, batch.kspace, batch.generators)
    ours = test.error(lesson.predict(network, test.operator, batch.kspace, batch.sigma))
    sense = test.error(test.operator.solve(test.adjoint, default_damping(batch.sigma)))
    return 10 * (ours / sense).log10()


def _gain(lesson: Lesson, network: nn.Module, batch: Batch) -> Tensor:
    assert batch.reference is not None  # noqa: S101
    operator = SenseOperator(batch.maps, batch.mask)
    images = (
        lesson.predict(network, operator, batch.kspace, batch.sigma),
        operator.solve(operator.adjoint(batch.kspace), default_damping(batch.sigma)),
    )
    ours, sense = ((image.abs() - batch.reference.abs()).square().sum((1, 2)) for image in images)
    return 10 * (sense / ours).log10()
