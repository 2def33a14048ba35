"""BART writer, .cfl and .hdr: complex64 in column-major order beside a text with the 16 dimensions."""

from __future__ import annotations

from pathlib import Path

from upmri.core.scan import Reconstruction

_DIMENSIONS = 16
_SLICE = 13


def write(rec: Reconstruction, path: Path) -> None:
    """Write the image as readout × phase × 1 × … with the slices on BART's dimension 13, and its header beside."""
    slices, readout, phase = rec.image.shape
    dimensions = [1] * _DIMENSIONS
    dimensions[0], dimensions[1], dimensions[_SLICE] = readout, phase, slices
    # Column-major (readout, phase, slice) is row-major (slice, phase, readout).
    path.write_bytes(rec.image.mT.numpy().astype("<c8").tobytes())
    path.with_suffix(".hdr").write_text(f"# Dimensions\n{' '.join(map(str, dimensions))}\n")
