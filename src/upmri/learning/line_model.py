"""A model of the error of a k-space line before it is measured: what is usual, and the level of the scan.

The expected error of line j of scan i, noise included, is

    m² = σ₀² + exp(f_j · β + ℓ_i),

with the features f of :mod:`upmri.learning.line_errors`, coefficients β that all scans share, and the level ℓ_i of the
scan, 0 in the mean and with a variance of τ² over scans. All are fitted to log e² by least squares (Gauss-Newton). The
level of a new scan comes from its own held-out lines; few lines give a level near 0 (posterior mode). So does the
scatter of its lines around m², relative to the usual one.

The model need not be right for a bound to hold: it only decides how tight bounds are, and how equal for all lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

from upmri.learning.line_errors import NAMES, SliceLines

_STEPS = 30
# Number of residuals of the usual size that count with those of a scan, chosen on validation people: without its own
# scatter the share of lines below a bound of 90 % was 83 % at low noise and 93 % at high noise, with it 88 and 90 %.
_USUAL = 4
# Smallest error relative to e² where the fit begins, and the smallest standard deviations.
_SMALL, _LEAST = 0.05, 0.02
# Largest change of a level in one step, and halvings of a step of the fit.
_STRIDE, _HALVINGS = 1.0, 12
_TINY = 1e-12
# Ridge on the coefficients, relative to the number of lines: features of similar scans are nearly collinear.
_RIDGE = 1e-4


@dataclass(frozen=True)
class LineModel:
    """Coefficients of the model.

    Parameters
    ----------
    coefficients
        β, one for each feature.
    between
        Standard deviation τ of the levels of scans.
    floor, share
        The standard deviation of log e² is floor + share · w, where w is the part of m² that is not noise.
    """

    coefficients: tuple[float, ...]
    between: float
    floor: float
    share: float

    @classmethod
    def fit(cls, slices: Sequence[SliceLines]) -> LineModel:
        """Fit the coefficients and the standard deviations to the held-out lines of some slices."""
        features = torch.cat([lines.held_out for lines in slices])
        errors = torch.cat([lines.errors for lines in slices])
        noise = torch.cat([torch.full_like(lines.errors, lines.noise) for lines in slices])
        owner = torch.cat([torch.full((len(lines.errors),), i) for i, lines in enumerate(slices)])
        belongs = nnf.one_hot(owner, len(slices)).to(features)
        design = torch.cat([features, belongs], 1)
        above = torch.maximum(errors - noise, _SMALL * errors).log()
        ridge = torch.full((features.shape[1],), _RIDGE * len(errors), dtype=features.dtype)
        start = torch.linalg.solve(features.T @ features + ridge.diag(), features.T @ above)
        centre = torch.cat([start, start.new_zeros(len(slices))])  # where the penalty pulls to
        values, within, between = centre, 1.0, 1.0
        for _ in range(_STEPS):
            penalty = torch.cat([ridge, ridge.new_full((len(slices),), within / between)])
            residual, share = _residual(design @ values, errors, noise)
            jacobian = share[:, None] * design
            change = torch.linalg.solve(
                jacobian.T @ jacobian + penalty.diag(), jacobian.T @ residual - penalty * (values - centre)
            )
            values = _descend(values, change, partial(_objective, design, errors, noise, penalty, centre))
            residual, share = _residual(design @ values, errors, noise)
            levels = values[features.shape[1] :]
            within = max(residual.square().mean().item(), _LEAST**2)
            spread = within / (belongs.T @ share.square() + within / between)
            between = max((levels.square() + spread).mean().item(), _LEAST**2)
        # The mean of |r| is (2/π)^½ times the standard deviation of a normal r; squares would follow the largest.
        sizes = residual.abs() * (math.pi / 2) ** 0.5
        floor, rest = (max(value, _LEAST) for value in _line(share, sizes))
        return cls(tuple(values[: features.shape[1]].tolist()), between**0.5, floor, rest)

    @classmethod
    def from_card(cls, values: Mapping[str, Any]) -> LineModel:
        """Read what ``asdict`` gave."""
        made = cls(**{**values, "coefficients": tuple(values["coefficients"])})
        if len(made.coefficients) != len(NAMES):
            raise ValueError(f"expected {len(NAMES)} coefficients")
        return made

    def card(self) -> dict[str, Any]:
        """Return the values for JSON."""
        numbers = {key: round(value, 6) for key, value in asdict(self).items() if isinstance(value, float)}
        return {"coefficients": [round(value, 6) for value in self.coefficients], **numbers}

    def predict(self, features: Tensor, noise: float, level: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """m² less the noise, and the standard deviation of log e², (line,) each."""
        signal = (features @ features.new_tensor(self.coefficients) + level).exp()
        share = signal / (signal + noise)
        return signal, self.floor + self.share * share

    def level(self, lines: SliceLines) -> float:
        """Level ℓ of a scan from its held-out lines."""
        return self._levels(lines, torch.ones(1, len(lines.errors), dtype=torch.bool)).item()

    def levels_without_each(self, lines: SliceLines) -> Tensor:
        """Levels from all held-out lines but one, for each of them, (line,)."""
        return self._levels(lines, ~torch.eye(len(lines.errors), dtype=torch.bool))

    def _levels(self, lines: SliceLines, used: Tensor) -> Tensor:
        """Posterior modes from some of the lines, bool (mode, line), by Gauss-Newton steps."""
        level = lines.errors.new_zeros(len(used))
        for _ in range(_STEPS):
            signal, deviation = self.predict(lines.held_out, lines.noise, level[:, None])
            share = signal / (signal + lines.noise)
            residual = lines.errors.log() - (signal + lines.noise).log()
            weight = used / deviation.square()
            pull = (weight * share * residual).sum(1) - level / self.between**2
            change = pull / ((weight * share.square()).sum(1) + 1 / self.between**2)
            level = level + change.clamp(-_STRIDE, _STRIDE)
        return level

    def scores(self, lines: SliceLines) -> Tensor:
        """Scores of the held-out lines, (line,): log e² − log m² over its deviation, both by the other lines."""
        residual = self._residuals(lines)
        total = residual.square().sum() - residual.square()
        return residual / _scatter(total, len(residual) - 1)

    def scatter(self, lines: SliceLines) -> float:
        """Deviation of the lines of a scan relative to the usual one; near 1 for few lines."""
        return float(_scatter(self._residuals(lines).square().sum(), len(lines.errors)))

    def _residuals(self, lines: SliceLines) -> Tensor:
        """Log e² − log m² over its usual deviation, (line,)."""
        signal, deviation = self.predict(lines.held_out, lines.noise, self.levels_without_each(lines))
        return (lines.errors.log() - (signal + lines.noise).log()) / deviation


def _scatter(squares: Tensor, count: int) -> Tensor:
    """Root mean square of ``count`` residuals, with some of size 1 among them."""
    return ((_USUAL + squares) / (_USUAL + count)).sqrt()


def _residual(signal: Tensor, errors: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Log e² − log m², and the part of m² that is not noise, for the logarithm of that part."""
    predicted = signal.exp() + noise
    return errors.log() - predicted.log(), signal.exp() / predicted


def _objective(design: Tensor, errors: Tensor, noise: Tensor, penalty: Tensor, centre: Tensor, values: Tensor) -> float:
    residual, _ = _residual(design @ values, errors, noise)
    return (residual.square().sum() + (penalty * (values - centre).square()).sum()).item()


def _descend(values: Tensor, change: Tensor, objective: Callable[[Tensor], float]) -> Tensor:
    """Return the values after the longest step, of halves of the change, that lowers the objective; or as they were."""
    before = objective(values)
    for halvings in range(_HALVINGS):
        after = values + change / 2**halvings
        if objective(after) < before:
            return after
    return values


def _line(x: Tensor, y: Tensor) -> tuple[float, float]:
    """A and b ≥ 0 of least squares, y ≈ a + b x, for x ≥ 0 and y ≥ 0."""
    slope = ((x - x.mean()) @ (y - y.mean())).item() / max(((x - x.mean()) @ (x - x.mean())).item(), _TINY)
    start = (y.mean() - slope * x.mean()).item()
    if slope < 0:
        return y.mean().item(), 0.0
    return (start, slope) if start >= 0 else (0.0, ((x @ y) / (x @ x)).item())
