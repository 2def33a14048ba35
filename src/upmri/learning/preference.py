"""Comparison of reconstructions by their errors on held-out lines of a small part of a scan.

Two reconstructions are compared at about a third of the cost of one whole image of 320×320 pixels, or two thirds where
the first is in doubt:

- **Few pixels.** Where whole lines are sampled, the readout is complete. So rows of the image are a scan of their own:
  of full resolution, with all lines, the same noise level and the same scale. Of scans with 2-D masks the centre of
  k-space is taken: an image of lower resolution.
- **Lines that tell reconstructions apart.** The error on outer lines is mostly noise. Lines near the calibration lines
  are held out: every second one, in order of the distance from the centre, until they are a quarter of all lines. In
  a second turn it is those between them. Two windows of rows begin with one half each.
- **A second turn only in doubt**, that is, if another reconstruction is ahead of the first one, but by less than three
  standard errors.
- **Pairs.** All reconstructions get the same input lines. Their errors are compared unit by unit, on a logarithmic
  scale. A unit is one line in one block of image rows, or a column of k-space of a 2-D mask. Its weight is the root of
  its error: with equal weights noise rules, with the error itself a few strong lines do. The standard error over units
  shows how sure the result is.

The weights of units were the best of many on 60 simulated scans of validation people. With the weights that ship, the
1.5 standard errors gave no brain of 48 such scans other weights, and 37 of 48 hearts ``cardiac``; a lead of 0.2 dB,
asked for besides, gave 17. ``benchmarks/results/choice.md`` has new draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from upmri.core.evenly import evenly
from upmri.learning.held_out import HeldOut, Reconstruct
from upmri.learning.lines import folds
from upmri.learning.regions import draw_per_slice, outside_calibration
from upmri.physics.fourier import crop, fft1c, ifft1c
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

# Most slices that are compared, spread evenly, and pixels of each.
_SLICES, _PIXELS = 3, 16384
# Windows of image rows of a slice with line masks, least rows of a window, and blocks of rows in each.
_WINDOWS, _LEAST, _BLOCKS = 2, 24, 4
# Most turns; one of how many lines is held out in a turn, and one of how many points of a 2-D mask.
_TURNS, _LINES, _POINTS = 2, 4, 8
# Lead in standard errors from which another reconstruction than the first is preferred.
_SURE = 1.5
# Lead in standard errors from which one turn is enough.
_CLEAR = 3.0


def errors_by_unit(reconstructions: Sequence[Reconstruct], problem: Problem) -> Tensor:
    """‖A x − y‖² of each reconstruction on held-out lines of a small part, (reconstruction, unit).

    The second turn is left out if no other reconstruction has a lead over the first, or if the largest lead is beyond
    three standard errors. There are no units where nothing can be compared: slices of zeros, or scans without
    lines outside the centre.
    """
    part = small_part(problem)
    found: list[Tensor] = []
    for held_out in _turns(part):
        test = HeldOut.split(part, held_out)
        errors = torch.stack([unit_errors(reconstruct(test.inputs), test.lines) for reconstruct in reconstructions])
        found.append(errors[:, (errors > 0).all(0)])
        ahead, deviation = max(lead(other, found[0][0]) for other in found[0])
        if not 0 < ahead < _CLEAR * deviation:
            break
    return torch.cat(found, 1)


def lead(errors: Tensor, others: Tensor) -> tuple[float, float]:
    """Mean of r = 10 log₁₀ of the ``others`` over the ``errors``, (unit,) each, in dB, and its standard error.

    The weight w of a unit is the root of the mean of both errors; the standard error is (Σ w²(r − r̄)²)^½ / Σ w.
    """
    if len(errors) < 2:
        return 0.0, math.inf
    errors, others = errors.double(), others.double()
    ratios, weights = 10 * (others / errors).log10(), (errors + others).sqrt()
    mean = (weights * ratios).sum() / weights.sum()
    deviation = (weights * (ratios - mean)).norm() / weights.sum()
    return mean.item(), deviation.item()


def choose(errors: Tensor) -> int:
    """Return which row of the errors, (reconstruction, unit), is to be preferred.

    It is the first, unless others have a lead over it beyond 1.5 standard errors; of these it is the one with the
    largest lead.
    """
    leads = [lead(other, errors[0]) for other in errors]
    sure = [mean if mean > _SURE * deviation else 0.0 for mean, deviation in leads]
    return max(range(len(sure)), key=sure.__getitem__)


def small_part(problem: Problem) -> Problem:
    """Return a few slices of a problem with few pixels: windows of image rows as slices, or lower resolution.

    The middle of the first window is where a quarter of the image's energy is above it, that of the second where a
    quarter is below. An operator other than :class:`~upmri.physics.sense.SenseOperator` is not cut: the problem is
    returned as it is.
    """
    operator = problem.operator
    if not isinstance(operator, SenseOperator):
        return problem
    slices = torch.tensor(evenly(range(len(problem)), _SLICES), device=problem.device)
    some = SenseOperator(operator.maps[slices], operator.mask[slices])
    kspace, sigma = problem.kspace[slices], problem.sigma[slices]
    return _rows(some, kspace, sigma) if operator.mask.shape[1] == 1 else _low_resolution(some, kspace, sigma)


def _rows(operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Problem:
    """Cut windows of image rows out of a scan of whole lines."""
    _, height, width = operator.shape
    rows = min(max(_LEAST, _PIXELS // (_WINDOWS * width)), max(1, height // _WINDOWS))
    above = operator.H(kspace).abs().square().sum((0, 2)).cumsum(0)
    middles = [int((above < (i + 0.5) / _WINDOWS * above[-1]).sum()) for i in range(_WINDOWS)]
    starts = [min(max(0, middle - rows // 2), height - rows) for middle in middles]

    def windows(tensor: Tensor) -> Tensor:
        """(slice, coil, H, W) → (window · slice, coil, rows, W)."""
        return torch.cat([tensor[..., start : start + rows, :] for start in starts])

    part = SenseOperator(windows(operator.maps), operator.mask.repeat(_WINDOWS, 1, 1))
    kspace = fft1c(windows(ifft1c(kspace, -2)), -2)
    return Problem(part, kspace, sigma=sigma.repeat(_WINDOWS), scaled=True)


def _low_resolution(operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Problem:
    """Cut the centre out of k-space. The image keeps its scale, and has less noise.

    Orthonormal transforms of fewer points would multiply the image by √(H W / h w), so that data and noise are divided
    by it. Maps are smooth: they are taken at the nearest pixels.
    """
    maps, mask, factor = operator.maps, operator.mask, 1.0
    for dim, length in zip((-2, -1), operator.shape[1:], strict=True):
        short = min(math.isqrt(_PIXELS), length)
        pixels = length // 2 + ((torch.arange(short) - short // 2) * length / short).round().long()
        maps = maps.index_select(dim, pixels.clamp(0, length - 1).to(maps.device))
        mask, kspace = crop(mask, short, dim), crop(kspace, short, dim)
        factor *= math.sqrt(length / short)
    return Problem(SenseOperator(maps, mask), kspace / factor, sigma=sigma / factor, scaled=True)


def _turns(part: Problem) -> Tensor:
    """Masks of the held-out lines or points of each turn, (turn, slice, 1 or H, W)."""
    if part.lines.shape[1] > 1:
        return torch.stack(draw_per_slice(partial(folds, count=_POINTS), part), 1)[:_TURNS]
    held_out = torch.zeros(_TURNS, *part.lines.shape, dtype=torch.bool)
    for index, mask in enumerate(part.lines):
        columns = (mask & outside_calibration(mask, part.operator.shape[-2]))[0].nonzero().flatten()
        ordered = columns[(columns - mask.shape[1] // 2).abs().argsort(stable=True)]
        window = index * _WINDOWS // len(part)
        for turn in range(_TURNS):
            first = (window + turn) % _TURNS
            held_out[turn, index, 0, ordered[first::_TURNS][: math.ceil(len(ordered) / _LINES)]] = True
    return held_out


def unit_errors(image: Tensor, lines: Problem) -> Tensor:
    """‖A x − y‖² of each unit of the held-out lines, (unit,): a line in a block of rows, or a column of points."""
    mask = lines.lines.to(lines.device)
    residual = lines.operator(image) - lines.samples
    lines_of_rows = isinstance(lines.operator, SenseOperator) and mask.shape[1] == 1
    blocks = ifft1c(residual, -2).tensor_split(_BLOCKS, -2) if lines_of_rows else (residual,)
    energy = torch.stack([block.abs().square().sum((1, 2)) for block in blocks], 1)
    return energy[mask.any(1, keepdim=True).expand_as(energy)]
