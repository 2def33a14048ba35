"""HDF5 files of fastMRI, M4Raw, SKM-TEA, CMRxRecon, ISMRMRD and UPMRI, with changes to their contents and storage."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import h5py
import ismrmrd.hdf5
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from hostile.damage import JSON, Draw, Files, chance, damaged, noise, number, one_of, set_number, whole, xml_damaged
from hostile.hdf5_storage import attribute, drawn_changes, finished, opened, put
from hostile.siblings import sibling

# What h5py refuses to write is no file to read.
_NOT_WRITTEN = (TypeError, ValueError, OSError, RuntimeError, KeyError, OverflowError, IndexError)


def _written(draw: Draw, make: Any, *names: str) -> Files:
    try:
        return make(draw, *names)
    except _NOT_WRITTEN:
        assume(False)
        raise


def _fastmri(draw: Draw) -> Files:
    known, changes, buffer = sibling("fastmri"), drawn_changes(draw), io.BytesIO()
    slices = whole(draw, 1, 3)
    kspace = noise(slices, 2, known.READOUT, known.COLUMNS, seed=whole(draw, 0, 9))
    kspace[..., : known.LEFT] = kspace[..., known.RIGHT :] = 0
    xml = known.header()
    xml = xml_damaged(draw, xml) if "text" in changes else xml
    with opened(draw, buffer) as file:
        file["ismrmrd_header"] = one_of(draw, xml, np.bytes_(xml.encode("utf-8", "replace")))
        put(draw, file, "kspace", kspace, changes)
        if chance(draw, 50):
            put(draw, file, "reconstruction_rss", known.rss(kspace, known.ROWS, known.COLUMNS), changes - {"elsewhere"})
        file.attrs["acquisition"], file.attrs["max"], file.attrs["norm"] = "AXT2", 1.0, 1.5
        if "attribute" in changes:
            file.attrs[one_of(draw, "acquisition", "max", "norm", "upmri")] = attribute(draw)
    return finished(draw, "x.h5", buffer, kspace.shape, "raw" in changes)


def _m4raw(draw: Draw) -> Files:
    known, changes, buffer = sibling("m4raw"), drawn_changes(draw), io.BytesIO()
    slices = whole(draw, 1, 2)
    kspace = noise(slices, known.COILS, known.SIZE, known.SIZE, seed=whole(draw, 0, 9))
    kspace[..., : known.FIRST] = kspace[..., known.LAST :] = 0
    with opened(draw, buffer) as file:
        file["ismrmrd_header"] = known.HEADER
        put(draw, file, "kspace", kspace, changes)
        if chance(draw, 50):
            put(draw, file, "reconstruction_rss", known.rss(kspace), changes - {"elsewhere"})
        file.attrs["acquisition"] = "AXT2"
        if "attribute" in changes:
            file.attrs[one_of(draw, "acquisition", "max", "norm", "upmri")] = attribute(draw)
    return finished(draw, "2022061003_T201.h5", buffer, kspace.shape, "raw" in changes)


def _skmtea(draw: Draw) -> Files:
    changes, buffer = drawn_changes(draw), io.BytesIO()
    positions, ky, kz, echoes, coils = whole(draw, 1, 3), 8, 6, whole(draw, 1, 2), 2
    shapes = {
        "kspace": (positions, ky, kz, echoes, coils),
        "maps": (positions, ky, kz, coils, 1),
        "target": (positions, ky, kz, echoes, 1),
    }
    spoilt = one_of(draw, *shapes)
    with opened(draw, buffer) as file:
        for name, shape in shapes.items():
            put(draw, file, name, noise(*shape), changes if name == spoilt else set())
        if chance(draw, 50):
            put(draw, file, "masks/poisson_6.0x", np.ones((ky, kz), np.uint8), changes - {"elsewhere"})
        if "attribute" in changes:
            file.attrs["upmri"] = attribute(draw)
    return finished(draw, "MTR_005.h5", buffer, shapes["kspace"], "raw" in changes)


def _cmrxrecon(draw: Draw) -> Files:
    known, changes, buffer = sibling("cmrxrecon"), drawn_changes(draw), io.BytesIO()
    shape = (2, 2, 2, 12, 20)[whole(draw, 0, 2) :]
    name = one_of(draw, "kspace_full", "kspace_sub04", "kus", "kspace", "kspace_single_full", "mask", "Kspace")
    name = name if "value" in changes else "kspace_sub04"
    with opened(draw, buffer, userblock_size=one_of(draw, 512, 512, 512, 0)) as file:
        put(draw, file, name, known.pairs(noise(*shape)), changes)
        if "attribute" in changes:
            file.attrs[one_of(draw, "upmri", "MATLAB_class")] = attribute(draw)
        block = file.userblock_size
    mark = b"MATLAB 7.3 MAT-file, Platform: GLNXA64 HDF5 schema 1.00 .".ljust(124) + b"\0\2IM"
    return finished(draw, "x.mat", buffer, shape, "raw" in changes, mark if block else b"")


_SCAN = {"noise": 0.1, "spacing": [1.0, 2.0, 3.0], "name": "x", "meta": {"a": [1]}}
_RECONSTRUCTION = {"method": "m", "settings": {}, "seconds": 1.0, "versions": {}} | {
    key: _SCAN[key] for key in ("spacing", "name", "meta")
}


def _native(draw: Draw, kind: str = "scan") -> Files:
    changes, buffer = drawn_changes(draw), io.BytesIO()
    slices = whole(draw, 1, 3)
    kspace = noise(slices, 3, 8, 6)
    arrays = {"kspace": kspace, "mask": np.ones((slices, 1, 6), bool), "maps": kspace, "reference": kspace[:, 0]}
    if kind == "reconstruction":
        arrays = {"image": kspace[:, 0], "std": np.abs(kspace[:, 1]), "samples": np.stack([kspace[:, 0]] * 2)}
    first, *optional = list(arrays)
    header: Any = dict(_SCAN if kind == "scan" else _RECONSTRUCTION)
    if "value" in changes:
        key = one_of(draw, *header)
        header[key] = draw(JSON)
        if chance(draw, 20):
            header = one_of(draw, [], {}, header | {"x": 1}, {k: v for k, v in header.items() if k != key})
    text = json.dumps(header).encode("utf-8", "replace")
    text = damaged(draw, text) if "text" in changes else text
    spoilt = one_of(draw, *arrays)
    with opened(draw, buffer) as file:
        file.attrs["upmri"], file.attrs["version"] = np.bytes_(kind), 1
        file["header"] = np.bytes_(text)
        for name, array in arrays.items():
            if name in (first, "mask", spoilt) or chance(draw, 50):
                put(draw, file, name, array, changes if name == spoilt else set())
        if "attribute" in changes:
            file.attrs[one_of(draw, "upmri", "version")] = attribute(draw)
    return finished(draw, "x.h5", buffer, arrays[spoilt].shape, "raw" in changes)


def _mrd(draw: Draw) -> Files:
    known, changes, buffer = sibling("mrd"), drawn_changes(draw), io.BytesIO()
    coils, lines, samples = whole(draw, 1, 3), known.LINES, known.SAMPLES
    rows = np.zeros(lines + 1, ismrmrd.hdf5.acquisition_dtype)
    for line, row in enumerate(rows):
        head = row["head"]
        head["version"], head["number_of_samples"], head["center_sample"] = 1, samples, samples // 2
        head["active_channels"] = head["available_channels"] = coils
        head["sample_time_us"], head["idx"]["kspace_encode_step_1"] = 5.0, line % lines
        head["flags"] = 1 << 18 if line == lines else 0  # the last is a noise readout
        row["data"] = noise(coils * samples, seed=line).view(np.float32)
        row["traj"] = np.zeros(0, np.float32)
    if "value" in changes:
        for _ in range(whole(draw, 1, 3)):
            spoil_head(draw, rows["head"][whole(draw, 0, lines) if chance(draw, 70) else slice(None)])
    if "fill" in changes:
        rows["data"][whole(draw, 0, lines)] = np.full(one_of(draw, 0, 1, 2 * coils * samples), np.nan, np.float32)
    xml = known.xml()
    xml = xml_damaged(draw, xml) if "text" in changes else xml
    kind = np.dtype(
        [
            ("head", ismrmrd.hdf5.acquisition_header_dtype),
            ("traj", h5py.vlen_dtype("f4")),
            ("data", h5py.vlen_dtype("f4")),
        ]
    )
    with opened(draw, buffer) as file:
        group = file.create_group(one_of(draw, "dataset", "dataset", "other"))
        group.create_dataset("xml", data=np.array([xml], object), dtype=h5py.string_dtype(), maxshape=(None,))
        if changes & {"type", "elsewhere", "shape", "chunk"}:
            put(draw, file, f"{group.name[1:]}/data", noise(lines), changes & {"type", "elsewhere", "shape", "chunk"})
        else:
            filters = {"compression": "gzip"} if "filter" in changes else {}
            most, chunks = (None,), (one_of(draw, 1, 4, lines + 1),)
            group.create_dataset("data", data=rows.astype(kind), maxshape=most, chunks=chunks, **filters)
        if "attribute" in changes:
            file.create_group("later").attrs["x"] = attribute(draw)
            file["later/xml"], file["later/data"] = file[f"{group.name}/xml"], np.zeros(3)
    made = finished(draw, "x.h5", buffer, (lines + 1,), "raw" in changes)
    if "raw" in changes and chance(draw, 50):  # the references to samples: length, address, index
        data = bytearray(made["x.h5"])
        at = data.find(struct.pack("<I", 2 * coils * samples))
        if at >= 0:
            set_number(draw, data, at + one_of(draw, 0, 4, 12), one_of(draw, 4, 4, 8))
        made["x.h5"] = bytes(data)
    return made


def spoil_head(draw: Draw, head: Any) -> None:
    """Put an unexpected number into a header of a readout, or into all of them."""
    name = one_of(
        draw, "number_of_samples", "active_channels", "available_channels", "center_sample", "discard_pre",
        "discard_post", "encoding_space_ref", "flags", "sample_time_us", "position", "read_dir", "slice_dir", "idx",
        "trajectory_dimensions", "version",
    )  # fmt: skip
    if name == "idx":
        head, name = (
            head["idx"],
            one_of(draw, "kspace_encode_step_1", "kspace_encode_step_2", "slice", "repetition", "set"),
        )
    kind = head[name].dtype
    if kind.kind == "f":
        head[name] = one_of(draw, np.nan, np.inf, 0, -1, 1e38)
    elif name == "flags":
        head[name] = 1 << whole(draw, 0, 63)
    else:
        head[name] = number(draw, kind.itemsize, 6)


@st.composite
def fastmri(draw: Draw) -> Files:
    return _written(draw, _fastmri)


@st.composite
def m4raw(draw: Draw) -> Files:
    return _written(draw, _m4raw)


@st.composite
def skmtea(draw: Draw) -> Files:
    return _written(draw, _skmtea)


@st.composite
def cmrxrecon(draw: Draw) -> Files:
    return _written(draw, _cmrxrecon)


@st.composite
def native(draw: Draw) -> Files:
    return _written(draw, _native)


@st.composite
def reconstruction(draw: Draw) -> Files:
    return _written(draw, _native, "reconstruction")


@st.composite
def mrd(draw: Draw) -> Files:
    return _written(draw, _mrd)
