"""How arrays lie in HDF5: types, chunks, filters and links, with changes to what is declared and stored."""

from __future__ import annotations

import io
import math
import struct
import zlib
from typing import Any

import h5py
import numpy as np
from hypothesis import strategies as st

from hostile.damage import (
    Draw,
    Files,
    chance,
    damaged,
    one_of,
    resized,
    set_near,
    set_number,
    whole,
    zeros,
)  # fmt: skip

_SIGNATURES = (b"TREE", b"SNOD", b"HEAP", b"GCOL", b"OHDR", b"\x89HDF\r\n\x1a\n")
_TYPES = (
    "<c8",
    "<c16",
    ">c8",
    "<f4",
    "<f2",
    "<i2",
    "<u8",
    "?",
    "S8",
    "V4",
    "pair",
    "odd pair",
    "array",
    "enum",
    "text",
)
_BOMB, _ = zeros(b"", 16)  # 256 MiB
_LZF_BOMB = b"\0a" + b"\xe0\xff\0" * 10**6  # 252 MiB
_PAIR = np.dtype([("real", "<f4"), ("imag", "<f4")])


def cast(array: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    """The array as another type of HDF5."""
    match kind:
        case "pair" | "odd pair":
            real, imag = ("<f4", "<f4") if kind == "pair" else ("<f8", "<i2")
            out = np.zeros(array.shape, [("real", real), ("imag", imag)])
            with np.errstate(invalid="ignore"):
                out["real"], out["imag"] = array.real, array.imag
            return out
        case "array":
            return np.zeros(array.shape, [("x", "<f4", (2,))])
        case "enum":
            return np.zeros(array.shape, h5py.enum_dtype({"a": 0, "b": 1}, "i4"))
        case "text":
            return np.full(array.shape, "text", h5py.string_dtype())
        case "V4" | "S8":
            return np.zeros(array.shape, kind)
        case _:
            return (array if kind[1] == "c" else np.abs(array)).astype(kind)


def put(draw: Draw, file: h5py.File, name: str, array: np.ndarray[Any, Any], changes: set[str]) -> None:
    """Write an array, stored in one of the ways HDF5 has, with these changes."""
    options: dict[str, Any] = {}
    if "type" in changes:
        array = cast(array, one_of(draw, *_TYPES))
    if "elsewhere" in changes:
        return lead_away(draw, file, name, array)
    if not array.ndim:
        file[name] = array
        return None
    if chance(draw, 75) or changes & {"chunk", "shape"}:
        odd = tuple(whole(draw, 1, max(1, length)) for length in array.shape)
        options["chunks"] = one_of(draw, (1, *array.shape[1:]), array.shape, odd)
        options |= {"compression": one_of(draw, None, "gzip", "lzf"), "shuffle": draw(st.booleans())}
        options["fletcher32"] = draw(st.booleans())
    if "fill" in changes:
        options["fillvalue"] = one_of(draw, np.nan, np.inf, 0, 1, 1e38)
        options["maxshape"] = (
            tuple(one_of(draw, None, length) for length in array.shape) if "chunks" in options else None
        )
    if "filter" in changes and array.dtype.kind in "iu":
        options |= {"scaleoffset": 3, "compression": None, "fletcher32": False}
    if "shape" not in changes:
        made = file.create_dataset(name, data=array, **options)
    else:
        # Some of the chunks are written, of an array that may be larger than all memory.
        shape = list(array.shape)
        for _ in range(one_of(draw, 1, 1, 2)):
            shape[whole(draw, 0, len(shape) - 1)] = one_of(draw, 0, 1, 3, 33, 1000, 10**5, 2**31, 2**40)
        shape = one_of(draw, shape, shape, shape[1:], [1, *shape])
        chunks = (*options.pop("chunks"), 1)[-len(shape) :] if len(shape) <= array.ndim else (1, *options.pop("chunks"))
        most = tuple(None for _ in shape)
        made = file.create_dataset(name, shape, array.dtype, chunks=chunks, maxshape=most, **options)
        if all(shape):
            made[(0,) * len(shape)] = array.flat[0]
    if "chunk" in changes and made.chunks is not None and made.size:
        spoil_chunk(draw, made, array)
    return None


def fletcher32(data: bytes) -> bytes:
    """The checksum that HDF5 appends, of an even number of bytes."""
    first = second = 0
    for word in np.frombuffer(data[: len(data) // 2 * 2], ">u2").tolist():
        first = (first + word) % 65535
        second = (second + first) % 65535
    return struct.pack("<I", second << 16 | first)


def encode(plain: bytes, numbers: list[int], itemsize: int) -> bytes:
    """The bytes as the filters of these numbers store them."""
    for one in numbers:
        if one == 1:
            plain = zlib.compress(plain)
        elif one == 2:
            count = len(plain) // itemsize * itemsize
            plain = np.frombuffer(plain[:count], "u1").reshape(-1, itemsize).T.tobytes() + plain[count:]
        elif one == 3:
            plain += fletcher32(plain)
        else:  # LZF, in runs that are not compressed
            runs = (plain[at : at + 32] for at in range(0, len(plain), 32))
            plain = b"".join(bytes([len(run) - 1]) + run for run in runs)
    return plain


def spoil_chunk(draw: Draw, made: h5py.Dataset, array: np.ndarray[Any, Any]) -> None:
    """Replace the first chunk by one that is not what its filters make of that many bytes."""
    size, itemsize = math.prod(made.chunks) * made.dtype.itemsize, made.dtype.itemsize
    plain = (array.tobytes() + bytes(size))[:size]
    plan = made.id.get_create_plist()
    numbers = [plan.get_filter(at)[0] for at in range(plan.get_nfilters())]
    other = whole(draw, 1, min(size, 600))
    match one_of(draw, "short", "short", "short", "long", "bomb", "lzf bomb", "cut", "few", "few", "bytes", "plain"):
        case "short":
            chunk = encode(plain[:-other], numbers, itemsize)
        case "long":
            chunk = encode(plain + bytes(other), numbers, itemsize)
        case "bomb":
            chunk = _BOMB
        case "lzf bomb":
            chunk = _LZF_BOMB
        case "cut":
            chunk = encode(plain, numbers, itemsize)[:other]
        case "few":
            chunk = bytes(whole(draw, 1, 5))
        case "bytes":
            chunk = damaged(draw, encode(plain, numbers, itemsize))
        case _:
            chunk = plain
    made.id.write_direct_chunk(
        (0,) * made.ndim, chunk or b"\0", filter_mask=one_of(draw, 0, 0, 0, 0, 1, 2, 3, 2**32 - 1)
    )


def lead_away(draw: Draw, file: h5py.File, name: str, array: np.ndarray[Any, Any]) -> None:
    """Put something else in the place of a dataset."""
    match one_of(draw, "link", "soft", "circle", "group", "type", "external", "virtual", "empty", "vlen"):
        case "link":
            file[name] = h5py.ExternalLink("/etc/hostname", "/x")
        case "soft":
            file["there"] = array
            file[name] = h5py.SoftLink(one_of(draw, "/there", "there", "/./there", "/nowhere", "//there/"))
        case "circle":
            file[name] = h5py.SoftLink(f"/{name}")
        case "group":
            file.create_group(name)
        case "type":
            file[name] = np.dtype("<c8")
        case "external":
            file.create_dataset(name, array.shape, array.dtype, external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)])
        case "virtual":
            layout = h5py.VirtualLayout(array.shape, array.dtype)
            layout[:] = h5py.VirtualSource(one_of(draw, ".", "/etc/hostname"), "x", array.shape)
            file.create_virtual_dataset(name, layout)
        case "empty":
            file[name] = h5py.Empty("<c8")
        case "vlen":
            made = file.create_dataset(name, (2,), h5py.vlen_dtype("f4"))
            made[0] = [1, 2]


def attribute(draw: Draw) -> Any:
    """What an attribute can hold."""
    return one_of(
        draw, 7, -1.5, "text", "x" * 300, b"bytes", np.bytes_(b"scan\xff"), np.arange(3), h5py.Empty("f4"), True,
        np.array(["a", "bb"], h5py.string_dtype()), np.uint8(1), np.zeros(2, _PAIR),
    )  # fmt: skip


def finished(draw: Draw, name: str, buffer: io.BytesIO, shape: tuple[int, ...], raw: bool, mark: bytes = b"") -> Files:
    """The file, with changes to the bytes of its own structures where ``raw`` says so."""
    data = bytearray(buffer.getvalue())
    data[: len(mark)] = mark
    if raw:
        for _ in range(one_of(draw, 1, 1, 2)):
            match one_of(draw, "structure", "structure", "shape", "chunk", "bytes", "end"):
                case "structure":
                    set_near(draw, data, _SIGNATURES, 64)
                case "shape":  # in the message of the dataspace
                    at = data.find(struct.pack(f"<{len(shape)}Q", *shape))
                    if at >= 0:
                        set_number(draw, data, at + 8 * whole(draw, 0, len(shape) - 1), 8)
                case "chunk":  # their sizes and masks lie in the nodes of trees
                    at = data.find(b"TREE\x01")
                    if at >= 0:
                        set_number(draw, data, at + 24 + 4 * whole(draw, 0, 64), 4)
                case "bytes":
                    data = bytearray(damaged(draw, bytes(data)))
                case "end":
                    data = bytearray(resized(draw, bytes(data)))
    return Files({name: bytes(data)})


_CHANGES = (
    "type",
    "elsewhere",
    "shape",
    "chunk",
    "chunk",
    "chunk",
    "fill",
    "filter",
    "text",
    "attribute",
    "value",
    "raw",
    "raw",
)


def drawn_changes(draw: Draw) -> set[str]:
    """None for one file in six."""
    if chance(draw, 16):
        return set()
    return {one_of(draw, *_CHANGES) for _ in range(one_of(draw, 1, 1, 1, 2, 3))}


def opened(draw: Draw, buffer: io.BytesIO, **options: Any) -> h5py.File:
    return h5py.File(buffer, "w", libver=one_of(draw, "earliest", "earliest", "latest"), **options)
