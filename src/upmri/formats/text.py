"""Text in HDF5, of fixed or variable length, without asking HDF5 to follow a reference that a damaged file may bend."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from upmri.core.errors import InputError
from upmri.formats import guard, heap

_LONGEST = 2**20  # bytes


def dataset(file: Any, raw: BinaryIO, name: str) -> str | None:
    """Return one text, of fixed or variable length, that lies in the root of the file, or None."""
    from h5py import h5d, h5l, h5o, h5t

    link = name.encode()
    if not file.id.links.exists(link):
        return None
    if file.id.links.get_info(link).type != h5l.TYPE_HARD:
        raise InputError(f"{name}: leads elsewhere; expected it in this place of this file")
    node = h5o.open(file.id, link)
    kind = node.get_type() if isinstance(node, h5d.DatasetID) else None
    if not isinstance(kind, h5t.TypeStringID) or node.get_space().get_simple_extent_npoints() != 1:
        raise InputError(f"{name}: expected one text")
    if not kind.is_variable_str():
        stored = guard.read(guard.dataset(file, name), max_bytes=_LONGEST)
        return bytes(stored.reshape(1)[0]).rstrip(b"\0").decode()
    offset = node.get_offset()
    if offset is None:
        raise InputError(f"{name}: expected it in this file, in one piece and not compressed")
    return _follow(file, name, _bytes(raw, offset, heap.REFERENCE.itemsize))


def attribute(file: Any, raw: BinaryIO, name: str) -> str | None:
    """Return a text attribute of the root, of fixed or variable length; None when it is absent or stored otherwise."""
    from h5py import h5o, h5t

    if name not in file.attrs:
        return None
    kind = file.attrs.get_id(name).get_type()
    if not isinstance(kind, h5t.TypeStringID) or not kind.is_variable_str():
        value = guard.attribute(file, name)
        return value.decode() if isinstance(value, bytes) else None
    reference = _attribute_bytes(raw, h5o.get_info(file.id).addr, name.encode())
    return None if reference is None else _follow(file, name, reference)


def _follow(file: Any, name: str, reference: bytes) -> str:
    """Return the text that a reference leads to."""
    plan = file.id.get_create_plist()
    if plan.get_userblock() or plan.get_sizes() != (8, 8):
        raise InputError(f"{name}: expected an HDF5 file without a user block and with addresses of 8 bytes")
    where = np.frombuffer(reference, heap.REFERENCE)[0]
    guard.check_bytes(name, int(where["length"]), _LONGEST)
    with heap.Heap(Path(file.filename)) as stored:
        return stored.take(where, 1).rstrip(b"\0").decode()


def _attribute_bytes(raw: BinaryIO, address: int, name: bytes) -> bytes | None:
    """Return what an attribute holds, from an object header of version 1, which is what HDF5 writes by default."""
    version, length = struct.unpack("<B7xI", _bytes(raw, address, 12))
    blocks = [(address + 16, length)]
    for start, size in blocks:  # which grows by the continuations that are met
        if version != 1 or size > guard.HEAD or len(blocks) > 16:
            return None
        block, at = _bytes(raw, start, size), 0
        while at + 8 <= size:
            kind, length = struct.unpack_from("<HH", block, at)
            body, at = block[at + 8 : at + 8 + length], at + 8 + length
            if kind == 16 and len(body) >= 16:
                blocks.append(struct.unpack_from("<QQ", body))
            elif kind == 12 and len(body) >= 24 and body[0] == 1:
                sizes = struct.unpack_from("<HHH", body, 2)  # of name, type and shape, each filled up to eights
                data = 8 + sum(part + -part % 8 for part in sizes)
                if body[8 : 8 + sizes[0]].rstrip(b"\0") == name and len(body) >= data + heap.REFERENCE.itemsize:
                    return body[data : data + heap.REFERENCE.itemsize]
    return None


def _bytes(raw: BinaryIO, offset: int, count: int) -> bytes:
    raw.seek(offset)
    found = raw.read(count)
    if len(found) < count:
        raise InputError("damaged, or cut short: a text lies outside the file")
    return found
