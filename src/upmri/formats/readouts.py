"""A scan that is stored as a list of readouts, as scanners write it: counters give each its place on the grid.

Lines
    A readout goes to the line (and, in 3-D, partition) that its counters name, the centre of k-space to the centre of
    the grid. What partial Fourier left out stays unsampled. A line that was read out several times is averaged.
Frames
    Repetitions, cardiac phases, sets, contrasts and slices lie along the slice axis, slices fastest and in the order
    of their positions. ``meta["axes"]`` gives their lengths, slowest first, as {"repetition": 12, "slice": 10}; where
    some combinations are missing, ``meta["frames"]`` lists those that are there, one by one. Both are of the whole
    file, whichever of its slices are read.
Readout
    Oversampling is removed by cropping the image to its field of view. An asymmetric echo fills its part of the line,
    the rest is 0, and the mask is still of whole lines: what is reconstructed is P x, with P the projection on the
    samples that were taken, because P commutes with coil maps as smooth as real ones. That is what scanners show, and
    it keeps the problem separable.
Echo-planar
    Readouts that ran backwards are turned, ramp samples regridded, and ghosts removed with reference readouts, see
    :mod:`upmri.formats.echo_planar`.
3-D
    With two phase encodings the readout is transformed back, and each of its positions is a slice of its own, with
    (line, partition) as matrix; ``readout`` is then the last of the axes.
Calibration
    Lines that are for calibration only fill what imaging left unsampled, where they belong to the same acquisition. If
    they were acquired separately, they give the coil maps and stay out of k-space.
Geometry
    Where slices are a stack, ``meta["geometry"]`` says where those read lie, if they are of one frame, and the spacing
    of slices is their distance, gaps included. The centre of the grid is the centre of the slice that headers give.
Noise
    Noise readouts give the covariance Ψ, and coils are whitened with it: k-space is then in multiples of the noise's
    standard deviation, and σ₀ = 1 (less where lines were averaged). Where the bandwidth of noise readouts relative to
    imaging is not known, coils are whitened all the same, and σ₀ is None.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core import geometry
from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import stack
from upmri.formats.echo_planar import LineSource
from upmri.formats.grid import AXES, LONGEST, Grid, Ints, Table, ranked
from upmri.formats.readout_flags import calibration_is_separate

_NOISE = 2**26  # bytes of noise readouts that are enough
_AHEAD = 4  # 3-D: positions computed ahead take at most 1/4 of the memory allowed


class ReadoutSource(LineSource):
    """A file with readouts. A format calls :meth:`_arrange` when it is opened, and reads samples by their number."""

    _declared_separate = False  # the file says that calibration lines were acquired separately
    _noise_scale: float | None = None  # variance of noise in imaging per variance in noise readouts, if known

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        self._noise_note = ""
        self._last_maps: tuple[int, Tensor | None] | None = None
        self._ready: tuple[int, range, Tensor, Tensor] | None = None

    @abstractmethod
    def _fetch_noise(self, count: int) -> NDArray[np.complex64] | None:
        """Read noise readouts, at most ``count`` bytes of them, as (coil, sample); None when there are none."""

    def _arrange(
        self, grid: Grid, table: Table, coils: int, positions: NDArray[Any], directions: NDArray[Any] | None
    ) -> None:
        """Sort the readouts into frames, with slices in the order of their positions (readout, 3) where these differ.

        ``directions`` are as in :func:`upmri.formats.stack.locate`, None if not known.
        """
        if not 1 <= coils < LONGEST:
            raise InputError(f"expected 1 to {LONGEST - 1} of them, got {coils}", field="coils")
        if not len(table.line):
            raise InputError("expected readouts of an image, there are none", field="data")
        self._grid, self._table, self.coils = grid, table, coils
        self._places = table.places(grid)
        length = self._places[:, 2] - self._places[:, 1]
        extra = table.calibration
        self._separate = bool(extra.any()) and calibration_is_separate(
            self._declared_separate, length[extra].min(), length[~extra].max(initial=0)
        )
        if self._separate:
            used = "not used" if grid.partitions > 1 else "for coil maps"
            self._meta["calibration"] = f"acquired separately: {used}"
        self._cell = table.line * grid.partitions + table.partition
        counters = table.counters.copy()
        counters[:, -1] = ranked(counters[:, -1], positions)
        self._slice = counters[:, -1]
        lines = np.flatnonzero(~extra) if self._separate else np.arange(len(counters))
        if not len(lines):
            raise InputError("expected readouts of an image, there are only those for calibration", field="data")
        self._frames, frame = np.unique(counters[lines], axis=0, return_inverse=True)
        self._number = np.unique(self._frames[:, -1], return_inverse=True)[1]  # of each frame's slice, as they lie
        self._located = None
        if directions is not None:
            number = self._number[frame.reshape(-1)]
            self._located = stack.locate(grid, number, positions[lines], directions[lines])
        order = np.argsort(frame.reshape(-1), kind="stable")
        ends = np.cumsum(np.bincount(frame.reshape(-1)))
        self._rows_of = np.split(lines[order], ends[:-1])
        taken = self._taken(lines).float().mean().item()
        self._meta |= {"partial echo": round(taken, 4)} if taken < 1 else {}
        self._meta |= self._about_echoes
        self._volume = grid.partitions > 1
        self.matrix = (grid.lines, grid.partitions) if self._volume else (grid.readout, grid.lines)
        self.slices = len(self._frames) * (grid.readout if self._volume else 1)
        self.slice_bytes = 8 * (coils + 1) * self.matrix[0] * self.matrix[1]  # k-space, and the counts of readouts

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, keep: slice) -> Scan:
        wanted = range(keep.start, keep.stop, keep.step)
        kspace = torch.zeros(len(wanted), self.coils, *self.matrix, dtype=torch.complex64)
        counts = torch.zeros(len(wanted), self._cells)
        maps: list[Tensor] = []
        for out, count, index in zip(kspace, counts, wanted, strict=True):
            frame, position = self._place(index)
            if position is None:
                part, taken = self._lines(self._rows(frame))
                if self._separate and (own := self._maps(frame)) is not None:
                    maps.append(own)
            else:
                part, taken = self._position(frame, position, wanted)
            out[:], count[:] = self._whitened(part), taken
        sampled = counts > 0
        shape = self.matrix if self._volume else (1, self.matrix[1])
        # A line that was read out but holds only zeros does not count as sampled.
        filled = (kspace != 0).any(1) if self._volume else (kspace != 0).any(1).any(1, keepdim=True)
        noise = self._covariance is not None and self._noise_scale is not None
        spread = (1 / counts[sampled]).mean().sqrt().item() if sampled.any() else 1.0
        notes = self._notes(counts) | self._geometry(wanted.start)
        mapped = len(maps) == len(wanted)
        notes |= {"maps_from": "reference scan"} if mapped else {}
        return Scan(
            kspace=kspace,
            mask=sampled.reshape(-1, *shape) & filled,
            maps=torch.cat(maps) if mapped else None,
            noise=spread * self._noise_gain if noise else None,
            name=self.name,
            **geometry.cut(self._spacing, notes, 0, self._step(wanted)),
        )

    @property
    def _cells(self) -> int:
        return self._grid.lines * self._grid.partitions

    @property
    def _spacing(self) -> tuple[float, float, float] | None:
        spacing = self._grid.spacing if self._located is None else self._located.spacing
        return (spacing[1], spacing[2], spacing[0]) if spacing and self._volume else spacing

    def _place(self, index: int) -> tuple[int, int | None]:
        """Return the frame of a slice, and in 3-D its position along the readout."""
        return divmod(index, self._grid.readout) if self._volume else (index, None)

    def _geometry(self, index: int) -> dict[str, Any]:
        if self._located is None:
            return {}
        frame, position = self._place(index)
        return {"geometry": self._located.geometry(self._number[frame], position)}

    def _step(self, wanted: range) -> int:
        at = np.array(wanted)
        stacks, places = divmod(at, self._grid.readout) if self._volume else (self._frames[at, :-1], self._number[at])
        steps = set(np.diff(places).tolist()) or {1}
        return steps.pop() if len(steps) == 1 and (stacks == stacks[0]).all() else 0

    def _notes(self, counts: Tensor) -> dict[str, Any]:
        axes = {name: len(np.unique(column)) for name, column in zip(AXES, self._frames.T, strict=True)}
        notes = dict(self._meta)
        named = {name: length for name, length in axes.items() if length > 1}
        if math.prod(axes.values()) == len(self._frames):
            named |= {"readout": self._grid.readout} if self._volume else {}
            notes |= {"axes": named} if named else {}
        else:  # some combinations are missing
            notes["frames"] = self._listed(named)
        notes |= {"averages": int(counts.max())} if counts.max() > 1 else {}
        return notes | {"noise": self._noise_note} if self._noise_note else notes

    def _listed(self, named: Iterable[str]) -> list[dict[str, int]]:
        """Return the frame of every slice of the file, and in 3-D its position along the readout."""
        frames = [{name: int(frame[AXES.index(name)]) for name in named} for frame in self._frames]
        positions = range(self._grid.readout) if self._volume else None
        return frames if positions is None else [frame | {"readout": x} for frame in frames for x in positions]

    def _rows(self, frame: int) -> Ints:
        """Return the readouts of a frame; those for calibration only where imaging has none."""
        rows = self._rows_of[frame]
        extra = self._table.calibration[rows]
        return rows[~extra | ~np.isin(self._cell[rows], self._cell[rows[~extra]])]

    def _lines(self, rows: Ints) -> tuple[Tensor, Tensor]:
        """Return k-space (coil, readout, line) of these readouts and how often each line was read out."""
        from upmri.physics.fourier import without_oversampling

        readout = self._grid.readout
        kspace = torch.zeros(self.coils, readout, self._cells, dtype=torch.complex64)
        for lines, cells in self._batches(rows):
            kspace.index_add_(2, cells, without_oversampling(lines, readout).permute(1, 2, 0))
        kspace[:, ~self._taken(rows)] = 0
        counts = torch.bincount(torch.from_numpy(self._cell[rows]), minlength=self._cells)
        return kspace.div_(counts.clamp_min(1)), counts

    def _taken(self, rows: Ints) -> Tensor:
        """Return which samples of the cropped readout an asymmetric echo fills; cropping smears a little beyond."""
        grid = self._grid
        first, last = self._places[rows, 1].min(), self._places[rows, 2].max() - 1
        step = grid.samples / grid.readout
        at = (torch.arange(grid.readout) - grid.readout // 2) * step + grid.samples // 2
        return (at > first - step) & (at < last + step)

    def _position(self, frame: int, position: int, wanted: range) -> tuple[Tensor, Tensor]:
        """Return k-space (coil, line, partition) at a position of the readout, and how often each was read out.

        Every position needs every readout, so the next positions are computed with it, as far as memory allows.
        """
        if self._ready is None or self._ready[0] != frame or position not in self._ready[1]:
            ahead = max(1, self.max_bytes // _AHEAD // self.slice_bytes)
            block = range(position, min(position + ahead, self._grid.readout), wanted.step if len(wanted) > 1 else 1)
            self._ready = None
            self._ready = (frame, block, *self._positions(frame, block))
        _, block, kspace, counts = self._ready
        return kspace[block.index(position)].unflatten(-1, self.matrix), counts

    def _positions(self, frame: int, block: range) -> tuple[Tensor, Tensor]:
        from upmri.physics.fourier import crop, ifft1c

        rows = self._rows(frame)
        kspace = torch.zeros(len(block), self.coils, self._cells, dtype=torch.complex64)
        for lines, cells in self._batches(rows):
            part = crop(ifft1c(lines), self._grid.readout)[..., block.start : block.stop : block.step]
            kspace.index_add_(2, cells, part.permute(2, 1, 0))
        counts = torch.bincount(torch.from_numpy(self._cell[rows]), minlength=self._cells)
        return kspace.div_(counts.clamp_min(1)), counts

    # --- coils --------------------------------------------------------------------------------------------------------

    def _maps(self, frame: int) -> Tensor | None:
        """Return coil maps from separate calibration lines of the same slice; None if there are too few."""
        from upmri.physics.espirit import find_maps

        number = int(self._frames[frame, -1])
        if self._last_maps is None or self._last_maps[0] != number:
            maps = None
            rows = np.flatnonzero((self._slice == number) & self._table.calibration)
            if len(rows):
                kspace, counts = self._lines(rows)
                with suppress(InputError):
                    maps = find_maps(self._whitened(kspace)[None], (counts > 0)[None, None])
            self._last_maps = (number, maps)
        return self._last_maps[1]

    @cached_property
    def _covariance(self) -> Tensor | None:
        return self._find_covariance()

    def _find_covariance(self) -> Tensor | None:
        """Return Ψ of the noise in imaging; None where noise readouts do not give it."""
        from upmri.physics.coils import noise_covariance

        noise = self._fetch_noise(_NOISE)
        if noise is None:
            return None
        covariance = torch.empty(0)
        with suppress(InputError):
            covariance = noise_covariance(torch.from_numpy(noise).to(torch.complex128)) * (self._noise_scale or 1)
        if len(covariance) != self.coils:
            self._noise_note = "noise readouts were too few, or not of all coils: not used"
            return None
        self._noise_note = f"coils whitened with {noise.shape[1]} noise samples; k-space in units of their deviation"
        return covariance

    def _whitened(self, kspace: Tensor) -> Tensor:
        from upmri.physics.coils import whiten

        return kspace if self._covariance is None else whiten(kspace, self._covariance)
