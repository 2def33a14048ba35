"""Calibration of bounds (:mod:`upmri.learning.held_out_bounds`), on simulated scans where the truth is needed.

Slices are divided at random into two halves: one fits the model of line errors and the predictions of PSNR and SSIM,
the other gives the conformal quantiles. Those of lines are over all lines, as if these were exchangeable, which the
level of the scan makes nearly true; those of PSNR, SSIM and pixels are over slices. So a bound holds with its
probability for a slice that is drawn as the slices of the calibration were. Slices of one person are alike: what counts
for other people is the number of people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.similarity import psnr, ssim
from upmri.learning.conformal import bounds
from upmri.learning.held_out import Reconstruct
from upmri.learning.held_out_bounds import FEWEST, Calibration, decibels, image_predictors
from upmri.learning.line_errors import SliceLines, measure_lines
from upmri.learning.line_model import LineModel
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

Deviations = Callable[[Problem, Tensor], Tensor]
"""Standard deviation of the magnitude of the images of a problem: problem, images ↦ (slice, H, W)."""

LEAST = 20
"""Smallest number of slices for a calibration: ten of them give the bound of 90 %."""

# Pixels of a slice whose errors are kept, ridge of the regressions, and digits of the numbers of a card.
_PIXELS, _RIDGE, _DIGITS = 4096, 1e-3, 5


@dataclass(frozen=True, eq=False)
class MeasuredSlice:
    """A slice of the calibration.

    Attributes
    ----------
    lines
        Its held-out and its missing lines.
    magnitude, support
        |x̂| and the pixels of the object, (H, W), on the CPU.
    scores
        PSNR and −10 log₁₀(1 − SSIM); None without a reference.
    pixels
        |error| over deviation of pixels of the object, (pixel,); None without reference or deviations.
    """

    lines: SliceLines
    magnitude: Tensor
    support: Tensor
    scores: tuple[float, float] | None = None
    pixels: Tensor | None = None


def fit_bounds(reconstruct: Reconstruct, problems: Iterable[Problem]) -> dict[str, Any]:
    """Return ``{"bounds": entry of a card}``, fitted on scans; nothing if there are too few slices of whole lines.

    Parameters
    ----------
    reconstruct
        Reconstruction of a problem with any number of slices.
    problems
        Scans of whole lines. Those with a reference calibrate PSNR and SSIM, too; lines need none.
    """
    measured = [one for problem in problems for one in measure_slices(reconstruct, problem)]
    return {"bounds": calibrate(measured).card()} if len(measured) >= LEAST else {}


def measure_slices(
    reconstruct: Reconstruct, problem: Problem, deviations: Deviations | None = None
) -> list[MeasuredSlice]:
    """Reconstruct slices from all lines, and with held-out lines; slices with too few of these are left out."""
    if not isinstance(problem.operator, SenseOperator) or problem.lines.shape[1] > 1:
        return []
    image, reference = reconstruct(problem), problem.reference
    lines = measure_lines(reconstruct, problem, image)
    magnitude, support = image.abs().cpu(), problem.operator.support.cpu()
    scores: list[tuple[float, float] | None] = [None] * len(image)
    pixels: list[Tensor | None] = [None] * len(image)
    if reference is not None:
        truth = reference.abs().cpu()
        pairs = zip(psnr(magnitude, truth).tolist(), ssim(magnitude, truth).tolist(), strict=True)
        scores = [(quality, decibels(likeness)) for quality, likeness in pairs]
        if deviations is not None:
            ratio = (magnitude - truth).abs() / deviations(problem, image).cpu().clamp_min(torch.finfo().tiny)
            pixels = [_some(one[inside]) for one, inside in zip(ratio, support, strict=True)]
    found = zip(lines, magnitude, support, scores, pixels, strict=True)
    return [MeasuredSlice(*one) for one in found if len(one[0].errors) >= FEWEST]


def calibrate(measured: Sequence[MeasuredSlice]) -> Calibration:
    """Fit the model with half of the slices, and take the quantiles of the other half."""
    if len(measured) < LEAST:
        raise InputError(
            f"expected at least {LEAST} slices to calibrate bounds with, got {len(measured)}", field="bounds"
        )
    order = torch.randperm(len(measured), generator=torch.Generator().manual_seed(0)).tolist()
    fitting = [measured[index] for index in order[::2]]
    testing = [measured[index] for index in order[1::2]]
    model = LineModel.fit([one.lines for one in fitting])
    levels = torch.tensor([model.level(one.lines) for one in testing], dtype=torch.float64)
    unknowns = [one.lines.unknowns for one in measured]
    noise = [one.lines.noise**0.5 for one in measured]
    of_psnr, of_ssim = _fit_image(model, fitting, testing)
    pixels = [one.pixels for one in testing if one.pixels is not None]
    return Calibration(
        model=model,
        level=(_rounded(levels.mean().item()), _rounded(levels.std().item()), len(levels)),
        unknowns=(_rounded(min(unknowns)), _rounded(max(unknowns))),
        noise=(_rounded(min(noise)), _rounded(max(noise))),
        lines=_all_rounded(bounds(torch.cat([model.scores(one.lines) for one in testing]))),
        psnr=of_psnr,
        ssim=of_ssim,
        pixels=_all_rounded(bounds(pixels)) if pixels else {},
        slices=(len(fitting), len(testing)),
    )


def _fit_image(
    model: LineModel, fitting: Sequence[MeasuredSlice], testing: Sequence[MeasuredSlice]
) -> list[dict[str, Any]]:
    """Coefficients of the predictions of PSNR and SSIM, and quantiles of what these exceed the truth by."""
    halves = [[one for one in half if one.scores is not None] for half in (fitting, testing)]
    if not all(halves):
        return [{}, {}]
    known = [
        [image_predictors(model, one.lines, model.level(one.lines), one.magnitude, one.support) for one in half]
        for half in halves
    ]
    fitted = []
    for which in (0, 1):
        x, x_new = (torch.stack([both[which] for both in half]) for half in known)
        y, y_new = (x.new_tensor([one.scores[which] for one in half if one.scores is not None]) for half in halves)
        coefficients = _regress(x, y)
        quantiles = bounds(x_new @ coefficients - y_new)
        fitted.append(
            {"coefficients": [_rounded(value) for value in coefficients.tolist()], "quantiles": _all_rounded(quantiles)}
        )
    return fitted


def _regress(x: Tensor, y: Tensor) -> Tensor:
    """Least squares with a small ridge on all coefficients but the constant, which is the first."""
    ridge = _RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    ridge[0, 0] = 0
    return torch.linalg.solve(x.T @ x + ridge, x.T @ y)


def _some(values: Tensor) -> Tensor:
    """Return at most so many of the values as are kept, spread evenly over their order."""
    ordered = values.sort().values
    if len(ordered) <= _PIXELS:
        return ordered
    return ordered[((torch.arange(_PIXELS) + 0.5) * len(ordered) / _PIXELS).long()]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _all_rounded(values: dict[str, float]) -> dict[str, float]:
    return {key: _rounded(value) for key, value in values.items()}
