"""Image planes as text in a page: integers of 16 or 8 bits, compressed, in base64.

Packing has four steps, which the script of the page undoes: each code is replaced by its difference from its left
neighbour (modulo 2¹⁶ or 2⁸), the high bytes of all codes are put before the low bytes, then zlib, then base64. A value
is ``offset + step · code``. PNG is not used because a browser decodes it to 8 bits.
"""

from __future__ import annotations

import base64
import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8] | NDArray[np.uint16]
_TYPES: dict[int, Any] = {8: np.uint8, 16: np.uint16}


@dataclass(frozen=True, eq=False)
class Planes:
    """Integer codes (slice, H, W) of the values ``offset + step · code``."""

    codes: Codes
    step: float
    offset: float = 0.0

    @property
    def bits(self) -> int:
        """Number of bits of a code, 8 or 16."""
        return 8 * self.codes.dtype.itemsize

    @property
    def values(self) -> NDArray[np.float64]:
        """The values of the codes."""
        return self.offset + self.step * self.codes.astype(np.float64)

    def where(self, known: NDArray[np.bool_]) -> Planes:
        """Return the planes with code 0 where ``known`` is false."""
        codes = self.codes.copy()
        codes[~known] = 0
        return Planes(codes, self.step, self.offset)

    def coarser(self, bits: int) -> Planes:
        """Return the planes with steps 2^bits times as large, which take less space when packed."""
        codes = (self.codes.astype(np.uint32) + (1 << bits >> 1)) >> bits
        return Planes(codes.astype(_TYPES[self.bits]), self.step * 2**bits, self.offset)


def quantise(values: NDArray[Any], *, step: float | None = None, offset: float = 0.0, bits: int = 16) -> Planes:
    """Round values to the nearest code.

    Parameters
    ----------
    values
        Real array (slice, H, W).
    step
        Difference between neighbouring codes; by default the largest value gets the largest code.
    offset
        Value of code 0. Values outside the range get the nearest code.
    bits
        Number of bits of a code, 8 or 16.
    """
    most = 2**bits - 1
    shifted = np.asarray(values, np.float64) - offset
    if step is None:
        step = max(float(shifted.max(initial=0)), 0.0) / most or 1.0
    return Planes(np.clip(np.rint(shifted / step), 0, most).astype(_TYPES[bits]), step, offset)


def angles(values: NDArray[Any], known: NDArray[np.bool_]) -> Planes:
    """Return the phase of complex values in 8 bits: 254 steps around the circle; code 0 where it is not known."""
    step = 2 * math.pi / 254
    return quantise(np.angle(values), step=step, offset=-math.pi - step, bits=8).where(known)


def pack(plane: Codes) -> str:
    """Return a plane (H, W) of codes as text."""
    first = np.zeros_like(plane[:, :1])
    change = np.diff(plane, axis=1, prepend=first)  # unsigned integers wrap around, here and in the page
    high_to_low = change.astype(plane.dtype.newbyteorder(">")).view(np.uint8).reshape(plane.size, -1).T
    # The differences of a noisy image do not repeat, but small ones are more common: Z_FILTERED is made for such data.
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_FILTERED)
    return base64.b64encode(squeeze.compress(high_to_low.tobytes()) + squeeze.flush()).decode()


def unpack(text: str, shape: tuple[int, int], bits: int) -> Codes:
    """Return the plane that was packed by :func:`pack`, with the steps that the page uses."""
    octets = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(bits // 8, -1)
    change = np.zeros(octets.shape[1], _TYPES[bits])
    for octet in octets:
        change = (change << (8 if bits == 16 else 0)) | octet.astype(change.dtype)
    codes: Codes = np.cumsum(change.reshape(shape), axis=1, dtype=change.dtype)
    return codes
