"""GRAPPA: k-space is filled in coil by coil, then the coil images are combined."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from upmri.core.checks import in_range, one_of, positive, whole
from upmri.core.errors import InputError
from upmri.methods.base import Method
from upmri.physics.fourier import ifft2c
from upmri.physics.grappa import covariance_of_block, covariance_of_maps, fill
from upmri.physics.masks import calibration_region
from upmri.physics.patterns import Reach
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

Calibration = Literal["auto", "lines", "maps"]

# Positions that a window takes on calibration lines, in each direction, at the least.
_SLIDES = 4
# Farthest line of a kernel, and widest window of 2-D masks.
_FARTHEST, _LARGEST = 15, 7
# Samples of a kernel of 2-D masks.
_SAMPLES = 6
# Distances between regular lines that may differ from the others: at both ends of the calibration lines.
_ENDS = 2


@dataclass(frozen=True)
class Grappa(Method):
    """Unsampled k-space from the samples around it: kernels of ``rows`` × ``lines`` samples of all coils.

    Each pattern of samples has a kernel of its own (:mod:`upmri.physics.grappa`); those of 2-D masks have the six
    nearest samples in a window of up to 7×7. The coil images are combined with the coil maps, x = Σ_c conj(S_c) F* k_c.

    Parameters
    ----------
    rows
        Samples of a kernel along the readout, an odd number; for masks of lines.
    lines
        Sampled lines of a kernel, an even number: the nearest ones.
    damping
        λ relative to the norm of the calibration equations, divided by their number of unknowns.
    calibration
        Data that kernels are fitted to. ``"lines"``: the calibration lines of the scan, as published. ``"maps"``: its
        coil maps, which may be those of a reference scan, and its noise level. ``"auto"``: lines, if the others are
        regular and there are enough for the kernel; otherwise maps.
    """

    name = "grappa"
    summary = "k-space filled in by kernels from calibration lines or coil maps (Griswold 2002)"

    rows: int = 5
    lines: int = 4
    damping: float = 0.03
    calibration: Calibration = "auto"

    def __post_init__(self) -> None:
        in_range(self, rows=(1, 15), lines=(2, 16))
        whole(self, 1, "rows", "lines")
        if self.rows % 2 == 0:
            raise InputError(f"expected an odd number, got {self.rows}", field="rows")
        if self.lines % 2:
            raise InputError(f"expected an even number, got {self.lines}", field="lines")
        positive(self, "damping")
        one_of(self, calibration=get_args(Calibration))

    def reconstruct(self, problem: Problem) -> Tensor:
        """Σ_c conj(S_c) F* k_c of the filled k-space."""
        operator = problem.operator
        if not isinstance(operator, SenseOperator):
            raise InputError("grappa needs Cartesian k-space of coils with maps (SenseOperator)", field="operator")
        kspace = problem.samples
        filled = torch.stack([self._fill(problem, i, kspace[i]) for i in range(len(problem))])
        return (operator.maps.conj() * ifft2c(filled)).sum(1)

    def _fill(self, problem: Problem, i: int, kspace: Tensor) -> Tensor:
        """K-space of slice number ``i``, (coil, H, W), filled in."""
        mask, rows = _as_lines(problem.lines[i])
        if bool(mask.all()):
            return kspace
        filled, sampled = torch.zeros_like(kspace), kspace[:, rows]
        reach, least = self._reach(mask)
        block = sampled[(slice(None), *calibration_region(mask, sampled.shape[1]))]
        within = _within(reach, block)
        apply = partial(fill, sampled, mask, damping=self.damping, most=self.lines if len(mask) == 1 else _SAMPLES)
        if self.calibration == "maps" or (self.calibration == "auto" and (within[1] < least or not _regular(mask))):
            covariance = covariance_of_maps(cast(SenseOperator, problem.operator).maps[i], reach)
            filled[:, rows] = apply(covariance, reach, sigma=problem.sigma[i])
            return filled
        if min(within) < 0 or within[1] < 1:
            raise InputError(
                f"grappa needs more calibration lines around the centre of k-space, found {min(block.shape[1:])}; "
                "calibration='maps' needs none",
                field="kspace",
            )
        filled[:, rows] = apply(covariance_of_block(block, within), within)
        return filled

    def _reach(self, mask: Tensor) -> tuple[Reach, int]:
        """Reach of the window, and the columns it must reach at the least for a sample on either side."""
        if len(mask) > 1:
            side = min(math.ceil(math.sqrt(_SAMPLES / mask.float().mean())), _LARGEST)
            return (max(1, side // 2), max(1, side // 2)), 1
        distances = _distances(mask)
        spacing = math.ceil(distances.float().mean()) if len(distances) else 2
        return (self.rows // 2, min(self.lines // 2 * spacing - 1, _FARTHEST)), spacing - 1


def _within(reach: Reach, block: Tensor) -> Reach:
    """The part of a reach with which a window slides over the block."""
    rows, columns = (min(far, (size - _SLIDES) // 2) for far, size in zip(reach, block.shape[1:], strict=True))
    return rows, columns


def _distances(mask: Tensor) -> Tensor:
    """Distances of neighbouring sampled lines with unsampled ones between them."""
    distances = mask[0].nonzero().flatten().diff()
    return distances[distances > 1]


def _regular(mask: Tensor) -> bool:
    """Whether it is a mask of lines at one distance, with calibration lines or without."""
    if len(mask) > 1:
        return False
    distances = _distances(mask)
    return len(distances) > 0 and int((distances != distances.mode().values).sum()) <= _ENDS


def _as_lines(mask: Tensor) -> tuple[Tensor, slice]:
    """A mask, (1 or H, W), as one row if all its rows are equal, and the rows that it is for.

    An asymmetric echo leaves out the first or the last rows: then it is for the others.
    """
    sampled = mask.any(1).nonzero().flatten()
    if len(mask) == 1 or len(sampled) == 0:
        return mask, slice(None)
    rows = slice(int(sampled[0]), int(sampled[-1]) + 1)
    equal = bool((mask[rows] == mask[rows][:1]).all())
    return (mask[rows][:1], rows) if equal else (mask, slice(None))
