"""Readouts laid on the grid: turned where they ran backwards, regridded, and without the phase that makes ghosts.

Echo-planar readouts alternate in their direction. Reference readouts without phase encoding (phase correction data), of
the same frame if there are any, else of the same slice, give the phase between the two directions
(:mod:`upmri.physics.epi`). Samples that were taken while the gradient rose or fell are brought to the regular grid
first. The rules are the same for files and for streams. Readouts for phase correction of other sequences are not used.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.errors import InputError
from upmri.formats.grid import Grid, Ints, Table
from upmri.formats.source import Source

if TYPE_CHECKING:
    from upmri.physics.epi import GhostPhase, Ramp

_BATCH = 2**25  # bytes of readouts that are processed together
_MOST = 256  # reference readouts of a frame that are used


@dataclass(frozen=True)
class Navigators:
    """Reference readouts in the order of their acquisition: their numbers in the file, counters and directions."""

    number: Ints
    counters: Ints  # (readout, AXES), as in the table of the image
    reverse: NDArray[np.bool_]

    def of(self, key: Ints) -> NDArray[np.intp]:
        """Return those of the frame with these counters; if there are none, those of the same slice."""
        same = (self.counters == key).all(1)
        return np.flatnonzero(same if same.any() else self.counters[:, -1] == key[-1])[:_MOST]


class LineSource(Source):
    """A file with readouts, of which a format reads samples by their number."""

    _table: Table
    _grid: Grid
    _navigators: Navigators | None = None
    _ramp: Ramp | None = None

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._meta: dict[str, Any] = {}
        self._places: Ints = np.zeros((0, 3), np.int64)
        self._cell: Ints = np.zeros(0, np.int64)
        self._ghosts: dict[tuple[int, ...], GhostPhase | None] = {}

    @abstractmethod
    def _fetch(self, rows: Ints) -> NDArray[np.complex64]:
        """Read these readouts of the table, all of the same length: (readout, coil, sample)."""

    @abstractmethod
    def _fetch_navigators(self, number: Ints) -> NDArray[np.complex64]:
        """Read these reference readouts by their numbers in the file, all of the same length."""

    def _batches(self, rows: Ints) -> Iterator[tuple[Tensor, Tensor]]:
        """Read readouts and lay them on the grid: (readout, coil, sample with oversampling), and their cells."""
        shape = np.column_stack([self._table.samples, self._places, self._table.reverse])[rows]
        kinds, kind = np.unique(shape, axis=0, return_inverse=True)
        size = max(1, _BATCH // (8 * self.coils * self._grid.samples))
        for number, (_, *place, reverse) in enumerate(kinds.tolist()):
            alike = rows[kind.reshape(-1) == number]
            for some in np.split(alike, range(size, len(alike), size)):
                lines = self._laid(torch.from_numpy(self._fetch(some)), place, bool(reverse))
                yield self._without_ghosts(lines, some, bool(reverse)), torch.from_numpy(self._cell[some])

    def _laid(self, lines: Tensor, place: list[int], reverse: bool) -> Tensor:
        """Lay readouts on the grid, at (begin, first, last)."""
        begin, first, last = place
        lines = lines.flip(-1) if reverse else lines
        if self._regridding is not None:
            lines = lines @ self._regridding.mT
        grid = torch.zeros(*lines.shape[:-1], self._grid.samples, dtype=torch.complex64)
        grid[..., first:last] = lines[..., first - begin : last - begin]
        return grid

    # --- echo-planar --------------------------------------------------------------------------------------------------

    @cached_property
    def _regridding(self) -> Tensor | None:
        """Matrix from ramp samples to the grid."""
        return None if self._ramp is None else self._ramp.regridding(self._grid.samples, self._grid.readout)

    @property
    def _noise_gain(self) -> float:
        """Standard deviation of noise in regridded samples per that in samples."""
        matrix = self._regridding
        return 1.0 if matrix is None else float(matrix.abs().square().sum(1).mean().sqrt())

    @property
    def _about_echoes(self) -> dict[str, str]:
        """The note about echo-planar readouts; empty if all run forwards."""
        _, frame = np.unique(self._table.counters, axis=0, return_inverse=True)
        share = np.bincount(frame.reshape(-1), self._table.reverse) / np.bincount(frame.reshape(-1))
        if not ((share > 0) & (share < 1)).any():  # one direction for each echo of several is no echo-planar train
            return {}
        count = 0 if self._navigators is None else len(self._navigators.number)
        words = f"ghosts corrected with {count} reference readouts" if count else "ghosts not corrected"
        return {"echo-planar": words + (", ramp samples regridded" if self._ramp is not None else "")}

    def _without_ghosts(self, lines: Tensor, rows: Ints, reverse: bool) -> Tensor:
        if self._navigators is None:
            return lines
        keys, which = np.unique(self._table.counters[rows], axis=0, return_inverse=True)
        for number, key in enumerate(keys):
            if (phase := self._ghost(key)) is not None:
                same = torch.from_numpy(which.reshape(-1) == number)
                lines[same] = phase.correct(lines[same], reverse)
        return lines

    def _ghost(self, key: Ints) -> GhostPhase | None:
        """Phase between the directions in a frame; None where its reference readouts are not of both directions."""
        from upmri.physics.epi import ghost_phase

        assert self._navigators is not None  # noqa: S101
        name = tuple(key.tolist())
        if name not in self._ghosts:
            some = self._navigators.of(key)
            found = None
            if len(some):
                reverse = self._navigators.reverse[some]
                lines = torch.from_numpy(self._fetch_navigators(self._navigators.number[some]))
                length = self._grid.samples if self._ramp is not None else lines.shape[-1]
                begin = self._grid.samples // 2 - length // 2
                place = [begin, max(0, begin), min(self._grid.samples, begin + length)]
                laid = torch.stack(
                    [self._laid(one, place, back) for one, back in zip(lines, reverse.tolist(), strict=True)]
                )
                with suppress(InputError):
                    found = ghost_phase(laid, torch.from_numpy(reverse))
            self._ghosts[name] = found
        return self._ghosts[name]
