"""PNG out: the slices side by side, 8-bit grey."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from upmri.core.scan import Reconstruction
from upmri.formats.label import describe


def write(rec: Reconstruction, path: Path) -> None:
    """Write |image|, windowed from 0 to the 99.9th percentile of all slices, as one montage."""
    magnitude = rec.image.abs().numpy()
    white = float(np.percentile(magnitude, 99.9)) or float(magnitude.max()) or 1.0
    grey = montage(np.rint(255 * np.clip(magnitude / white, 0, 1)).astype(np.uint8))
    path.write_bytes(_png(grey, describe(rec.method, 200)))


def montage(slices: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Lay (slice, readout, phase) out in rows, left to right and top to bottom, as near to a square as they go."""
    n, h, w = slices.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    tiles = np.zeros((rows * columns, h, w), np.uint8)
    tiles[:n] = slices
    return tiles.reshape(rows, columns, h, w).swapaxes(1, 2).reshape(rows * h, columns * w)


def _png(grey: NDArray[np.uint8], description: bytes) -> bytes:
    height, width = grey.shape
    lines = np.pad(grey, ((0, 0), (1, 0)))  # each line begins with its filter, 0 for none
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits of grey
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", header),
            _chunk(b"tEXt", b"Description\0" + description),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 6)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
