"""Errors of a reconstruction on lines that were held out, and what is known of any line before it is measured.

The error of a line is e² = mean |A x̂ − y|² over its coils and readout samples, where the line was no input to x̂. It
contains the noise, E e² = error + σ₀². All masks are of whole lines, (slice, 1, W).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.learning.held_out import HeldOut, Reconstruct
from upmri.physics.fourier import fft1c, ifft1c
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

TURNS = 4
"""Parts into which the lines of a scan are divided, each held out once: the number of further reconstructions."""

NAMES = ("one", "radius", "energy", "gap", "unknowns", "noise", "radius squared")
"""Names of the features of a line."""

_UNKNOWNS = NAMES.index("unknowns")
# Smallest energy of noise and errors, of which logarithms are taken: that of rounding.
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class SliceLines:
    """Lines of one slice; float64 on the CPU.

    Attributes
    ----------
    errors
        e² of each held-out line, (line,).
    held_out
        Features of these lines, (line, feature), as they were predicted without them.
    missing
        Features of the lines that were not acquired, (line, feature), as predicted from all that were.
    columns
        Positions of the lines that were not acquired, (line,).
    noise
        σ₀², and that of rounding in scans without noise.
    unknowns
        Unknowns per sample.
    samples
        Coils times readout samples of a line.
    """

    errors: Tensor
    held_out: Tensor
    missing: Tensor
    columns: Tensor
    noise: float
    unknowns: float
    samples: int


def measure_lines(reconstruct: Reconstruct, problem: Problem, image: Tensor) -> list[SliceLines]:
    """Hold out every line outside the calibration region once, and compare it with its prediction.

    The lines are divided at random into ``TURNS`` parts, always in the same way.

    Parameters
    ----------
    reconstruct
        Reconstruction of a problem with any number of slices.
    problem, image
        Problem with a :class:`~upmri.physics.sense.SenseOperator` of whole lines, and its reconstruction from all
        lines, (slice, H, W).
    """
    operator = problem.operator
    assert isinstance(operator, SenseOperator)  # noqa: S101  the caller has checked it
    maps, count = operator.maps, len(problem)
    samples = maps.shape[1] * maps.shape[2]
    noise = problem.sigma.double().square().clamp_min(_LEAST)
    measured = ifft1c(problem.kspace, -2)  # a sum over the readout is the same in the image's rows
    errors: list[list[Tensor]] = [[] for _ in range(count)]
    features: list[list[Tensor]] = [[] for _ in range(count)]
    for test in HeldOut.in_turn(problem.with_seeds(0), TURNS):
        predicted = fft1c(maps * reconstruct(test.inputs)[:, None])
        error = ((predicted - measured).abs().square().sum((1, 2)) / samples).double().cpu().clamp_min(_LEAST)
        known = _features(predicted, test.inputs, noise)
        for index, lines in enumerate(test.lines.lines[:, 0]):
            errors[index].append(error[index, lines])
            features[index].append(known[index, lines])
    everywhere = _features(fft1c(maps * image[:, None]), problem, noise)
    for index, parts in enumerate(features):
        # As if a part were held out, too: so a line that was not acquired is predicted no better than held-out ones.
        everywhere[index, :, _UNKNOWNS] = torch.cat(parts)[:, _UNKNOWNS].mean() if parts else 0.0
    unknowns, noise = problem.unknowns.double().cpu(), noise.cpu()
    return [
        SliceLines(
            errors=torch.cat([noise.new_zeros(0), *errors[index]]),
            held_out=torch.cat([noise.new_zeros(0, len(NAMES)), *features[index]]),
            missing=everywhere[index, ~lines],
            columns=(~lines).nonzero().flatten(),
            noise=noise[index].item(),
            unknowns=unknowns[index].item(),
            samples=samples,
        )
        for index, lines in enumerate(problem.lines[:, 0])
    ]


def _features(predicted: Tensor, inputs: Problem, noise: Tensor) -> Tensor:
    """Features of all positions, (slice, W, feature), on the CPU: logarithms of what is known without measuring them.

    1; the distance from DC relative to half the width; the energy of the prediction, with that of the noise; the
    distance to the nearest input line; the unknowns per sample; the energy of the noise; the first one squared.
    """
    width = predicted.shape[-1]
    at = torch.arange(width)
    radius = ((at - width // 2).abs() + 1) / (width / 2)
    energy = predicted.abs().square().mean((1, 2)).double().cpu()
    floor, unknowns = noise.cpu()[:, None], inputs.unknowns.double().cpu()[:, None]
    apart = (at[:, None] - at).abs().where(inputs.lines, width)  # (slice, W, W)
    gap = apart.amin(-1).clamp_min(1).double()
    ones = torch.ones_like(energy)
    logs = [value.log() for value in (radius * ones, energy + floor, gap, unknowns * ones, floor * ones)]
    return torch.stack([ones, *logs, logs[0].square()], -1)
