"""Masks of two phase-encoding directions, (H, W), the same at every position along the readout of a 3-D scan.

===========  ===========================================================================================================
poisson      discs whose size grows with the distance from DC: few gaps, few clusters, aliasing like noise
caipi        a regular lattice, every R₁-th row and R₂-th column, the columns shifted from row to row
separable    random rows times random columns
===========  ===========================================================================================================

Each has a fully sampled block around DC, for coil maps. An elliptic shutter leaves out the corners of k-space, which
saves 1 − π/4 of the time and little of the resolution.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.masks import centre_block, check_acceleration, generator_of, poisson_disc, random_lines

PlanePattern = Literal["poisson", "caipi", "separable"]
# Longest side of the calibration block that is taken when none is asked for, and its largest share of the samples.
_USUAL_BLOCK, _BLOCK_SHARE = 24, 0.25


def default_block(shape: tuple[int, int], acceleration: float) -> int:
    """Return the side of the calibration block when none is asked for: 24, but at most a quarter of the samples."""
    check_acceleration(acceleration)
    return min(_USUAL_BLOCK, int(math.sqrt(_BLOCK_SHARE * shape[0] * shape[1] / acceleration)), *shape)


def is_plane(pattern: str) -> bool:
    """Return whether a pattern is one of two phase encodings, not ``lines``; any other is an error."""
    names = ("lines", *get_args(PlanePattern))
    if pattern not in names:
        raise InputError(f"expected one of {', '.join(names)}, got {pattern!r}", field="pattern")
    return pattern != "lines"


def ellipse(shape: tuple[int, int]) -> Tensor:
    """Return the ellipse that touches the four edges of k-space, bool (H, W)."""
    y, x = ((2 * torch.arange(n) + 1 - n) / n for n in shape)
    return y.square()[:, None] + x.square() <= 1


def caipi(
    shape: tuple[int, int],
    steps: tuple[int, int] = (2, 2),
    shift: int = 1,
    calibration: tuple[int, int] = (0, 0),
) -> Tensor:
    """Sample a shifted lattice (2D CAIPIRINHA, Breuer et al. 2006) that holds DC, and the block around it besides.

    A point (y, x) from DC is sampled if R₁ divides y and R₂ divides x − (y/R₁) Δ. Shifts move the copies of the object
    that fold onto each other apart, so that coils distinguish them better.

    Parameters
    ----------
    shape
        (H, W).
    steps
        R₁ and R₂; the acceleration is their product, without the calibration block.
    shift
        Δ, 0 ≤ Δ < R₂; 0 is the regular lattice.
    calibration
        Height and width of the block.

    Returns
    -------
    Tensor
        Bool (H, W).
    """
    rows, columns = steps
    if min(rows, columns) < 1:
        raise InputError(f"expected two whole numbers ≥ 1, got {steps}", field="steps")
    if not 0 <= shift < columns:
        raise InputError(f"expected 0 ≤ shift < {columns}, got {shift}", field="shift")
    y, x = (torch.arange(n) - n // 2 for n in shape)
    lattice = (y % rows == 0)[:, None] & ((x - (y // rows)[:, None] * shift) % columns == 0)
    return lattice | centre_block(shape, calibration)


def separable(
    shape: tuple[int, int],
    acceleration: float,
    calibration: tuple[int, int] = (0, 0),
    *,
    seed: int | torch.Generator = 0,
) -> Tensor:
    """Draw round(H/√R) random rows and round(W/√R) random columns; where both meet is sampled, bool (H, W).

    The central rows and columns among them make the calibration block.
    """
    check_acceleration(acceleration)
    generator = generator_of(seed)
    each = math.sqrt(acceleration)
    rows, columns = (
        random_lines(length, each, acs, seed=generator)[0] for length, acs in zip(shape, calibration, strict=True)
    )
    return rows[:, None] & columns


def plane_mask(
    pattern: PlanePattern,
    shape: tuple[int, int],
    acceleration: float,
    block: int | None = None,
    *,
    elliptic: bool = False,
    seed: int | torch.Generator = 0,
) -> Tensor:
    """Draw a mask by the name of its pattern.

    Parameters
    ----------
    pattern
        ``"poisson"``, ``"caipi"`` or ``"separable"``.
    shape
        (H, W).
    acceleration
        R ≥ 1. ``caipi`` takes the lattice R₁×R₂ = R with the least difference of R₁ ≤ R₂ (4: 2×2, 6: 2×3, 8: 2×4), so R
        is whole there, and the calibration block lowers the true acceleration. With an elliptic shutter R is that of
        the pattern inside, except for ``poisson``, whose count stays round(HW/R).
    block
        Side of the calibration block; 24, or less on small grids, when not given.
    elliptic
        Whether the corners of k-space are left out.
    seed
        Random seed, or a generator.

    Returns
    -------
    Tensor
        Bool (H, W).
    """
    side = default_block(shape, acceleration) if block is None else block
    calibration = (side, side)
    shutter = ellipse(shape) if elliptic else None
    if pattern == "poisson":
        return poisson_disc(shape, acceleration, calibration, within=shutter, seed=seed)
    if pattern == "caipi":
        steps = lattice_steps(acceleration)
        mask = caipi(shape, steps, max(steps[1] // 2, min(1, steps[1] - 1)), calibration)
    elif pattern == "separable":
        mask = separable(shape, acceleration, calibration, seed=seed)
    else:
        raise InputError(f"expected one of {', '.join(get_args(PlanePattern))}, got {pattern!r}", field="pattern")
    return mask if shutter is None else mask & shutter


def lattice_steps(acceleration: float) -> tuple[int, int]:
    """Return the two whole numbers R₁ ≤ R₂ with the product R that differ least."""
    whole = round(acceleration)
    if whole != acceleration or whole < 1:
        raise InputError(f"expected a whole number ≥ 1 for a lattice, got {acceleration:g}", field="acceleration")
    first = next(n for n in range(math.isqrt(whole), 0, -1) if whole % n == 0)
    return first, whole // first
