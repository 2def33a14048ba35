"""ISMRMRD raw data, the HDF5 of MRD version 1: Cartesian readouts with a header each, and an XML text about all.

A group of the file, mostly ``dataset``, holds ``data`` (a compound of ``head``, ``traj`` and ``data`` a readout) and
``xml``. Headers are read at once and samples when their slices are asked for, through :mod:`upmri.formats.heap`. What
headers and XML say is told in :mod:`upmri.formats.acquisitions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import guard, heap
from upmri.formats.acquisitions import AcquisitionSource, columns, parse_header
from upmri.formats.grid import Ints
from upmri.formats.source import Source

READS = "ISMRMRD (MRD) raw data"
_XML_BYTES = 2**22
_GROUPS = 64


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Tell whether it is HDF5 with a group that holds ``data`` and ``xml``."""
    if not guard.is_hdf5(path):
        return False
    with guard.open_hdf5(path) as file:
        return bool(_groups(file))


def open_source(path: Path, max_bytes: int) -> Source:
    """Open an ISMRMRD file."""
    return MrdSource(path, max_bytes)


def _groups(file: Any) -> list[str]:
    from h5py import Group, h5l

    root, found = file["/"], []
    for name in islice(root.id, _GROUPS):
        if root.id.links.get_info(name).type == h5l.TYPE_HARD:  # others could lead to another file
            node = root[name]
            if isinstance(node, Group) and all(node.id.links.exists(part) for part in (b"data", b"xml")):
                found.append(name.decode(errors="replace"))
    return found


class MrdSource(AcquisitionSource):
    """An ISMRMRD file; headers are held, samples are read slice by slice."""

    format = "ISMRMRD"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        xml, elements, self._type, note = _contents(path, max_bytes)
        self._meta |= {"group": note} if note else {}
        self._references = elements["data"].copy()  # without the headers, which would stay with a view
        self._sort(parse_header("xml", xml), columns(elements["head"]))

    def _gather(self, rows: Ints, samples: int) -> NDArray[np.complex64]:
        with heap.Heap(self.path) as stored:
            values = stored.gather(self._references[rows], self._type, (self.coils, 2 * samples))
        return values.astype(np.float32, copy=False).view(np.complex64)

    def close(self) -> None:
        """Nothing is held between reads."""


def acquisitions(path: Path, max_bytes: int) -> tuple[bytes, NDArray[Any], Iterator[bytes]]:
    """Return all of a file as it is, to be sent elsewhere: the XML, the headers, and one by one their samples."""
    with guard.naming(path):
        xml, elements, kind, _ = _contents(path, max_bytes)

    def samples() -> Iterator[bytes]:
        with guard.naming(path), heap.Heap(path) as stored:
            for reference in elements["data"]:
                guard.check_bytes("a readout", int(reference["length"]) * kind.itemsize, max_bytes)
                raw = stored.take(reference, kind.itemsize)
                yield np.frombuffer(raw, kind).astype("<f4", copy=False).tobytes()

    return xml, elements["head"], samples()


# --- what the file holds ----------------------------------------------------------------------------------------------


def _required(file: Any, name: str) -> Any:
    found = heap.dataset(file, name)
    if found is None:
        raise InputError(f"{name}: expected a dataset, there is none")
    return found


def _contents(path: Path, max_bytes: int) -> tuple[bytes, NDArray[Any], np.dtype[Any], str]:
    """Return the XML, the elements of ``data``, the type of their samples, and which group of several it is."""
    with guard.open_hdf5(path) as file, heap.Heap(path) as stored:
        groups = _groups(file)
        group = "dataset" if "dataset" in groups else groups[-1]
        xml = _xml(file, f"{group}/xml", stored)
        data = _required(file, f"{group}/data")
        kind = _sample_type(data)
        note = f"{group}, one of {len(groups)}" if len(groups) > 1 else ""
        return xml, heap.elements(data, stored, max_bytes), kind, note


def _xml(file: Any, name: str, stored: heap.Heap) -> bytes:
    data = _required(file, name)
    if data.shape != (1,) or data.dtype.names is not None:
        raise InputError(f"{name}: expected one XML text")
    element = heap.elements(data, stored, _XML_BYTES)[0]
    if heap.plain(data.dtype) == heap.REFERENCE:
        guard.check_bytes(name, int(element["length"]), _XML_BYTES)
        element = stored.take(element, 1)
    return bytes(element)


def _sample_type(data: Any) -> np.dtype[Any]:
    """Return the type of the samples, complex numbers as pairs of float32."""
    import h5py

    names = data.dtype.names or ()
    base = h5py.check_vlen_dtype(data.dtype["data"]) if "data" in names else None
    if "head" not in names or base is None or (base.kind, base.itemsize) != ("f", 4):
        raise InputError("data: expected ISMRMRD acquisitions, with a head and float32 of variable length as data")
    return np.dtype(base)
