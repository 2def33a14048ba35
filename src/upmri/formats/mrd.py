"""ISMRMRD raw data, the HDF5 of MRD version 1: Cartesian readouts with a header each, and an XML text about all.

A group of the file, mostly ``dataset``, holds ``data`` (a compound of ``head``, ``traj`` and ``data`` a readout) and
``xml``. Headers are read when the file is opened, samples when their slices are read, through
:mod:`upmri.formats.heap`. What headers and XML mean is in :mod:`upmri.formats.acquisitions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats import guard, hdf5, heap
from upmri.formats.acquisitions import AcquisitionSource, header_columns
from upmri.formats.grid import Ints
from upmri.formats.mrd_header import MrdHeader
from upmri.formats.source import Acquisitions

READS = "ISMRMRD (MRD) raw data"
_XML_BYTES = 2**22
_PARTS = ("data", "xml")


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Return whether it is HDF5 with a group that holds ``data`` and ``xml``."""
    return hdf5.matches(path, lambda file: bool(hdf5.groups_with(file, *_PARTS)))


class MrdSource(AcquisitionSource):
    """An ISMRMRD file; headers are held, samples are read slice by slice."""

    format = "ISMRMRD"

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, max_bytes)
        xml, elements, self._type, note = _contents(path, max_bytes)
        self._meta |= {"group": note} if note else {}
        self._references = elements["data"].copy()  # without the headers, which would stay with a view
        self._sort(MrdHeader(xml, "xml"), header_columns(elements["head"]))

    def _gather(self, rows: Ints, samples: int) -> NDArray[np.complex64]:
        with heap.Heap(self.path) as stored:
            values = stored.gather(self._references[rows], self._type, (self.coils, 2 * samples))
        return values.astype(np.float32, copy=False).view(np.complex64)

    def acquisitions(self) -> Acquisitions:
        """Return all of the file as it is stored, to be sent."""
        with guard.naming(self.path):
            xml, elements, kind, _ = _contents(self.path, self.max_bytes)
            heads = _packed(elements["head"])

        def samples() -> Iterator[bytes]:
            with guard.naming(self.path), heap.Heap(self.path) as stored:
                for reference in elements["data"]:
                    guard.check_bytes("a readout", int(reference["length"]) * kind.itemsize, self.max_bytes)
                    raw = stored.take(reference, kind.itemsize)
                    yield np.frombuffer(raw, kind).astype("<f4", copy=False).tobytes()

        return Acquisitions(xml, heads, samples())


open_source = MrdSource


def _packed(heads: NDArray[Any]) -> NDArray[Any]:
    """Return headers in the byte layout of MRD messages; trajectories are not sent."""
    import ismrmrd

    out = np.zeros(len(heads), np.dtype(ismrmrd.AcquisitionHeader))
    _copy_fields(heads, out)
    out["trajectory_dimensions"] = 0
    return out


def _copy_fields(one: NDArray[Any], other: NDArray[Any]) -> None:
    for name in other.dtype.names or ():
        if name in (one.dtype.names or ()):
            if other.dtype[name].names:
                _copy_fields(one[name], other[name])
            elif one[name].shape == other[name].shape:
                other[name] = one[name]


# --- what the file holds ----------------------------------------------------------------------------------------------


def _required(file: Any, name: str) -> heap.Records:
    found = heap.find_records(file, name)
    if found is None:
        raise InputError("expected a dataset, there is none", field=name)
    return found


def _contents(path: Path, max_bytes: int) -> tuple[bytes, NDArray[Any], np.dtype[Any], str]:
    """Return the XML, the elements of ``data``, the type of their samples, and which group of several it is."""
    with hdf5.open_hdf5(path) as file, heap.Heap(path) as stored:
        groups = hdf5.groups_with(file, *_PARTS)
        if not groups:
            raise InputError("expected a group with data and xml, there is none")
        group = "dataset" if "dataset" in groups else groups[-1]
        xml = _xml(_required(file, f"{group}/xml"), stored)
        data = _required(file, f"{group}/data")
        kind = _sample_type(data)
        note = f"{group}, one of {len(groups)}" if len(groups) > 1 else ""
        return xml, data.read(stored, max_bytes), kind, note


def _xml(records: heap.Records, stored: heap.Heap) -> bytes:
    if records.count != 1 or records.dtype.names is not None:
        raise InputError("expected one XML text", field=records.name)
    element = records.read(stored, _XML_BYTES)[0]
    if heap.stored_type(records.name, records.dtype) == heap.REFERENCE:
        guard.check_bytes(records.name, int(element["length"]), _XML_BYTES)
        element = stored.take(element, 1)
    return bytes(element)


def _sample_type(data: heap.Records) -> np.dtype[Any]:
    """Return the type of the samples, complex numbers as pairs of float32."""
    import h5py

    names = data.dtype.names or ()
    base = h5py.check_vlen_dtype(data.dtype["data"]) if "data" in names else None
    if "head" not in names or base is None or (base.kind, base.itemsize) != ("f", 4):
        raise InputError(
            "expected ISMRMRD acquisitions, with a head and float32 of variable length as data", field=data.name
        )
    return np.dtype(base)
