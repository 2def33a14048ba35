from __future__ import annotations

import struct
from pathlib import Path

import h5py
import numpy as np
import pytest

from upmri.formats import heap

KIND = np.dtype([("number", "<u2"), ("values", h5py.vlen_dtype(np.float32))])


def rows(count: int, length: int = 5):
    out = np.zeros(count, KIND)
    out["number"] = np.arange(count)
    for number in range(count):
        out["values"][number] = np.arange(length, dtype=np.float32) + 100 * number
    return out


def write(path: Path, data, **options) -> Path:
    file_options = {name: options.pop(name) for name in ("libver", "userblock_size") if name in options}
    with h5py.File(path, "w", **file_options) as file:
        file.create_dataset("x", data=data, **options)
    return path


def elements(path: Path):
    with h5py.File(path) as file, heap.Heap(path) as stored:
        return heap.find_records(file, "x").read(stored, 2**20)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("options", [{}, {"chunks": (1,)}, {"chunks": (3,)}, {"chunks": (40,)}])
@pytest.mark.parametrize("length", [1, 5, 3000])
def test_what_hdf5_wrote_is_found(tmp_path, libver, options, length):
    options = options | ({"maxshape": (None,)} if options else {})
    path = write(tmp_path / "x.h5", rows(20, length), libver=libver, **options)
    found = elements(path)
    np.testing.assert_array_equal(found["number"], np.arange(20))
    with heap.Heap(path) as stored:
        values = stored.gather(found["values"][3::4], np.dtype("<f4"), (length,))
        assert stored.take(found["values"][2], 4) == (np.arange(length, dtype="<f4") + 200).tobytes()
    np.testing.assert_array_equal(values, np.arange(length) + 100 * np.arange(20)[3::4, None])


def test_nothing_is_found_as_nothing(tmp_path):
    path = write(tmp_path / "x.h5", rows(3, 0))
    with heap.Heap(path) as stored:
        references = elements(path)["values"]
        assert stored.take(references[0], 4) == b""
        assert stored.gather(references, np.dtype("<f4"), (0,)).shape == (3, 0)


def test_a_user_block_is_refused(tmp_path, refused):
    path = write(tmp_path / "x.h5", rows(3), userblock_size=512)
    with refused("user block", field="x"):
        elements(path)


def collection(objects: bytes, size: int | None = None) -> bytes:
    return struct.pack("<4sB3xQ", b"GCOL", 1, 16 + len(objects) if size is None else size) + objects


def one(index: int, data: bytes = b"", size: int | None = None) -> bytes:
    return struct.pack("<HH4xQ", index, 1, len(data) if size is None else size) + data + bytes(-len(data) % 8)


def reference(length: int, address: int, index: int):
    return np.array([(length, address, index)], heap.REFERENCE)[0]


@pytest.mark.parametrize(
    ("content", "wanted", "word"),
    [
        (collection(one(1, b"abc")), (3, 1, 1), "to 1,"),
        (collection(one(1, b"abc")), (3, 2**63, 1), "beyond"),
        (collection(one(1, b"abc")), (3, 35, 1), "beyond"),
        (collection(one(1, b"abc")), (4, 0, 1), "object 1"),
        (collection(one(1, b"abc")), (3, 0, 2), "object 2"),
        (collection(one(1, b"abc")), (3, 0, 2**16 + 1), "object 65537"),
        (collection(one(0, b"abc")), (3, 0, 0), "object 0"),
        (collection(one(1, b"abc"), 2**40), (3, 0, 1), "to 0,"),
        (collection(one(1, b"abc"), 8), (3, 0, 1), "object 1"),
        (collection(one(1, b"abc", 2**64 - 1)), (3, 0, 1), "collection at 0"),
        (collection(one(1, b"abc", 2**40)), (3, 0, 1), "collection at 0"),
        (collection(one(2) + one(1, b"abc", 10)), (3, 0, 1), "collection at 0"),
    ],
)
def test_damaged_collections_are_refused(tmp_path, content, wanted, word, refused):
    (tmp_path / "x").write_bytes(content)
    with heap.Heap(tmp_path / "x") as stored, refused(word, field="variable-length data"):
        stored.take(reference(*wanted), 1)


def test_collections_upon_each_other_do_not_multiply_the_work(tmp_path, refused):
    # 2,000 collections, one in every object of the first: each would be walked to the end of the file.
    size, starts = 16 + 32 * 2000, [32 * number for number in range(1, 2001)]
    objects = b"".join(one(1, collection(b"", size - at)) for at in starts)
    (tmp_path / "x").write_bytes(collection(objects))
    with heap.Heap(tmp_path / "x") as stored, refused("overlap", field="variable-length data"):
        for at in starts[:-1]:
            assert stored.take(reference(4, at, 1), 1) == b"GCOL"
    assert stored._walked <= 2 * stored.size
