"""Text in HDF5, of fixed or variable length, read without HDF5 following a reference that may be damaged."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from upmri.core.errors import InputError
from upmri.formats import guard, hdf5, heap

_LONGEST = 2**20  # bytes


def read_text(file: Any, raw: BinaryIO, name: str) -> str | None:
    """Return one text, of fixed or variable length, that lies in the root of the file, or None.

    Parameters
    ----------
    file
        The file, as :func:`upmri.formats.hdf5.open_hdf5` opens it.
    raw
        The same file, opened for its bytes.
    name
        Name of the dataset that holds the text.
    """
    from h5py import h5d, h5l, h5o, h5t

    if not hdf5.has_link(file, name):
        return None
    link = name.encode()
    with guard.library(name):
        hard = file.id.links.get_info(link).type == h5l.TYPE_HARD
    if not hard:
        raise InputError("leads elsewhere; expected it in this place of this file", field=name)
    with guard.library(name):
        node = h5o.open(file.id, link)
        kind: Any = node.get_type() if isinstance(node, h5d.DatasetID) else None
        single = isinstance(kind, h5t.TypeStringID) and node.get_space().get_simple_extent_npoints() == 1
    if not single:
        raise InputError("expected one text", field=name)
    with guard.library(name):
        variable, offset = kind.is_variable_str(), node.get_offset()
    if not variable:
        stored = hdf5.find_array(file, name)
        assert stored is not None  # noqa: S101, the link above leads to it
        return _decode(name, bytes(stored.read(max_bytes=_LONGEST).reshape(1)[0]))
    if offset is None:
        raise InputError("expected it in this file, in one piece and not compressed", field=name)
    return _follow(file, name, _bytes(raw, name, offset, heap.REFERENCE.itemsize))


def read_text_attribute(file: Any, raw: BinaryIO, name: str) -> str | None:
    """Return a text attribute of the root, of fixed or variable length; None when it is absent or stored otherwise."""
    from h5py import h5o, h5t

    if not hdf5.has_attribute(file, name):
        return None
    with guard.library(name):
        kind = file.attrs.get_id(name).get_type()
        variable = isinstance(kind, h5t.TypeStringID) and kind.is_variable_str()
        address = h5o.get_info(file.id).addr
    if not variable:
        value = hdf5.short_attribute(file, name)
        return _decode(name, value) if isinstance(value, bytes) else None
    reference = _attribute_bytes(raw, address, name)
    return None if reference is None else _follow(file, name, reference)


def _decode(name: str, raw: bytes) -> str:
    with guard.library(name):
        return raw.rstrip(b"\0").decode()


def _follow(file: Any, name: str, reference: bytes) -> str:
    """Return the text that a reference leads to."""
    with guard.library(name):
        plan = file.id.get_create_plist()
        usual = not plan.get_userblock() and plan.get_sizes() == (8, 8)
    if not usual:
        raise InputError("expected an HDF5 file without a user block and with addresses of 8 bytes", field=name)
    where = np.frombuffer(reference, heap.REFERENCE)[0]
    guard.check_bytes(name, int(where["length"]), _LONGEST)
    with heap.Heap(Path(file.filename)) as stored:
        return _decode(name, stored.take(where, 1))


def _attribute_bytes(raw: BinaryIO, address: int, name: str) -> bytes | None:
    """Return what an attribute holds, from an object header of version 1, which is what HDF5 writes by default."""
    version, length = struct.unpack("<B7xI", _bytes(raw, name, address, 12))
    blocks = [(address + 16, length)]
    for start, size in blocks:  # the list grows by the continuations that are found
        if version != 1 or size > guard.HEAD or len(blocks) > 16:
            return None
        block, at = _bytes(raw, name, start, size), 0
        while at + 8 <= size:
            kind, length = struct.unpack_from("<HH", block, at)
            body, at = block[at + 8 : at + 8 + length], at + 8 + length
            if kind == 16 and len(body) >= 16:
                blocks.append(struct.unpack_from("<QQ", body))
            elif kind == 12 and len(body) >= 24 and body[0] == 1:
                sizes = struct.unpack_from("<HHH", body, 2)  # of name, type and shape, each a multiple of 8
                data = 8 + sum(part + -part % 8 for part in sizes)
                found = body[8 : 8 + sizes[0]].rstrip(b"\0")
                if found == name.encode() and len(body) >= data + heap.REFERENCE.itemsize:
                    return body[data : data + heap.REFERENCE.itemsize]
    return None


def _bytes(raw: BinaryIO, name: str, offset: int, count: int) -> bytes:
    with guard.library(name):  # an offset can be larger than any file
        raw.seek(offset)
        found = raw.read(count)
    if len(found) < count:
        raise InputError("damaged, or cut short: a text lies outside the file", field=name)
    return found
