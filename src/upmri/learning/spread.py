"""Calibration of the bootstrap's errors: they are multiplied by c (u/2)^p, with c and p fitted on held-out lines.

u is the number of unknowns per sample: pixels of the support for each sampled position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from upmri.learning.bootstrap import bootstrap_errors
from upmri.learning.held_out import HeldOut, Reconstruct
from upmri.physics.problem import Problem

# Bounds for the ratio of error energies; the u at which the factor is c; and a variance that is added to that of log u,
# so that scans with similar u give an exponent near 0.
_RATIOS, _UNKNOWNS, _SIMILAR = (0.04, 25.0), 2.0, 0.01
# Parts into which the lines are divided, each held out once.
_TURNS = 8


def fit_spread(reconstruct: Reconstruct, problems: Iterable[Problem]) -> dict[str, float]:
    """Fit the factor between the true errors on held-out lines and those of the bootstrap.

    The energy of the true error is ‖A x̂ − y‖² on held-out lines less that of the noise. c and p are found by linear
    regression of the logarithm of the ratio on log(u/2).

    Parameters
    ----------
    reconstruct
        Reconstruction of a problem with any number of slices.
    problems
        Scans to fit the factor on; no ground truth is needed.

    Returns
    -------
    dict
        ``factor`` c and ``exponent`` p.
    """
    ratios, unknowns = [], []
    for problem in problems:
        true, predicted, of_inputs = torch.zeros_like(problem.sigma), torch.zeros_like(problem.sigma), []
        for test in HeldOut.in_turn(problem, _TURNS):
            image = reconstruct(test.inputs)
            errors = bootstrap_errors(reconstruct, test.inputs, image, problem.generators, 1)
            lines = test.lines.operator
            predicted += lines(errors).abs().square().sum((0, 2, 3, 4))
            height, coils = problem.kspace.shape[-2], problem.kspace.shape[1]
            samples = coils * test.lines.lines.to(problem.device).expand(-1, height, -1).sum((1, 2))
            true += test.error(image) - problem.sigma.square() * samples
            of_inputs.append(test.inputs.unknowns)
        ratios.append((true / predicted).clamp(*_RATIOS).sqrt())
        unknowns.append(torch.stack(of_inputs).mean(0))
    y = torch.cat(ratios).log()
    x = (torch.cat(unknowns) / _UNKNOWNS).log().to(y)
    exponent = (x - x.mean()) @ (y - y.mean()) / len(x) / (x.var(correction=0) + _SIMILAR)
    factor = (y.mean() - exponent * x.mean()).exp()
    return {"factor": round(factor.item(), 3), "exponent": round(exponent.item(), 3)}


def scale_errors(errors: Tensor, problem: Problem, spread: Mapping[str, float]) -> Tensor:
    """Return the bootstrap's errors, (count, slice, H, W), times the fitted factor."""
    unknowns = problem.unknowns[:, None, None] / _UNKNOWNS
    return spread["factor"] * unknowns ** spread["exponent"] * errors
