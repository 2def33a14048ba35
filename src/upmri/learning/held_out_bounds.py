"""Bounds on the error of a reconstruction, from its own held-out lines and a calibration on other scans.

The lines of the scan are held out in turn (:mod:`upmri.learning.line_errors`); their errors give the level of the scan
(:mod:`upmri.learning.line_model`), and the model the expected error of every line that was not acquired. With C coils
and W lines, the mean squared error of the image that these lines make is Σ_missing C (m² − σ₀²) / W, as Σ|S_c|² = 1.
The noise of A acquired lines makes one of σ₀² A / W in the object, of which the prior removes a part. PSNR and
−10 log₁₀(1 − SSIM) are linear in what is known without the truth, with coefficients fitted on simulated scans. What
remains is bounded by conformal quantiles (:mod:`upmri.learning.conformal`) over other slices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from upmri.core.bounds import Bounds
from upmri.core.errors import InputError
from upmri.core.similarity import ssim
from upmri.learning.held_out import Reconstruct
from upmri.learning.line_errors import SliceLines, measure_lines
from upmri.learning.line_model import LineModel
from upmri.physics.fourier import ifft1c
from upmri.physics.partial_fourier import missing_sides
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import complex_normal

FEWEST = 4
"""Smallest number of held-out lines of a slice that has bounds."""

# Standard deviations that 99 % of normal levels are within, and how far beyond the calibrated range a scan may be.
_RANGE, _SLACK = 2.576, 0.1
# Smallest 1 − SSIM, and mean squared error relative to the peak: below is rounding.
_LEAST = 1e-6
_PREDICTORS = 5  # of PSNR, and of SSIM


@dataclass(frozen=True)
class Calibration:
    """What was fitted on other scans: the entry ``bounds`` of a card.

    Parameters
    ----------
    model
        Model of the errors of lines.
    level
        Mean and standard deviation of the levels of scans, and their number.
    unknowns, noise
        Least and largest unknowns per sample, and σ₀, of the scans.
    lines
        Conformal quantiles of the scores of lines by confidence, ``{"0.9": …}``.
    psnr, ssim
        ``coefficients`` of the prediction, and ``quantiles`` of what the prediction exceeds the truth by; empty without
        references.
    pixels
        Conformal quantiles of |error| over deviation; empty where there were no deviations.
    slices
        Number of slices of the fit and of the quantiles.
    """

    model: LineModel
    level: tuple[float, float, int]
    unknowns: tuple[float, float]
    noise: tuple[float, float]
    lines: dict[str, float]
    psnr: dict[str, Any] = field(default_factory=dict)
    ssim: dict[str, Any] = field(default_factory=dict)
    pixels: dict[str, float] = field(default_factory=dict)
    slices: tuple[int, int] = (0, 0)

    @classmethod
    def from_card(cls, card: Mapping[str, Any], source: str) -> Calibration:
        """Read the entry ``bounds`` of a card; an InputError says what to do where there is none."""
        if "bounds" not in card:
            raise InputError(
                f"{source} has no calibrated bounds; `upmri train` adds them where validation has 20 slices or more, "
                "and so does `python benchmarks/calibrate_bounds.py` of the repository (see docs/bounds.md)",
                field="bounds",
            )
        try:
            values = dict(card["bounds"])
            made = cls(
                model=LineModel.from_card(values["model"]),
                level=tuple(values["level"]),
                unknowns=tuple(values["unknowns"]),
                noise=tuple(values["noise"]),
                slices=tuple(values["slices"]),
                **{name: dict(values[name]) for name in ("lines", "psnr", "ssim", "pixels")},
            )
            made._check()
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"the calibration of the bounds of {source} is damaged", field="bounds") from error
        return made

    def _check(self) -> None:
        """Raise an error unless all numbers are there, and finite."""
        fitted = [part for part in (self.psnr, self.ssim) if part]
        scores = [value for part in fitted for value in (*part["coefficients"], *part["quantiles"].values())]
        model = (*self.model.coefficients, self.model.between, self.model.floor, self.model.share)
        rest = (*self.level, *self.unknowns, *self.noise, *self.lines.values(), *self.pixels.values())
        if not all(math.isfinite(number) for number in (*scores, *model, *rest)):
            raise ValueError("expected finite numbers")
        sizes = [len(self.level), len(self.unknowns), len(self.noise)]
        known = all(len(part["coefficients"]) == _PREDICTORS for part in fitted)
        if sizes != [3, 2, 2] or not known or min(*model[-3:], *self.level[1:], *self.unknowns) <= 0:
            raise ValueError("expected other sizes, and deviations above 0")

    def card(self) -> dict[str, Any]:
        """Return the entry of a card."""
        return {
            "model": self.model.card(),
            "level": list(self.level),
            "unknowns": list(self.unknowns),
            "noise": list(self.noise),
            "lines": self.lines,
            "psnr": self.psnr,
            "ssim": self.ssim,
            "pixels": self.pixels,
            "slices": list(self.slices),
        }

    def unlike(self, lines: SliceLines, level: float) -> str:
        """Return what makes a slice unlike those of the calibration; empty text if nothing does."""
        if len(lines.errors) < FEWEST:
            return f"it has {len(lines.errors)} lines outside the calibration region, and bounds need {FEWEST}"
        for name, value, (low, high) in (
            ("unknowns per sample", lines.unknowns, self.unknowns),
            ("noise level relative to the image", math.sqrt(lines.noise), self.noise),
        ):
            if not low / (1 + _SLACK) <= value <= high * (1 + _SLACK):
                return f"its {name}, {value:.3g}, is outside those of the calibration, {low:.3g} to {high:.3g}"
        mean, deviation, count = self.level
        reach = _RANGE * deviation * math.sqrt(1 + 1 / count)
        if abs(level - mean) > reach:
            usual = 10 / math.log(10) * (level - mean)
            return (
                f"its held-out lines have an error {abs(usual):.1f} dB {'above' if usual > 0 else 'below'} the usual, "
                f"and 99 % of the scans of the calibration are within {10 / math.log(10) * reach:.1f} dB"
            )
        return ""


def image_predictors(
    model: LineModel, lines: SliceLines, level: float, magnitude: Tensor, support: Tensor
) -> tuple[Tensor, Tensor]:
    """Predictors of PSNR, (5,), and of −10 log₁₀(1 − SSIM), (5,), of one slice, from what is known without the truth.

    Both have 1, and the logarithms of the unknowns per sample and of the noise. Those of PSNR have 10 log₁₀(peak² over
    the predicted mean squared error), those of SSIM the SSIM of the image with noise of the predicted spectrum: first
    of the lines that were not acquired, then with the noise of the acquired lines, too.

    Parameters
    ----------
    model, lines, level
        Model, lines of the slice, and its level.
    magnitude, support
        |x̂| and the pixels of the object, (H, W), on any device.
    """
    width = magnitude.shape[-1]
    coils = lines.samples / magnitude.shape[-2]
    signal, _ = model.predict(lines.missing, lines.noise, level)
    peak = magnitude.max().item() or 1.0
    inside = support.cpu()
    missing = torch.zeros(width, dtype=torch.float64)
    missing[lines.columns] = coils * signal
    acquired = torch.full_like(missing, lines.noise)
    acquired[lines.columns] = 0.0
    unit = complex_normal(tuple(magnitude.shape), torch.Generator().manual_seed(0))
    of_psnr = [1.0, math.log(lines.unknowns), math.log(lines.noise)]
    of_ssim = list(of_psnr)
    for noise in (torch.zeros_like(acquired), acquired):
        error = (missing.sum() + inside.double().mean() * noise.sum()).item() / width
        of_psnr.append(10 * math.log10(peak**2 / max(error, _LEAST * peak**2)))
        added = (ifft1c((missing + noise).sqrt() * unit) * inside).to(magnitude.device)
        likeness = ssim((magnitude + added)[None], magnitude[None]).item() if min(magnitude.shape) >= 7 else 1.0
        of_ssim.append(decibels(likeness))
    return torch.tensor(of_psnr, dtype=torch.float64), torch.tensor(of_ssim, dtype=torch.float64)


def decibels(likeness: float) -> float:
    """−10 log₁₀(1 − SSIM), which grows in equal steps where SSIM approaches 1."""
    return -10 * math.log10(max(1 - likeness, _LEAST))


def bound_slices(
    calibration: Calibration, reconstruct: Reconstruct, problem: Problem, image: Tensor, confidence: float
) -> Bounds:
    """Return bounds for the slices of a problem, on its scale; there are none where the scan is unlike the calibration.

    Parameters
    ----------
    calibration
        What was fitted on other scans, with the same reconstruction.
    reconstruct
        Reconstruction of a problem with any number of slices.
    problem, image
        Problem and its reconstruction, (slice, H, W).
    confidence
        Probability of each bound: one that was calibrated.
    """
    key = f"{confidence:g}"
    if key not in calibration.lines:
        known = ", ".join(calibration.lines)
        raise InputError(f"expected a calibrated confidence ({known}), got {key}", field="confidence")
    operator = problem.operator
    if not isinstance(operator, SenseOperator) or problem.lines.shape[1] > 1 or any(missing_sides(problem)):
        reason = "bounds were calibrated for scans of whole lines, on both sides of k-space"
        return Bounds.none(confidence, len(image), image.shape[-1], reason)
    support = operator.support
    return Bounds.join(
        [
            bound_slice(calibration, key, lines, image[index].abs(), support[index])
            for index, lines in enumerate(measure_lines(reconstruct, problem, image))
        ]
    )


def bound_slice(calibration: Calibration, key: str, lines: SliceLines, magnitude: Tensor, support: Tensor) -> Bounds:
    """Return the bounds of one slice of which the lines were measured.

    Parameters
    ----------
    calibration, key
        Calibration, and a confidence out of it, such as ``"0.9"``.
    lines
        Held-out and missing lines of the slice.
    magnitude, support
        |x̂| and the pixels of the object, (H, W).
    """
    confidence, model = float(key), calibration.model
    level = model.level(lines) if len(lines.errors) else 0.0
    reason = calibration.unlike(lines, level)
    if reason:
        return Bounds.none(confidence, 1, magnitude.shape[-1], reason)
    signal, deviation = model.predict(lines.missing, lines.noise, level)
    limits = torch.zeros(1, magnitude.shape[-1])
    above = calibration.lines[key] * model.scatter(lines) * deviation
    limits[0, lines.columns] = ((signal + lines.noise).log() + above).exp().sqrt().float()
    of_psnr, of_ssim = image_predictors(model, lines, level, magnitude, support)
    likeness = _limit(calibration.ssim, key, of_ssim)
    return Bounds(
        confidence=confidence,
        psnr=(_limit(calibration.psnr, key, of_psnr),),
        ssim=(None if likeness is None else max(-1.0, 1 - 10 ** (-likeness / 10)),),
        lines=limits,
        deviations=calibration.pixels.get(key),
        reasons=("",),
    )


def _limit(fitted: Mapping[str, Any], key: str, predictors: Sequence[float] | Tensor) -> float | None:
    """The prediction less the quantile of what it exceeds the truth by, None where that was not calibrated."""
    quantile = fitted.get("quantiles", {}).get(key)
    if quantile is None:
        return None
    pairs = zip(fitted["coefficients"], torch.as_tensor(predictors).tolist(), strict=True)
    return sum(coefficient * value for coefficient, value in pairs) - quantile
