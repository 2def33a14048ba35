"""What kind of mask a scan has, in words: lines, a CAIPI lattice, Poisson discs, rows times columns."""

from __future__ import annotations

import torch
import torch.nn.functional as nnf
from torch import Tensor

from upmri.physics.masks import calibration_region
from upmri.physics.plane_masks import ellipse

# Longest steps of a lattice that are tried, and the share of its points that may be missing or surplus.
_LONGEST, _STRAY = 8, 0.02
# Points that keep a distance have this share, or less, of the neighbours that points drawn at random have.
_APART = 0.5
# Share of the corners of k-space that may be sampled where a shutter leaves them out.
_CORNERS = 0.02


def describe_mask(mask: Tensor, readout: int) -> str:
    """Describe the mask of a slice, bool (1 or H, W), in a few words; H = ``readout``."""
    mask = mask.bool().cpu()
    if bool(mask.all()):
        return "all of k-space"
    if bool((mask == mask[:1]).all()):
        return _describe_lines(mask[0])
    across, along = mask.any(0), mask.any(1)
    if bool((mask == along[:, None] & across).all()) and (kept := _range(along)):
        lines = "all lines" if bool(across.all()) else _describe_lines(across)
        return f"{lines}, samples {kept} along the first axis"
    if bool((mask == mask[:, :1]).all()):
        return f"{_describe_lines(mask[:, 0])} along the first phase encoding"
    outer = mask.clone()
    rows, columns = calibration_region(mask, readout)
    outer[rows, columns] = False
    inside = ellipse((mask.shape[0], mask.shape[1]))
    shutter = float(mask[~inside].float().mean()) < _CORNERS * float(mask[inside].float().mean())
    region = torch.ones_like(mask)
    region[rows, columns] = False
    region &= inside | (not shutter)
    found = _lattice(outer, region) or _product(mask, inside if shutter else None) or _scattered(outer, region)
    return f"{found}, elliptic shutter" if shutter else found


def _describe_lines(lines: Tensor) -> str:
    if found := _range(lines):
        return f"lines {found}"
    at = lines.nonzero().flatten()
    steps = at.diff()
    step = int(steps.max()) if len(steps) else 1
    between = lines[int(at[0]) : int(at[-1]) + 1]  # outer lines may be left out
    regular = step > 1 and all(bool(side[::step].all()) for side in (between, between.flip(0)))
    return f"every {_ordinal(step)} line" if regular else "random lines"


def _range(lines: Tensor) -> str | None:
    """Return a range of neighbours as "2 to 56 of 64", None where there are gaps."""
    at = lines.nonzero().flatten()
    neighbours = len(at) > 1 and int(at[-1] - at[0]) == len(at) - 1
    return f"{int(at[0])} to {int(at[-1])} of {len(lines)}" if neighbours else None


def _ordinal(number: int) -> str:
    """Return a number as 2nd, 3rd or 4th."""
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _lattice(outer: Tensor, region: Tensor) -> str | None:
    """Describe a shifted lattice R₁×R₂, where nearly all points are on one and it has nearly no others."""
    points = outer.nonzero()
    if len(points) < 16:
        return None
    first = points[len(points) // 2]
    y, x = (torch.arange(length) - int(at) for length, at in zip(outer.shape, first, strict=True))
    for product in range(2, _LONGEST**2 + 1):
        for rows in range(1, min(product, _LONGEST) + 1):
            columns = product // rows
            if rows * columns != product or columns > _LONGEST:
                continue
            for shift in range(columns):
                lattice = (y % rows == 0)[:, None] & ((x - (y // rows)[:, None] * shift) % columns == 0) & region
                if int((lattice ^ outer).sum()) <= _STRAY * len(points):
                    named = f"CAIPI lattice, shift {shift}" if shift else "regular lattice"
                    return f"{rows}×{columns} {named}"
    return None


def _product(mask: Tensor, inside: Tensor | None) -> str | None:
    product = mask.any(1)[:, None] & mask.any(0)
    if inside is not None:
        product = product & inside
    stray = int((product ^ mask).sum())
    dense = float(mask.any(1).float().mean() * mask.any(0).float().mean()) > 0.98
    return None if dense or stray > _STRAY * int(mask.sum()) else "random rows times random columns"


def _scattered(outer: Tensor, region: Tensor) -> str:
    """Distinguish discs, which keep a distance, from points at random: by their neighbours to the right and below."""
    points, free = outer.float()[None, None], region.float()[None, None]
    window = torch.ones(1, 1, 9, 9)
    density = nnf.conv2d(points, window, padding=4) / nnf.conv2d(free, window, padding=4).clamp_min(1)
    expected = found = 0.0
    for axis in (-2, -1):
        pairs = points.narrow(axis, 1, points.shape[axis] - 1) * points.narrow(axis, 0, points.shape[axis] - 1)
        both = free.narrow(axis, 1, points.shape[axis] - 1) * free.narrow(axis, 0, points.shape[axis] - 1)
        chance = density.narrow(axis, 1, points.shape[axis] - 1) * density.narrow(axis, 0, points.shape[axis] - 1)
        found, expected = found + float(pairs.sum()), expected + float((chance * both).sum())
    return "Poisson discs" if found < _APART * expected else "random points"
