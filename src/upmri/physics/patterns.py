"""Sampling patterns: which positions of a window around an unsampled point, or line, of k-space were sampled.

A window reaches a rows and b columns from its centre; its K = (2a+1)(2b+1) positions are numbered row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from upmri.core.errors import InputError

Reach = tuple[int, int]
"""Rows and columns from the centre of a window to its edge, (a, b)."""

# Positions of a pattern that fit into the bits of a number.
_MOST = 62


@dataclass(frozen=True)
class Patterns:
    """Patterns with the same number M of sampled positions, and the unsampled units that have them; on the CPU.

    A unit is an unsampled line with its H points, or an unsampled point.

    Attributes
    ----------
    positions
        Sampled positions of each pattern, (pattern, M).
    number
        Number of the pattern of each unit, (unit,).
    points
        Points of each unit, numbered row by row in k-space, (unit, H or 1).
    width
        Width of the window, 2b+1.
    """

    positions: Tensor
    number: Tensor
    points: Tensor
    width: int

    def split(self, most: int) -> Iterator[Patterns]:
        """Parts of at most this number of patterns, with their units."""
        for first in range(0, len(self.positions), most):
            mine = (self.number >= first) & (self.number < first + most)
            part = self.positions[first : first + most]
            yield Patterns(part, self.number[mine] - first, self.points[mine], self.width)

    def neighbours(self, width: int) -> Tensor:
        """Sampled points around each point, (unit, H or 1, M), for k-space of this width.

        They are numbered row by row in k-space that is padded with the reach of the window.
        """
        padded = width + self.width - 1
        corner = self.points // width * padded + self.points % width
        offsets = self.positions // self.width * padded + self.positions % self.width
        return corner[:, :, None] + offsets[self.number, None]


def find_patterns(mask: Tensor, rows: int, reach: Reach, most: int) -> Iterator[Patterns]:
    """Group the unsampled lines, or points, of k-space by the samples around them, group by group of equal M.

    Parameters
    ----------
    mask
        Sampled positions, bool (1 or H, W). With one row, units are whole lines, and a sampled line counts in every row
        of the window.
    rows
        H.
    reach
        Reach of the window. Positions outside k-space are not sampled, except rows of a line.
    most
        Most samples of a pattern (lines, of a mask of lines): the nearest are taken.

    Yields
    ------
    Patterns
        Units without any sample in their window are in none.
    """
    mask = mask.cpu().bool()
    lines = mask.shape[0] == 1
    height, width = 1 if lines else 2 * reach[0] + 1, 2 * reach[1] + 1
    if height * width > _MOST:
        raise InputError(f"expected a window of {_MOST} positions or fewer, got {height}×{width}", field="reach")
    around = pad(mask, (reach[1], reach[1], height // 2, height // 2)).unfold(0, height, 1).unfold(1, width, 1)
    around = _nearest(around.reshape(*mask.shape, -1)[~mask], (height, width), most)  # (unit, position)
    points = (~mask).flatten().nonzero()
    if lines:
        points = points + torch.arange(rows) * mask.shape[1]
    bits = torch.arange(height * width)
    codes, number = torch.unique((around.long() << bits).sum(1), return_inverse=True)
    sampled = (codes[:, None] >> bits) & 1
    counts = sampled.sum(1)
    for count in counts[counts > 0].unique().tolist():
        chosen = counts == count
        positions = sampled[chosen].nonzero()[:, 1].reshape(-1, 1, count)
        if lines:
            positions = positions + torch.arange(2 * reach[0] + 1)[:, None] * width
        mine = chosen[number]
        yield Patterns(positions.flatten(1), (chosen.cumsum(0) - 1)[number[mine]], points[mine], width)


def _nearest(sampled: Tensor, shape: tuple[int, int], most: int) -> Tensor:
    """The samples of each row, (unit, position), that are nearest to the centre of the window, at most this number."""
    down, along = (torch.arange(n) - n // 2 for n in shape)
    order = (down[:, None] ** 2 + along**2).flatten().argsort(stable=True)
    ordered = sampled[:, order]
    return torch.zeros_like(sampled).index_copy_(1, order, ordered & (ordered.cumsum(1) <= most))
