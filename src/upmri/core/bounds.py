"""Bounds on the error of a reconstruction, with the probability that they hold and what they do not cover."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.errors import InputError

CONDITION = "if this scan is like those of the calibration"
"""What a bound depends on."""

NOT_COVERED = (
    "Not covered: what no acquired line can show, errors of the coil maps that held-out lines do not show, and scans "
    "unlike those of the calibration."
)
"""What a bound says nothing about."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Bounds:
    """Bounds on the error of each slice; each bound holds for itself with probability ``confidence``.

    They hold if the scan is like those that the bounds were calibrated with. See ``docs/bounds.md``.

    Parameters
    ----------
    confidence
        Probability of each bound.
    psnr, ssim
        Lower bounds on PSNR (dB) and SSIM of each slice against the image without undersampling and noise; None for
        slices without a bound, and where these were not calibrated.
    lines
        Upper bounds (slice, phase) on the root mean square, over coils and readout, of the difference between a line
        that was not acquired, if it were measured, and its prediction, in the units of the scan. 0 for acquired lines,
        NaN for slices without a bound, and for images that came from a server, which does not send them.
    deviations
        q of the intervals |x| ± q·std of the pixels, where the reconstruction has a standard deviation; None without.
    reasons
        Why a slice has no bound; empty text for slices that have one.
    """

    confidence: float
    psnr: tuple[float | None, ...]
    ssim: tuple[float | None, ...]
    lines: Tensor
    deviations: float | None = None
    reasons: tuple[str, ...]

    def __post_init__(self) -> None:
        count = len(self.reasons)
        if not 0 < self.confidence < 1:
            raise InputError(f"expected a probability between 0 and 1, got {self.confidence!r}", field="confidence")
        if count == 0 or len(self.psnr) != count or len(self.ssim) != count or len(self.lines) != count:
            raise InputError("expected PSNR, SSIM, lines and a reason for each slice", field="bounds")
        if self.lines.ndim != 2 or self.lines.is_complex():
            raise InputError("expected real values (slice, phase)", field="bounds.lines")

    def __len__(self) -> int:
        return len(self.reasons)

    def __repr__(self) -> str:
        return f"Bounds: {self.sentence}"

    @classmethod
    def none(cls, confidence: float, slices: int, width: int, reason: str) -> Bounds:
        """Return the bounds of slices that have none."""
        nothing = (None,) * slices
        empty = torch.full((slices, width), math.nan)
        return cls(confidence=confidence, psnr=nothing, ssim=nothing, lines=empty, reasons=(reason,) * slices)

    @classmethod
    def join(cls, parts: Sequence[Bounds]) -> Bounds:
        """Return the bounds of consecutive slices as one."""
        return replace(
            parts[0],
            psnr=tuple(value for part in parts for value in part.psnr),
            ssim=tuple(value for part in parts for value in part.ssim),
            lines=torch.cat([part.lines for part in parts]),
            deviations=next((part.deviations for part in parts if part.deviations is not None), None),
            reasons=tuple(reason for part in parts for reason in part.reasons),
        )

    def take(self, numbers: Sequence[int]) -> Bounds:
        """Return the bounds of some slices, in the order of the numbers."""
        return replace(
            self,
            psnr=tuple(self.psnr[number] for number in numbers),
            ssim=tuple(self.ssim[number] for number in numbers),
            lines=self.lines[list(numbers)],
            reasons=tuple(self.reasons[number] for number in numbers),
        )

    def scaled(self, scale: Tensor) -> Bounds:
        """Return the bounds in units of which ``scale``, (slice,), make up one of the present ones, on the CPU."""
        return replace(self, lines=(self.lines.to(scale) * scale[:, None]).cpu().float())

    def interval(self, image: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ends |x| − q·std, 0 at least, and |x| + q·std of the intervals of the pixels, (slice, H, W)."""
        if self.deviations is None:
            raise InputError("there are no intervals of pixels; reconstruct with samples above 1", field="bounds")
        magnitude, half = image.abs(), self.deviations * std
        return (magnitude - half).clamp_min(0), magnitude + half

    @property
    def sentence(self) -> str:
        """One line for people: the bound on PSNR, its probability and its condition, or why there is none."""
        known = [value for value in self.psnr if value is not None]
        without = len(self) - sum(not reason for reason in self.reasons)
        why = next((reason for reason in self.reasons if reason), "")
        if not known:
            return f"no bound: {why}" if why else "no bound on PSNR: the weights were calibrated without references"
        least, most = (f"{value:.1f}" for value in (min(known), max(known)))
        amount = f"{least} dB" if len(known) == 1 else f"{least} to {most} dB, each slice its own,"
        text = f"at least {amount} with {self.confidence:.0%} confidence, {CONDITION}".replace("%", " %")
        return text + (f"; no bound for {without} of {len(self)} slices: {why}" if without else "")

    @property
    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON values; :meth:`from_header` reads it."""
        return {
            "confidence": self.confidence,
            "psnr": list(self.psnr),
            "ssim": list(self.ssim),
            "deviations": self.deviations,
            "reasons": list(self.reasons),
        }

    @property
    def summary(self) -> dict[str, Any]:
        """The bounds as JSON values, with a sentence, and with the median bound of the missing lines of each slice."""
        medians = [line[line > 0].median().item() if bool((line > 0).any()) else None for line in self.lines]
        return {**self.header, "lines": medians, "sentence": self.sentence, "not covered": NOT_COVERED}

    @classmethod
    def from_header(cls, header: Mapping[str, Any], lines: Tensor | NDArray[Any]) -> Bounds:
        """Return the bounds of a header and its array; an InputError for anything else."""
        try:
            confidence, deviations = float(header["confidence"]), header["deviations"]
            psnr, ssim = (tuple(None if x is None else float(x) for x in header[name]) for name in ("psnr", "ssim"))
            reasons = tuple(map(str, header["reasons"]))
            deviations = None if deviations is None else float(deviations)
            lines = torch.as_tensor(lines)
            if not all(math.isfinite(value) for value in (*psnr, *ssim, deviations) if value is not None):
                raise ValueError("expected finite numbers")
        except (LookupError, TypeError, ValueError) as error:
            raise InputError("expected confidence, psnr, ssim, deviations and reasons", field="bounds") from error
        return cls(confidence=confidence, psnr=psnr, ssim=ssim, lines=lines, deviations=deviations, reasons=reasons)
