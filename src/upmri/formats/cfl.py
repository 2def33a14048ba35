"""BART writer, .cfl and .hdr: complex64 in column-major order beside a text with the 16 dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from upmri.core.scan import Reconstruction

_DIMENSIONS = 16
_COIL = 3
_SLICE = 13


def write_maps(maps: Tensor, path: Path) -> None:
    """Write coil maps (slice, coil, readout, phase) as readout × phase × 1 × coil with the slices on dimension 13."""
    slices, coils, readout, phase = maps.shape
    _write(maps.mT.numpy(), {0: readout, 1: phase, _COIL: coils, _SLICE: slices}, path)


def write(rec: Reconstruction, path: Path) -> None:
    """Write the image as readout × phase × 1 × … with the slices on BART's dimension 13, and its header beside."""
    slices, readout, phase = rec.image.shape
    # Column-major (readout, phase, slice) is row-major (slice, phase, readout).
    _write(rec.image.mT.numpy(), {0: readout, 1: phase, _SLICE: slices}, path)


def _write(array: NDArray[Any], lengths: dict[int, int], path: Path) -> None:
    """Write an array, row-major with its axes in reverse order, and its header."""
    dimensions = [lengths.get(number, 1) for number in range(_DIMENSIONS)]
    path.write_bytes(array.astype("<c8").tobytes())
    path.with_suffix(".hdr").write_text(f"# Dimensions\n{' '.join(map(str, dimensions))}\n")
