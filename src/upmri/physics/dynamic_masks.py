"""Phase-encoding lines of dynamic scans: one set for each frame, so that the sets of different frames differ.

===============  =====================================================================================================
random           lines at random, independent in each frame
interleaved      equidistant lines, shifted from frame to frame, as in k-t BLAST and TSENSE
variable         more lines near DC, shifted by the golden ratio from frame to frame, as in VISTA and GRO
===============  =====================================================================================================

Every frame has round(W/R) lines, its calibration lines included. Neighbouring frames of the last two have few lines in
common outside the calibration region, and together they soon have all of them.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.masks import centre_lines, generator_of, random_lines

Pattern = Literal["random", "interleaved", "variable"]

_GOLDEN = (math.sqrt(5) - 1) / 2
# Density of `variable` at distance d from DC, 1 at the edge: (1 − d)^_POWER + _FLOOR.
_POWER, _FLOOR = 2.0, 0.15


def frame_lines(
    pattern: Pattern,
    frames: int,
    width: int,
    acceleration: float,
    acs: int = 0,
    *,
    seed: int | torch.Generator = 0,
) -> Tensor:
    """Draw the lines of the frames of a dynamic scan.

    Parameters
    ----------
    pattern
        ``random``, ``interleaved`` or ``variable``.
    frames
        Number of frames.
    width
        Number of phase-encoding lines W.
    acceleration
        R ≥ 1: each frame has exactly round(W/R) lines.
    acs
        Number of calibration lines at the centre of each frame, among the round(W/R).
    seed
        Random seed, or a generator: of the lines of ``random``, and of the first shift of the others.

    Returns
    -------
    Tensor
        Bool (frame, 1, W).

    Examples
    --------
    >>> from upmri.physics import frame_lines
    >>> lines = frame_lines("interleaved", frames=8, width=64, acceleration=8)
    >>> lines.sum(2).unique(), lines.any(0).all()
    (tensor([8]), tensor(True))
    """
    if pattern not in get_args(Pattern):
        raise InputError(f"expected one of {', '.join(get_args(Pattern))}, got {pattern!r}", field="pattern")
    if frames < 1:
        raise InputError(f"expected at least one frame, got {frames}", field="frames")
    generator = generator_of(seed)
    if pattern == "random":
        return torch.stack([random_lines(width, acceleration, acs, seed=generator) for _ in range(frames)])
    count = int(random_lines(width, acceleration, acs, seed=generator).sum()) - acs  # checks the request, too
    centre = centre_lines(width, acs)
    free = (~centre[0]).nonzero().flatten()
    start = float(torch.rand((), generator=generator, dtype=torch.float32))
    mask = centre.repeat(frames, 1, 1)
    if count == 0:
        return mask
    shifts, share = _shifts(pattern, frames, len(free), count), _cumulated(pattern, free, width)
    for frame, shift in zip(mask[:, 0], shifts, strict=True):
        wanted = (torch.arange(count, dtype=torch.float64) + (start + shift) % 1) / count
        chosen = _distinct(torch.searchsorted(share, wanted, right=True).clamp_max(len(free) - 1), len(free))
        frame[free[chosen]] = True
    return mask


def _shifts(pattern: Pattern, frames: int, free: int, count: int) -> list[float]:
    """Shift of each frame, in distances of two lines."""
    if pattern == "variable":
        return [frame * _GOLDEN % 1 for frame in range(frames)]
    # All shifts once in each `period` frames, neighbours far apart.
    period = math.ceil(free / count)
    step = next(s for s in range(max(1, round(_GOLDEN * period)), 2 * period + 1) if math.gcd(s, period) == 1)
    return [frame * step % period / period for frame in range(frames)]


def _cumulated(pattern: Pattern, free: Tensor, width: int) -> Tensor:
    """Share of the density up to and with each free line, 1 at the last."""
    density = torch.ones(len(free), dtype=torch.float64)
    if pattern == "variable":
        away = (free - width // 2).abs().double() / (width / 2)
        density = (1 - away).clamp_min(0) ** _POWER + _FLOOR
    total = density.cumsum(0)
    return total / total[-1]


def _distinct(chosen: Tensor, length: int) -> Tensor:
    """Replace each number that an earlier one has taken by the nearest free one."""
    taken: set[int] = set()
    for wanted in chosen.tolist():
        free = [wanted] if wanted not in taken else [i for i in range(length) if i not in taken]
        taken.add(min((abs(i - wanted), i) for i in free)[1])
    return torch.tensor(sorted(taken))
