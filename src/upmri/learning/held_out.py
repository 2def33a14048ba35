"""Evaluation without ground truth: the error ‖A x − y‖² on lines that were not input to the reconstruction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from upmri.learning.lines import LineSplit, folds
from upmri.learning.partition import misfit
from upmri.learning.regions import draw_per_slice
from upmri.physics.problem import Problem
from upmri.physics.sense import sense_damping

Reconstruct = Callable[[Problem], Tensor]
"""Reconstruction: a problem ↦ images (slice, H, W)."""


@dataclass(frozen=True)
class HeldOut:
    """A problem split into input lines and held-out lines.

    Attributes
    ----------
    inputs
        Problem with the remaining lines.
    lines
        Problem with the held-out lines.
    """

    inputs: Problem
    lines: Problem

    @classmethod
    def draw(cls, problem: Problem, share: float = 0.2) -> HeldOut:
        """Hold out a share of the lines of each slice, drawn with the slice's generator.

        Calibration lines are held out only if there are no others, because every scan that is reconstructed has them.
        """
        _, _, held_out = LineSplit(loss=(share, share), calibration=0).draw_each(problem)
        return cls.split(problem, held_out)

    @classmethod
    def in_turn(cls, problem: Problem, turns: int) -> Iterator[HeldOut]:
        """Hold out every line once, in ``turns`` parts; calibration lines only if there are no others."""
        parts = draw_per_slice(partial(folds, count=turns), problem)
        for held_out in torch.stack(parts, 1):
            if held_out.any():
                yield cls.split(problem, held_out)

    @classmethod
    def split(cls, problem: Problem, held_out: Tensor) -> HeldOut:
        """Hold out the lines of a mask, (slice, 1 or H, W)."""
        return cls(problem.restrict(problem.lines.to(held_out.device) & ~held_out), problem.restrict(held_out))

    def error(self, image: Tensor) -> Tensor:
        """‖A x − y‖² on the held-out lines of each slice, (slice,)."""
        return misfit(image, self.lines)

    def sense(self) -> Tensor:
        """SENSE image of the input lines, (slice, H, W), for comparison."""
        return self.inputs.operator.solve(self.inputs.adjoint, sense_damping(self.inputs.sigma))

    def gain(self, reconstruct: Reconstruct) -> Tensor:
        """10 log₁₀ of the error of SENSE over that of ``reconstruct``, in dB, (slice,)."""
        return 10 * (self.error(self.sense()) / self.error(reconstruct(self.inputs))).log10()


def gain_over_sense(reconstruct: Reconstruct, problem: Problem, turns: int = 8) -> float:
    """10 log₁₀ of the error of SENSE over that of ``reconstruct``, in dB, on held-out lines of all slices.

    Each line is held out once, in ``turns`` parts; with fewer parts, too few lines of a sparse scan remain as input.
    The parts are the same for every ``reconstruct``. The gain is 0 where there is nothing to compare: for slices of
    zeros, or without lines outside the centre.
    """
    ours, sense = 0.0, 0.0
    for test in HeldOut.in_turn(problem.with_seeds(0), turns):
        ours += test.error(reconstruct(test.inputs)).sum().item()
        sense += test.error(test.sense()).sum().item()
    return 10 * math.log10(sense / ours) if ours and sense else 0.0
