"""3-D k-space seen as slices: positions along the readout, which is transformed back coil by coil, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

_AHEAD = 4  # positions computed ahead take at most 1/4 of the memory allowed


class Positions:
    """K-space (coil, phase, partition) at positions along the readout of a 3-D scan.

    Every position needs every sample of a readout, so the next positions are computed with it, as far as memory allows:
    one coil's volume and one block of positions are in memory.

    Parameters
    ----------
    volume
        Function of a frame and a coil that reads complex (readout, phase, partition).
    coils, readout, matrix
        Number of coils, number of positions, and the size (phase, partition).
    max_bytes
        Most bytes of memory for one read.
    """

    def __init__(
        self,
        volume: Callable[[int, int], NDArray[Any]],
        coils: int,
        readout: int,
        matrix: tuple[int, int],
        max_bytes: int,
    ) -> None:
        self._volume, self._coils, self._readout, self._matrix = volume, coils, readout, matrix
        self._most = max(1, max_bytes // _AHEAD // (8 * coils * matrix[0] * matrix[1]))
        self._ready: tuple[int, range, Tensor] | None = None

    def __call__(self, frame: int, position: int, step: int = 1) -> Tensor:
        """Return complex64 (coil, phase, partition); ``step`` is the distance to the position that is wanted next."""
        if self._ready is None or self._ready[0] != frame or position not in self._ready[1]:
            block = range(position, min(position + self._most * step, self._readout), step)
            self._ready = None  # its memory is free before the next block takes some
            self._ready = (frame, block, self._transformed(frame, block))
        _, block, kspace = self._ready
        return kspace[block.index(position)]

    def _transformed(self, frame: int, block: range) -> Tensor:
        from upmri.physics.fourier import ifft1c

        kspace = torch.empty(len(block), self._coils, *self._matrix, dtype=torch.complex64)
        for coil in range(self._coils):
            volume = torch.from_numpy(self._volume(frame, coil))
            kspace[:, coil] = ifft1c(volume, 0)[block.start : block.stop : block.step]
        return kspace
