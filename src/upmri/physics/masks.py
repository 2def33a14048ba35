"""Sampling masks of k-space: (1, W) masks of whole phase-encoding lines, (H, W) masks of single points.

DC lies at (H//2, W//2). A centred block of n indices out of W starts at (W − n + 1)//2, so that it holds DC, and every
smaller centred block, whatever the parities (the convention of fastMRI).
"""

from __future__ import annotations

import hashlib
import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.checks import checked_seed, is_number, is_whole
from upmri.core.errors import InputError

Counting = Literal["included", "excluded"]


def default_acs(width: int, acceleration: float) -> int:
    """Return the number of calibration lines when none is asked for, round(0.32 W/R)."""
    check_acceleration(acceleration)
    return round(0.32 * width / acceleration)


def seed_for(file: str, slice: int, acceleration: float) -> int:  # noqa: A002
    """Return the seed of the mask of one image, the same on every machine: SHA-256 of (file, slice, R), 63 bits of it.

    A mask redrawn every epoch would show an unsupervised method the full k-space over time; this one stays.
    """
    text = f"{file}\n{int(slice)}\n{float(acceleration):g}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def random_lines(
    width: int,
    acceleration: float,
    acs: int | None = None,
    *,
    counting: Counting = "included",
    seed: int | torch.Generator = 0,
) -> Tensor:
    """Draw phase-encoding lines without replacement around a fully sampled centre; the count is exact.

    Parameters
    ----------
    width
        Number of phase-encoding lines W.
    acceleration
        R ≥ 1.
    acs
        Number of central calibration lines; round(0.32 W/R) when not given.
    counting
        ``"included"``: round(W/R) lines in all, the central ones among them. ``"excluded"``: the central ones and
        round((W − acs)/R) more, so that the true acceleration is below R (the definition of CMRxRecon).
    seed
        Random seed, or a generator.

    Returns
    -------
    Tensor
        Bool (1, W).
    """
    _check_line_request(width, acceleration, acs)
    acs = default_acs(width, acceleration) if acs is None else acs
    if counting == "included":
        outer = round(width / acceleration) - acs
    elif counting == "excluded":
        outer = round((width - acs) / acceleration)
    else:
        raise InputError(f"expected 'included' or 'excluded', got {counting!r}", field="counting")
    if acs == outer == 0:
        raise InputError(f"expected a lower one: {acceleration:g} leaves none of {width} lines", field="acceleration")
    if outer < 0 or (outer == 0 and acs < width):
        raise InputError(
            f"{acs} central lines leave no line to draw from the outer {width - acs} at acceleration "
            f"{acceleration:g} ({acs + outer} of {width} lines in all); expected fewer, or a lower acceleration",
            field="acs",
        )
    mask = centre_lines(width, acs)
    free = (~mask[0]).nonzero().flatten()
    mask[0, free[torch.randperm(len(free), generator=generator_of(seed))[:outer]]] = True
    return mask


def equispaced(width: int, acceleration: int, acs: int | None = None, offset: int = 0) -> Tensor:
    """Take every R-th phase-encoding line from ``offset`` on, and the ``acs`` central ones besides; bool (1, W).

    As R counts the regular lines only, the true acceleration is below it. ``acs`` is round(0.32 W/R) when not given.
    """
    _check_line_request(width, acceleration, acs)
    if acceleration != int(acceleration):
        raise InputError(f"expected a whole number for equispaced lines, got {acceleration:g}", field="acceleration")
    if not 0 <= offset < min(acceleration, width):
        raise InputError(f"expected 0 ≤ offset < {min(int(acceleration), width)}, got {offset}", field="offset")
    mask = centre_lines(width, default_acs(width, acceleration) if acs is None else acs)
    mask[0, offset :: int(acceleration)] = True
    return mask


def poisson_disc(
    shape: tuple[int, int],
    acceleration: float,
    calibration: tuple[int, int] = (0, 0),
    *,
    within: Tensor | None = None,
    seed: int | torch.Generator = 0,
) -> Tensor:
    """Draw variable-density Poisson discs around a fully sampled centre block; the count, round(HW/R), is exact.

    No two points p, q outside the block are nearer to each other than min(r(p), r(q)), where r = max(1, g (ϱ + ½)) and
    ϱ is the distance from DC, 1 at the edges of k-space. Points are tried in a random order, and each one taken rules
    out its disc; g is the largest for which enough points find a place (bisection, the same order throughout).

    Parameters
    ----------
    shape
        (H, W).
    acceleration
        R ≥ 1, the calibration block included.
    calibration
        Height and width of the block.
    within
        Positions from which points are drawn, bool (H, W), such as those of an elliptic shutter; all when not given.
    seed
        Random seed, or a generator.

    Returns
    -------
    Tensor
        Bool (H, W).
    """
    h, w = shape
    check_acceleration(acceleration)
    block = centre_block(shape, calibration).numpy()
    wanted = round(h * w / acceleration) - int(block.sum())
    if wanted < 0 or (wanted == 0 and not block.all()):
        raise InputError(
            f"a block of {calibration[0]}×{calibration[1]} leaves no other point at acceleration "
            f"{acceleration:g} of {h}×{w}; expected a smaller one or a lower acceleration",
            field="calibration",
        )
    y, x = np.ogrid[:h, :w]
    spread = np.hypot((y - h // 2) / (h / 2), (x - w // 2) / (w / 2)) + 0.5
    free = np.flatnonzero(~block if within is None else ~block & within.numpy())
    if wanted > len(free):
        raise InputError(f"expected {wanted} points, and only {len(free)} may be sampled", field="acceleration")
    order = free[torch.randperm(len(free), generator=generator_of(seed)).numpy()]

    low, high = 0.0, float(max(h, w))
    points = order[:wanted]  # the answer for g = 0: no disc at all
    while high - low > 0.002 * high:
        growth = (low + high) / 2
        tried = _throw(order, np.maximum(1.0, growth * spread), wanted)
        if len(tried) == wanted:
            low, points = growth, tried
        else:
            high = growth
    block.flat[points] = True
    return torch.from_numpy(block)


def centre_block(shape: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Return the centred block of this height and width, bool (H, W)."""
    h, w = shape
    if h < 1 or w < 1:
        raise InputError(f"expected two lengths ≥ 1, got {shape}", field="shape")
    if not all(is_whole(side) and 0 <= side <= length for side, length in zip(size, shape, strict=True)):
        raise InputError(f"expected a block within {h}×{w}, got {size}", field="calibration")
    block = torch.zeros(h, w, dtype=torch.bool)
    block[_centred(h, size[0]), _centred(w, size[1])] = True
    return block


def calibration_region(mask: Tensor, readout: int) -> tuple[slice, slice]:
    """Find the largest fully sampled block of k-space around DC.

    Parameters
    ----------
    mask
        Bool (1, W) or (H, W).
    readout
        H, which a mask of whole lines does not know.

    Returns
    -------
    tuple of slice
        (rows, columns). For whole lines, (1, W) or the same in every row: all rows, and the run of lines that holds DC,
        symmetric or not. Otherwise the centred rectangle of the largest area. Both are empty when DC was not sampled.
    """
    if mask.ndim != 2 or mask.shape[0] not in (1, readout):
        raise InputError(f"expected (1, W) or ({readout}, W), got {tuple(mask.shape)}", field="mask")
    mask = mask.bool().cpu()
    h, w = readout, mask.shape[1]
    if not bool(mask[mask.shape[0] // 2, w // 2]):
        return slice(h // 2, h // 2), slice(w // 2, w // 2)
    if bool((mask == mask[:1]).all()):
        gaps = [-1, *(~mask[0]).nonzero().flatten().tolist(), w]
        return slice(0, h), slice(max(g for g in gaps if g < w // 2) + 1, min(g for g in gaps if g > w // 2))
    # With rows and columns put in the order in which centred blocks take them in, blocks are leading corners.
    corner = mask[_centre_out(h)][:, _centre_out(w)].to(torch.uint8).cummin(0).values.cummin(1).values
    area = corner * torch.arange(1, h + 1)[:, None] * torch.arange(1, w + 1)
    rows, columns = divmod(int(area.argmax()), w)
    return _centred(h, rows + 1), _centred(w, columns + 1)


def calibration_lines(mask: Tensor, readout: int) -> int:
    """Return the shorter side of the block that :func:`calibration_region` finds: the number of calibration lines."""
    rows, columns = calibration_region(mask, readout)
    return min(rows.stop - rows.start, columns.stop - columns.start)


def _throw(order: NDArray[np.intp], radius: NDArray[np.float64], wanted: int) -> list[int]:
    """Take points in the given order unless the disc of an earlier one covers them, until there are enough."""
    w = radius.shape[1]
    level = np.ceil(radius**2).astype(int)  # d < r on the grid means d² < ⌈r²⌉
    reach = math.isqrt(int(level.max()))
    blocked = np.zeros((radius.shape[0] + 2 * reach, w + 2 * reach), dtype=bool)
    discs: dict[int, tuple[int, NDArray[np.bool_]]] = {}
    levels = level.ravel().tolist()
    taken: list[int] = []
    for point in order.tolist():
        y, x = divmod(point, w)
        if blocked[y + reach, x + reach]:
            continue
        taken.append(point)
        if len(taken) == wanted:
            break
        n = levels[point]
        if n == 1:  # a disc that covers its own centre only
            continue
        if n not in discs:
            k = math.isqrt(n - 1)
            dy, dx = np.ogrid[-k : k + 1, -k : k + 1]
            discs[n] = k, dy**2 + dx**2 < n
        k, disc = discs[n]
        blocked[y + reach - k : y + reach + k + 1, x + reach - k : x + reach + k + 1] |= disc
    return taken


def _centred(length: int, size: int) -> slice:
    start = (length - size + 1) // 2
    return slice(start, start + size)


def _centre_out(length: int) -> list[int]:
    """Return all indices, so ordered that the first n of them are the centred block of size n."""
    return sorted(range(length), key=lambda i: 2 * abs(i - (length - 1) / 2) - (i - length / 2 >= 0) / 2)


def centre_lines(width: int, acs: int) -> Tensor:
    """Return the ``acs`` central lines out of ``width``, bool (1, W)."""
    mask = torch.zeros(1, width, dtype=torch.bool)
    mask[0, _centred(width, acs)] = True
    return mask


def check_acceleration(acceleration: float) -> None:
    """Refuse what is no finite number ≥ 1."""
    if not (is_number(acceleration) and math.isfinite(acceleration) and acceleration >= 1):
        raise InputError(f"expected a finite number ≥ 1, got {acceleration!r}", field="acceleration")


def _check_line_request(width: int, acceleration: float, acs: int | None) -> None:
    check_acceleration(acceleration)
    if width < 1:
        raise InputError(f"expected at least one line, got {width}", field="width")
    if acs is not None and not (is_whole(acs) and 0 <= acs <= width):
        raise InputError(f"expected a whole number of central lines, 0 to {width}, got {acs!r}", field="acs")


def generator_of(seed: int | torch.Generator) -> torch.Generator:
    """Return a generator itself, or a new one with a seed, which may be an integer of NumPy."""
    return seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(checked_seed(seed))
