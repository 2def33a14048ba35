"""PNG writer: the slices side by side, 8-bit grey."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from upmri.core.scan import Reconstruction
from upmri.formats.label import describe


def write(rec: Reconstruction, path: Path) -> None:
    """Write |image|, windowed from 0 to the 99.9th percentile of all slices, as one montage."""
    from PIL import Image, PngImagePlugin

    magnitude = rec.image.abs().numpy()
    white = float(np.percentile(magnitude, 99.9)) or float(magnitude.max()) or 1.0
    grey = montage(np.rint(255 * np.clip(magnitude / white, 0, 1)).astype(np.uint8))
    about = PngImagePlugin.PngInfo()
    about.add_text("Description", describe(rec.method, 200).decode())
    Image.fromarray(grey).save(path, format="png", pnginfo=about)


def montage(slices: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Lay (slice, readout, phase) out in rows, left to right and top to bottom, as nearly square as possible."""
    n, h, w = slices.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    tiles = np.zeros((rows * columns, h, w), np.uint8)
    tiles[:n] = slices
    return tiles.reshape(rows, columns, h, w).swapaxes(1, 2).reshape(rows * h, columns * w)
