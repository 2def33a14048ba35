"""Evaluate an image without ground truth: by lines of the scan that were not used to make it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.learning.lines import LineSplit, folds
from upmri.learning.partition import misfit
from upmri.physics.problem import Problem
from upmri.physics.sense import sense_damping

Reconstruct = Callable[[Problem], Tensor]
"""A problem ↦ its images, (slice, H, W)."""


@dataclass(frozen=True)
class HeldOut:
    """A problem whose lines are split in two.

    Attributes
    ----------
    inputs
        The problem of the lines that remain.
    lines
        The problem of the held-out lines.
    """

    inputs: Problem
    lines: Problem

    @classmethod
    def draw(cls, problem: Problem, share: float = 0.2) -> HeldOut:
        """Hold out a share of the lines of each slice, by the slice's generator.

        Calibration lines stay: every scan that is to be reconstructed has them.
        """
        _, _, aside = LineSplit(loss=(share, share), calibration=0).draw_each(problem)
        return cls._without(problem, aside)

    @classmethod
    def in_turn(cls, problem: Problem, turns: int) -> Iterator[HeldOut]:
        """Hold out every line once, a few at a time; calibration lines stay."""
        readout = problem.operator.shape[-2]
        parts = zip(problem.lines, problem.generators, strict=True)
        for aside in torch.stack([folds(mask, readout, turns, generator) for mask, generator in parts], 1):
            if aside.any():
                yield cls._without(problem, aside.to(problem.device))

    @classmethod
    def _without(cls, problem: Problem, aside: Tensor) -> HeldOut:
        return cls(problem.restrict(problem.lines.to(aside.device) & ~aside), problem.restrict(aside))

    def error(self, image: Tensor) -> Tensor:
        """‖A x − y‖² on the held-out lines of each slice, (slice,)."""
        return misfit(image, self.lines)

    def sense(self) -> Tensor:
        """SENSE image of the input lines, (slice, H, W), to compare with."""
        return self.inputs.operator.solve(self.inputs.adjoint, sense_damping(self.inputs.sigma))


def gain_over_sense(reconstruct: Reconstruct, problem: Problem, turns: int = 8) -> float:
    """Gain over SENSE on held-out lines in dB, over all slices: each line is held out once, in ``turns`` parts.

    With fewer turns, a sparse scan has too few lines left. The lines are the same for every ``reconstruct``.
    """
    ours, sense = 0.0, 0.0
    for test in HeldOut.in_turn(problem.with_seeds(0), turns):
        ours += test.error(reconstruct(test.inputs)).sum().item()
        sense += test.error(test.sense()).sum().item()
    return 10 * math.log10(sense / ours)
