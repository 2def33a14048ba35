"""Partial Fourier and asymmetric echoes: recognise the side of k-space that was not acquired, and use the other side.

The phase of an image varies slowly but for a few places, and an image without phase is real: what was measured at k
says what −k would have been. The phase factor φ is that of the band of k-space that was acquired on both sides of the
centre, in the SENSE image, with a Hann window. How well it is known differs from place to place (fat beside water, air
in the sinuses): the whole band, without window, has an imaginary part after demodulation with φ, of which the local
mean square is τ²(r). The image is then the least squares solution with Im(φ̄ x) of variance τ²(r), see
:class:`~upmri.physics.phase_constraint.PhaseConstrainedOperator`. With the same τ everywhere, simulated heads with fat
in the skin became worse than without any constraint, by up to 4 dB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

from upmri.core.stages import stage
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.phase_constraint import PhaseConstrainedOperator
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping

REGULARISED = 0.3
"""Strength of the constraint for methods with a prior of their own, chosen on simulated scans of validation people."""

# Half the width of the band along an axis that is complete, in periods over the field of view.
_PERIODS = 64
# Largest β: with more, the imaginary part is 0 all the same.
_STRONGEST = 1.0
# Smallest difference of the two sides: of the whole axis, and of the longest gap between sampled positions.
_SHARE, _GAPS = 1 / 16, 2
# Smallest number of samples beyond the mirror image of the other side's last one. All of them on one side is what a
# symmetric random mask has with a probability of 2^(1−n); regular ones have gaps of one length, and need fewer.
_SAMPLES, _FEW, _MANY_GAPS = 8, 3, 3
# Smallest reach of the shorter side: the phase is from this band.
_REACH = 4


@dataclass(frozen=True)
class MissingSide:
    """One side of k-space that was acquired only up to a distance from the centre.

    Parameters
    ----------
    axis
        −1 for phase encoding, −2 for the readout.
    length
        Number of positions along this axis.
    reach, far
        Distance from the centre of the last position acquired on this side, and on the other one.
    lower
        Whether it is the side of lower indices.
    points
        Whether the mask is one of points, so that both axes are phase-encoded.
    """

    axis: int
    length: int
    reach: int
    far: int
    lower: bool
    points: bool = False

    @property
    def missing(self) -> Tensor:
        """Positions that were left out, bool (length,)."""
        distance = torch.arange(self.length) - self.length // 2
        return (-distance if self.lower else distance) > self.reach

    @property
    def share(self) -> float:
        """Acquired part of the axis."""
        return (self.reach + self.far + 1) / min(self.length, 2 * self.far + 1)

    def __str__(self) -> str:
        eighths = round(8 * self.share)
        part = f"{eighths}/8" if abs(8 * self.share - eighths) < 0.15 else f"{self.share:.0%}"
        if self.points:
            return f"partial Fourier {part} along the {'second' if self.axis == -1 else 'first'} axis"
        return f"partial Fourier {part} along phase" if self.axis == -1 else f"asymmetric echo, {part} of the readout"


def recognise(mask: Tensor, kspace: Tensor | None = None) -> list[MissingSide]:
    """Find axes along which one side of k-space was systematically not acquired.

    Parameters
    ----------
    mask
        Sampled positions of one slice, bool (1 or H, W).
    kspace
        Its data (coil, H, W), of which the zeros show an asymmetric echo; without them only the mask counts.

    Examples
    --------
    >>> import torch
    >>> from upmri.physics.partial_fourier import recognise
    >>> str(recognise(torch.arange(64)[None] < 48)[0])
    'partial Fourier 6/8 along phase'
    """
    lines = mask.cpu().numpy()
    filled = None if kspace is None else (kspace[..., _middle(lines)] != 0).any(0).cpu().numpy()
    return _found(lines, filled)


def _found(mask: np.ndarray, filled: np.ndarray | None) -> list[MissingSide]:
    """Missing sides of a mask; ``filled`` are the samples of a line that are not 0, (H,)."""
    points = len(mask) > 1 and not bool((mask == mask[:1]).all())
    found = [_missing(np.logical_or.reduce(mask, 0), -1, points=points)]
    if points:
        found.append(_missing(np.logical_or.reduce(mask, 1), -2, points=True))
    elif filled is not None:
        found.append(_missing(filled, -2, points=False))
    return [side for side in found if side is not None]


def _middle(mask: np.ndarray) -> int:
    """The sampled line nearest to the centre of k-space; the central one if there is none."""
    lines = np.logical_or.reduce(mask, 0).nonzero()[0]
    width = mask.shape[1]
    return int(lines[np.abs(lines - width // 2).argmin()]) if len(lines) else width // 2


def _missing(sampled: np.ndarray, axis: int, *, points: bool) -> MissingSide | None:
    at = sampled.nonzero()[0] - len(sampled) // 2
    if len(at) < 2 or at[0] > 0 or at[-1] < 0:
        return None
    below, above = -int(at[0]), int(at[-1])
    reach, far = min(below, above), max(below, above)
    beyond = int((np.abs(at) > reach).sum())
    gap = int(np.diff(at).max())
    apart = far - reach
    evident = beyond >= _SAMPLES or (beyond >= _FEW and apart >= _MANY_GAPS * gap)
    if reach < _REACH or apart < max(_SHARE * len(sampled), _GAPS * gap) or not evident:
        return None
    return MissingSide(axis, len(sampled), reach, far, below < above, points)


def missing_sides(problem: Problem) -> list[list[MissingSide]]:
    """Sides of k-space that were not acquired, for each slice of a problem with a mask and data."""
    masks, data = problem.lines.numpy(), problem.data  # NumPy is quicker with such small arrays
    chosen = torch.stack([data[i, ..., _middle(mask)] for i, mask in enumerate(masks)])
    filled = (chosen != 0).any(1).cpu().numpy()  # of all slices at once: an accelerator would have to wait for each
    return [_found(mask, rows) for mask, rows in zip(masks, filled, strict=True)]


def constrain(problem: Problem, strength: float = 1.0) -> Problem:
    """Return the problem with the phase constraint, if one side of k-space was not acquired; else the problem itself.

    Parameters
    ----------
    problem
        Problem with a :class:`~upmri.physics.sense.SenseOperator`; others are left as they are.
    strength
        Factor of β: :data:`REGULARISED` for methods that know more about images than least squares do.
    """
    operator = problem.operator
    if not isinstance(operator, SenseOperator) or not problem.has_data:
        return problem
    sides = missing_sides(problem)
    if not any(sides):
        return problem
    with stage("partial Fourier"):
        phase, weight = expected_phase(problem, sides)
        rows = torch.stack([_left_out(found, operator.shape[1]) for found in sides])[..., None]
        missing = rows.to(problem.device) if bool(rows.any()) else None
        constrained = PhaseConstrainedOperator(operator.maps, operator.mask, phase, strength * weight, missing)
    return problem.derived(constrained, constrained.extended(problem.kspace), reference=problem.reference)


def expected_phase(problem: Problem, sides: list[list[MissingSide]]) -> tuple[Tensor, Tensor]:
    """Phase factor φ and weight β = σ₀²/2τ² of a problem, (slice, H, W); β is 0 in slices without missing sides."""
    _, h, w = problem.operator.shape
    band, window = (
        torch.stack([_filter(found, h, w, smooth=smooth) for found in sides]).to(problem.device)
        for smooth in (False, True)
    )
    image = fft2c(problem.operator.solve(problem.adjoint, sense_damping(problem.sigma), tolerance=1e-3))
    phase = ifft2c(image * window).sgn()
    square = (phase.conj() * ifft2c(image * band)).imag.square()
    variance = torch.cat([_local_mean(one[None], found) for one, found in zip(square, sides, strict=True)])
    weight = problem.sigma.square()[:, None, None] / (2 * variance).clamp_min(torch.finfo(square.dtype).tiny)
    used = torch.tensor([bool(found) for found in sides], device=problem.device)[:, None, None]
    return phase, weight.clamp_max(_STRONGEST) * used


def _left_out(sides: list[MissingSide], height: int) -> Tensor:
    """Rows that an asymmetric echo left out, bool (H,): lines with such rows count as sampled."""
    rows = [side.missing for side in sides if side.axis == -2 and not side.points]
    return rows[0] if rows else torch.zeros(height, dtype=torch.bool)


def _filter(sides: list[MissingSide], height: int, width: int, *, smooth: bool) -> Tensor:
    """The band that was acquired on both sides, (H, W), with a Hann window or without."""
    reach = {side.axis: side.reach for side in sides}
    y, x = (_band(length, reach.get(axis), smooth=smooth) for axis, length in ((-2, height), (-1, width)))
    return y[:, None] * x


def _band(length: int, reach: int | None, *, smooth: bool) -> Tensor:
    distance = (torch.arange(length) - length // 2).abs()
    if not smooth:
        return (distance <= (length if reach is None else reach)).float()
    relative = distance / (1 + (min(_PERIODS, length // 2) if reach is None else reach))
    return (0.5 + 0.5 * torch.cos(torch.pi * relative)) * (relative < 1)


def _local_mean(values: Tensor, sides: list[MissingSide]) -> Tensor:
    """Mean over as many pixels as the band resolves, (slice, H, W)."""
    reach = max((max(1, round(side.length / (4 * side.reach))) for side in sides), default=1)
    return nnf.avg_pool2d(values[:, None], 2 * reach + 1, 1, reach, count_include_pad=False)[:, 0]
