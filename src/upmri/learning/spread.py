"""Calibration of the bootstrap's errors: a gain in k-space that depends on |k|, fitted without ground truth.

The errors η of :func:`upmri.learning.bootstrap.draw_errors` are filtered by

    g(|k|, u) = g_b (u/2)^p

with g_b at the middle of each band of |k| (:mod:`upmri.learning.bands`), interpolated in between. u is the number of
unknowns per sample: pixels of the support for each sampled position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from upmri.learning.bands import by_band, filter_bands
from upmri.learning.bootstrap import draw_errors
from upmri.learning.draw_test import energies
from upmri.learning.held_out import HeldOut, Reconstruct
from upmri.learning.noise_split import split_noise
from upmri.physics.fourier import fft2c
from upmri.physics.problem import Problem

# |k| in the middle of the bands; the u at which the gain is g_b.
_MIDDLE, _UNKNOWNS = (5.0, 12.0, 24.0, 40.0, 60.0), 2.0
# Bounds for the gain, and for the root of the ratio of energies of one scan.
_GAINS, _ROOTS = (0.2, 5.0), (0.0, 3.0)
# Bound for the exponent, and the one that scans with similar u give, about that of brains; it counts as much as a
# variance of 0.1 of log u.
_EXPONENTS, _USUAL, _SIMILAR = 1.0, 0.3, 0.1
# Parts into which the lines are divided, each held out once; errors per part, and for the sampled positions.
_TURNS, _HELD_OUT, _SAMPLED = 8, 1, 2


def fit_spread(reconstruct: Reconstruct, problems: Iterable[Problem]) -> dict[str, list[float]]:
    """Fit the gain between the errors of the bootstrap and the true ones, band by band.

    The energy of the true error in a band is the sum of two estimates: at the sampled positions, the misfit to a second
    measurement with independent noise, less the noise; at the others, the energy of the bootstrap's errors there, times
    the ratio of both on held-out lines of the band, or of the next one outwards if none was held out. With q, the root
    of the ratio of this energy to that of the bootstrap's errors, of each slice, the gain minimises Σ q/g + log g.
    Roots, because the ratios differ much between scans: one line near the centre that is missing may make the error ten
    times as large.

    Parameters
    ----------
    reconstruct
        Reconstruction of a problem with any number of slices.
    problems
        Scans to fit the gain on; no ground truth is needed.

    Returns
    -------
    dict
        ``radius`` |k|, ``gain`` g_b and ``exponent`` p of each band.
    """
    ratios, unknowns = [], []
    for problem in problems:
        ratio, of_inputs = error_ratio(reconstruct, problem)
        ratios.append(ratio)
        unknowns.append((of_inputs / _UNKNOWNS).log())
    gains, exponent = _fit(torch.cat(unknowns).double().cpu(), torch.cat(ratios).double().cpu())
    return {
        "radius": list(_MIDDLE),
        "gain": [round(gain, 3) for gain in gains],
        "exponent": [round(exponent, 3)] * len(gains),
    }


def error_ratio(reconstruct: Reconstruct, problem: Problem) -> tuple[Tensor, Tensor]:
    """Estimated energy of the true error over that of the bootstrap's, (slice, band), and u, (slice,).

    A band without positions or errors has no finite ratio.
    """
    height = problem.operator.shape[-2]
    generators = problem.generators
    predicted, true, held_out = (problem.sigma.new_zeros(()) for _ in range(3))
    of_inputs = []
    for test in HeldOut.in_turn(problem, _TURNS):
        image = reconstruct(test.inputs)
        errors = draw_errors(reconstruct, test.inputs, image, generators, _HELD_OUT)
        possible, misfit = energies(image, errors, test.lines)
        predicted, true = predicted + possible, true + misfit
        held_out = held_out + by_band(test.lines.lines.expand(-1, height, -1).to(held_out))
        of_inputs.append(test.inputs.unknowns)
    between = list((true / predicted).unbind(1))
    for band in reversed(range(len(between) - 1)):  # no line next to the calibration region may have been held out
        between[band] = torch.where(held_out[:, band] > 0, between[band], between[band + 1])
    inputs, other = split_noise(problem)
    image = reconstruct(inputs)
    errors = draw_errors(reconstruct, inputs, image, inputs.generators, _SAMPLED)
    possible, misfit = energies(image, errors, other)
    missing = (by_band(fft2c(errors).abs().square().mean(0)) - possible).clamp_min(0)
    ratio = (misfit + torch.stack(between, 1) * missing) / (possible + missing)
    return ratio, torch.stack(of_inputs).mean(0)


def scale_errors(errors: Tensor, problem: Problem, spread: Mapping[str, Any]) -> Tensor:
    """Return the bootstrap's errors, (count, slice, H, W), times the fitted gain; 0 outside the support."""
    gain, exponent, radii = (torch.tensor(spread[key]) for key in ("gain", "exponent", "radius"))
    unknowns = (problem.unknowns / _UNKNOWNS).log()[:, None]
    log_gain = gain.log().to(unknowns) + exponent.to(unknowns) * unknowns
    return problem.operator.support * filter_bands(errors, radii, log_gain)


def _fit(x: Tensor, ratio: Tensor) -> tuple[list[float], float]:
    """Gain of each band at x = 0, and the exponent, for ratios (slice, band), with x = log(u/2)."""
    known = ratio.isfinite()
    root, middle = ratio.nan_to_num(0, 0, 0).clamp_min(0).sqrt().clamp(*_ROOTS), x.mean()
    power = torch.linspace(-_EXPONENTS, _EXPONENTS, 401, dtype=x.dtype)
    # For a given p the best g is the mean of q (u/2)^−p.
    total = torch.einsum("ib,pi->pb", root * known, torch.exp(-power[:, None] * (x - middle)))
    level = (total / known.sum(0)).clamp(*_GAINS)  # (p, band), NaN for bands that no image has
    likelihood = level.log().nanmean(1) + _SIMILAR / 2 * (power - _USUAL).square()
    best = likelihood.argmin()
    found: list[float] = []
    for gain in (level[best] * torch.exp(-power[best] * middle)).clamp(*_GAINS).tolist():
        # Small images have no positions in the outer bands: they get the gain of the band next to them.
        found.append(gain if gain == gain else found[-1])
    return found, power[best].item()
