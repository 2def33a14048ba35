"""The filters of HDF5, against what the HDF5 library writes."""

from __future__ import annotations

import io
import zlib

import h5py
import numpy as np
import pytest

from upmri import InputError
from upmri.formats import hdf5_filters as filters


def written(data: bytes, itemsize: int = 1, **options: object) -> tuple[bytes, tuple[int, ...]]:
    """Return a chunk as the library stores it, and the filters that it has."""
    array = np.frombuffer(data, f"V{itemsize}")
    with h5py.File(io.BytesIO(), "w") as file:
        stored = file.create_dataset("x", data=array, chunks=array.shape, **options)
        file.flush()
        mask, raw = stored.id.read_direct_chunk((0,))
        plan = stored.id.get_create_plist()
        numbers = [plan.get_filter(at)[0] for at in range(plan.get_nfilters())]
    return raw, tuple(number for at, number in enumerate(numbers) if not mask >> at & 1)


def contents(kind: str, count: int) -> bytes:
    rng = np.random.default_rng(count)
    runs = count // 100 + 8  # of 150 bytes in the mean: more than enough
    values = {
        "zeros": np.zeros(count, "u1"),
        "ones": np.full(count, 255, "u1"),
        "noise": rng.integers(0, 256, count).astype("u1"),
        "runs": np.repeat(rng.integers(0, 256, runs), rng.integers(1, 300, runs))[:count].astype("u1"),
        "words": np.resize(np.frombuffer(b"abcabcdabcde" * 9 + bytes(40), "u1"), count),
    }
    assert len(values[kind]) == count
    return values[kind].tobytes()


@pytest.mark.parametrize("kind", ["zeros", "ones", "noise", "runs", "words"])
@pytest.mark.parametrize("count", [8, 24, 1000, 131072 + 8, 400_000])
@pytest.mark.parametrize("compression", ["gzip", "lzf", None])
def test_what_the_library_wrote_is_decoded(kind, count, compression):
    data = contents(kind, count)
    raw, used = written(data, 8, compression=compression, shuffle=True, fletcher32=True)
    assert filters.decode_chunk("x", raw, used, count, 8) == data


@pytest.mark.parametrize("count", [1, 2, 3, 4, 65535, 720, 721])
def test_the_checksum_is_that_of_the_library(count):
    """Also of an odd number of bytes, and as early versions of the library wrote it."""
    data = contents("noise", count)
    raw, used = written(data, fletcher32=True)
    assert used == (filters.FLETCHER32,)
    assert filters.decode_chunk("x", raw, used, count, 1) == data
    early = raw[:-4] + bytes(raw[at] for at in (-3, -4, -1, -2))
    assert filters.decode_chunk("x", early, used, count, 1) == data


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not gzip",
        zlib.compress(bytes(63)),
        zlib.compress(bytes(65)),
        zlib.compress(bytes(64))[:-1],
        zlib.compress(bytes(2**22)),
    ],
)
def test_gzip_of_another_length_is_refused(raw):
    assert filters.decode_chunk("x", zlib.compress(bytes(64)), (filters.GZIP,), 64, 1) == bytes(64)
    with pytest.raises(InputError) as error:
        filters.decode_chunk("x", raw, (filters.GZIP,), 64, 1)
    assert error.value.field == "x"


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x02ab", b"\x02abcd", b"\x00a\x20", b"\x00a\xe0", b"\x00a\xe0\x00", b"\x00a\x20\x01", b"\x00a\xe0\xff\x00"],
)
def test_damaged_lzf_is_refused(raw):
    assert filters.decode_chunk("x", b"\x00a\x40\x00", (filters.LZF,), 5, 1) == b"aaaaa"
    with pytest.raises(InputError) as error:
        filters.decode_chunk("x", raw, (filters.LZF,), 3, 1)
    assert error.value.field == "x"


@pytest.mark.parametrize("numbers", [(4,), (1, 1), (1, 32000), (32001,)])
def test_other_filters_are_refused(numbers):
    filters.check_filters("x", (2, 1, 3))
    with pytest.raises(InputError) as error:
        filters.check_filters("x", numbers)
    assert error.value.field == "x"


@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_the_longest_chunk_is_longer_than_what_does_not_compress(size):
    data = contents("noise", size)
    assert len(zlib.compress(data, 0)) <= filters.longest_chunk(size)
    assert size + -(-size // 32) <= filters.longest_chunk(size)  # LZF in runs of 32 bytes
