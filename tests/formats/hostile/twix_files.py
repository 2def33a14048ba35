"""Siemens files, with changes to the list of measurements, the protocol and the headers of readouts."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hostile.damage import Draw, Files, chance, number, one_of, set_number, whole
from hostile.endings import drawn_changes, finished
from hostile.siblings import sibling

_FLAGS = ("NOISEADJSCAN", "PATREFSCAN", "PATREFANDIMASCAN", "REFLECT", "PHASCOR", "SYNCDATA", "ACQEND", "RTFEEDBACK")
_COUNTERS = ("Par", "Sli", "Rep", "Eco", "Phs", "Set", "Seg", "Ave")


def readout(draw: Draw, known: Any, data: np.ndarray[Any, Any], line: int, modern: bool, spoilt: bool) -> bytes:
    """One block of samples, with a field of its header changed where ``spoilt`` says so."""
    if not spoilt:
        return bytes(known.block(data, line, modern=modern))
    match one_of(draw, "flag", "counter", "line", "centre", "cut", "place", "size", "raw", "samples", "channels"):
        case "flag":
            return bytes(known.block(data, line, one_of(draw, *_FLAGS), modern=modern))
        case "counter":
            return bytes(known.block(data, line, modern=modern, **{one_of(draw, *_COUNTERS): number(draw, 2)}))
        case "line":
            return bytes(known.block(data, number(draw, 2, line), modern=modern))
        case "centre":
            centre = [number(draw, 2, 3) for _ in range(3)]
            return bytes(known.block(data, line, modern=modern, centre=centre))
        case "cut":
            return bytes(known.block(data, line, modern=modern, discard=(number(draw, 2), number(draw, 2))))
        case "place":
            value = one_of(draw, np.nan, np.inf, 1e38, 0, 1)
            return bytes(known.block(data, line, modern=modern, position=(value, 0, 0), quaternion=(value, 0, 1, 0)))
        case "samples":
            return bytes(known.block(data[:, : whole(draw, 0, data.shape[1])], line, modern=modern))
        case "channels":
            return bytes(known.block(data[: whole(draw, 0, len(data))], line, modern=modern))
        case "size":  # a block without samples, of a length that is not true
            length = one_of(draw, 0, 1, 192, 2**25 - 1, 10**4)
            made = bytearray(known.block(None, 0, "SYNCDATA", modern=modern, length=length))
            return bytes(made[: whole(draw, 0, len(made))]) if chance(draw, 30) else bytes(made[:20000])
        case _:
            made = bytearray(known.block(data, line, modern=modern))
            width = one_of(draw, 2, 4, 8)
            set_number(draw, made, whole(draw, 0, 180 // width) * width, width)
            return bytes(made)


@st.composite
def twix(draw: Draw) -> Files:
    known = sibling("twix")
    changes = drawn_changes(draw, "readout", "readout", "readout", "protocol", "key", "list", "last", "length")
    modern, coils = draw(st.booleans()), whole(draw, 1, 3)
    kspace = known.measured(known.image(coils, known.SAMPLES // 2, known.LINES))
    protocol = bytes(known.protocol(oversampling=one_of(draw, 2, 2, 1, None)))
    if "key" in changes:
        key = one_of(draw, *known.KEYS)
        values = (0, -1, 1, 7, 65535, 2**31, 10**30, "nan", "inf", "1e9", "", '"text"', "0x0")
        protocol = bytes(known.protocol(**{key: one_of(draw, *values)}))
    if "protocol" in changes:
        raw = bytearray(protocol)
        at = one_of(draw, 0, 4, 15, whole(draw, 0, len(raw) - 4))  # length, number of buffers, length of the first
        set_number(draw, raw, at, 4)
        protocol = bytes(raw)
    spoilt = {whole(draw, 0, known.LINES - 1) for _ in range(3)} if "readout" in changes else set()
    blocks = b"".join(
        readout(draw, known, kspace[:, line], line, modern, line in spoilt) for line in range(known.LINES)
    )
    last = b"" if "last" in changes else bytes(known.end(modern))
    if not modern:
        return finished(draw, "x.dat", protocol + blocks + last, changes)
    measurements = [protocol + blocks + last] * one_of(draw, 1, 1, 2)
    head, body = bytearray(10240), b""
    struct.pack_into("<II", head, 0, 0, len(measurements))
    for at, one in enumerate(measurements):
        struct.pack_into("<IIQQ64s64s", head, 8 + 152 * at, 1, 2, len(head) + len(body), len(one), b"Jane", b"gre")
        body += one + bytes(-len(one) % 512)
    if "list" in changes:
        set_number(draw, head, one_of(draw, 0, 4), 4)
    if "length" in changes:
        set_number(draw, head, 8 + 152 * whole(draw, 0, len(measurements) - 1) + one_of(draw, 8, 16), 8)
    return finished(draw, "x.dat", bytes(head) + body, changes)
