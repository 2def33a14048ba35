"""Files of NumPy, BART and NIfTI, with changes to what their headers declare."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from typing import Any

import nibabel
import numpy as np
from hypothesis import strategies as st

from hostile.damage import (
    Draw,
    Files,
    chance,
    damaged,
    noise,
    number,
    one_of,
    resized,
    set_near,
    set_number,
    text_damaged,
    whole,
    zeros,
)
from hostile.endings import drawn_changes, finished

_DESCRIPTIONS = (
    "<c8",
    ">c8",
    "<c16",
    "|O",
    "<f4",
    "<i2",
    "|S4",
    "|V8",
    [("a", "<c8")],
    "<c8,<f4",
    "(2,)<c8",
    "<m8",
    "c",
    7,
)


def npy_bytes(draw: Draw, array: np.ndarray[Any, Any], changes: set[str]) -> bytes:
    header: dict[str, Any] = {"descr": array.dtype.str, "fortran_order": draw(st.booleans()), "shape": array.shape}
    if "type" in changes:
        header["descr"] = one_of(draw, *_DESCRIPTIONS)
    if "shape" in changes:
        shape: list[Any] = list(array.shape) or [1]
        huge = one_of(draw, 0, 1, -1, 7, 10**4, 10**6, 2**31, 2**62, 2**64, 1.0, True, "2")
        shape[whole(draw, 0, len(shape) - 1)] = huge
        header["shape"] = one_of(draw, tuple(shape), tuple(shape), shape, (), tuple(shape[1:]), (1, 1, *shape), 5, None)
    text = repr(header)
    if "text" in changes:
        text = text_damaged(draw, text)
    version = one_of(draw, 1, 1, 2, 3, 0, 9) if "version" in changes else one_of(draw, 1, 1, 2)
    raw = text.encode("utf-8", "replace") + b" " * (-len(text) % 64) + b"\n"
    length = number(draw, 4, len(raw)) if "length" in changes else len(raw)
    width = "<H" if version == 1 else "<I"
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack(width, length % 2 ** (8 * struct.calcsize(width)))
        + raw
        + array.tobytes()
    )


_NPY = ("type", "shape", "shape", "text", "version", "length")


@st.composite
def npy(draw: Draw) -> Files:
    changes, shape = drawn_changes(draw, *_NPY), (2, 3, 8, 6)[whole(draw, 0, 1) :]
    return finished(draw, "x.npy", npy_bytes(draw, noise(*shape), changes), changes)


@st.composite
def npz(draw: Draw) -> Files:
    changes = drawn_changes(draw, *_NPY, "zip", "zip", "entry")
    slices = whole(draw, 1, 2)
    kspace = noise(slices, 3, 8, 6)
    arrays = {"kspace": kspace, "maps": kspace, "mask": np.ones((slices, 1, 6), bool), "spacing": np.arange(1.0, 4.0)}
    arrays |= {"noise": np.array(0.1), "name": np.array("x"), "reference": kspace[:, 0], "more": np.zeros(3)}
    spoilt, buffer = one_of(draw, *arrays), io.BytesIO()
    with zipfile.ZipFile(buffer, "w", one_of(draw, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)) as archive:
        for name, array in arrays.items():
            if name in ("kspace", spoilt) or chance(draw, 40):
                data = npy_bytes(draw, array, changes if name == spoilt else set())
                file = f"{name}.npy"
                if "entry" in changes and name == spoilt:
                    file = one_of(draw, "kspace", "../kspace.npy", "kspace.npy", "é.npy", "a/kspace.npy", "x\n.npy")
                    data = one_of(draw, data, b"", bytes(2**24))
                if file not in archive.namelist():
                    archive.writestr(file, data)
    raw = bytearray(buffer.getvalue())
    if "zip" in changes:
        set_near(draw, raw, (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"), 40)
    return finished(draw, "x.npz", bytes(raw), changes)


_WORDS = (
    "0",
    "-1",
    "2",
    "+8",
    "8.0",
    "08",
    "0x8",
    "٨",
    "1e1",
    "",
    "99999999999999999999",
    "10000",
    "4294967296",
    "#",
    "nan",
)


@st.composite
def bart(draw: Draw) -> Files:
    changes = drawn_changes(draw, "number", "number", "axes", "text", "size", "missing")
    shape = [8, 6, 1, 3] + [1] * 12
    for axis in (2, 5, 10, 11, 12, 13, 14, 15):
        shape[axis] = one_of(draw, 1, 1, 1, 2)
    data = noise(*shape).tobytes()
    words = [str(length) for length in shape]
    if "number" in changes:
        words[whole(draw, 0, 15)] = one_of(draw, *_WORDS)
    if "axes" in changes:
        words = one_of(draw, words[:3], words[: whole(draw, 0, 16)], [*words, "1"], words[::-1])
    text = f"# Dimensions\n{' '.join(words)}\n"
    text = text_damaged(draw, text) if "text" in changes else text
    head = text.encode("utf-8", "replace")
    data = resized(draw, data) if "size" in changes else data
    files = {"x.cfl": data, "x.hdr": head}
    if draw(st.booleans()):
        files = dict(reversed(files.items()))
    if "missing" in changes:
        files.popitem()
    return Files(files | finished(draw, *next(iter(files.items())), changes))


def _large(count: int) -> bytes:
    """A packed image of ``count`` × 16 MiB, of zeros."""
    made = nibabel.Nifti1Image(np.zeros((2, 2, 2), "u1"), np.eye(4)).header
    made.set_data_shape((4096, 4096, count))
    made["vox_offset"] = 352
    return zeros(made.binaryblock + bytes(4), count)[1]


def _far(count: int) -> bytes:
    """A small image after ``count`` × 16 MiB of header extensions."""
    made = nibabel.Nifti1Image(np.zeros((2, 2, 2), "u1"), np.eye(4)).header
    made["vox_offset"] = count * 2**24 - 16
    extension = struct.pack("<4sii", b"\1\0\0\0", count * 2**24 - 368, 6)
    return zeros(made.binaryblock + extension, count)[1]


_HUGE = (_large(1), _large(16), _far(2), _far(16))
_TYPES = ("u1", "<i2", "<f4", "<f8", "<c8", ">i2", "<u4")


@st.composite
def nifti(draw: Draw) -> Files:
    """Images of either version, plain or packed, with fields of the header, extensions or the packing changed."""
    changes = drawn_changes(draw, "field", "field", "field", "extension", "packing", "value", "huge")
    if "huge" in changes:
        return finished(draw, "x.nii.gz", one_of(draw, *_HUGE), changes)
    second = draw(st.booleans())
    image = np.abs(noise(*(8, 6, 2, 2)[: one_of(draw, 2, 3, 4)])).astype(one_of(draw, *_TYPES))
    if "value" in changes and image.dtype.kind in "fc":
        image.flat[0] = one_of(draw, np.nan, np.inf, 1e38)
    made = (nibabel.Nifti2Image if second else nibabel.Nifti1Image)(image, np.eye(4))
    if "extension" in changes:
        made.header.extensions.append(nibabel.nifti1.Nifti1Extension(6, b"x" * one_of(draw, 1, 100, 10**4)))
    data = bytearray(made.to_bytes())
    dtype = made.header.template_dtype
    for _ in range(whole(draw, 1, 3) if "field" in changes else 0):
        name = one_of(
            draw,
            "dim",
            "dim",
            "datatype",
            "bitpix",
            "vox_offset",
            "scl_slope",
            "scl_inter",
            "magic",
            "pixdim",
            "sizeof_hdr",
        )
        kind, at = dtype.fields[name][:2]
        base = kind.subdtype[0] if kind.subdtype else kind
        at += base.itemsize * whole(draw, 0, kind.itemsize // base.itemsize - 1)
        if base.kind == "f":
            value = one_of(draw, 0, -1, 1, 2, 352, 1e6, 1e18, 1e38, np.nan, np.inf)
            data[at : at + base.itemsize] = np.array(value, f"<f{base.itemsize}").tobytes()
        else:
            set_number(draw, data, at, base.itemsize)
    if "extension" in changes:
        start = dtype.itemsize
        data[start : start + 4] = bytes([one_of(draw, 0, 1, 255), 0, 0, 0])
        set_number(draw, data, start + 4, 4)
    raw = bytes(data)
    if not ("packing" in changes or draw(st.booleans())):
        return finished(draw, "x.nii", raw, changes)
    packed = gzip.compress(raw, one_of(draw, 0, 1, 9), mtime=0)
    if "packing" in changes:
        match one_of(draw, "twice", "bomb", "checksum", "rest", "inner"):
            case "twice":
                packed = gzip.compress(packed)
            case "bomb":
                packed = zeros(raw, 16)[1]
            case "checksum":
                packed = packed[:-8] + bytes(8)
            case "rest":
                packed += one_of(draw, b"x", packed, bytes(100))
            case "inner":
                packed = gzip.compress(damaged(draw, raw))
    return finished(draw, "x.nii.gz", packed, changes)
