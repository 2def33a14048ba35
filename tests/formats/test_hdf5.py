"""HDF5: no file leads to another, and no chunk grows beyond what it declares."""

from __future__ import annotations

import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from upmri import InputError, load
from upmri.formats import hdf5, load_reconstruction


@pytest.fixture
def victim(tmp_path, scan):
    """Two good scans: one to be tampered with, and one that it could lead to."""
    scan.save(tmp_path / "other.h5")
    scan.save(tmp_path / "x.h5")
    return tmp_path / "x.h5"


def external_link(file: h5py.File, other: Path) -> None:
    file["kspace"] = h5py.ExternalLink(str(other), "/kspace")


def external_link_behind_a_soft_link(file: h5py.File, other: Path) -> None:
    file["out"] = h5py.ExternalLink(str(other), "/")
    file["kspace"] = h5py.SoftLink("/out/kspace")


def circle(file: h5py.File, other: Path) -> None:
    file["a"], file["kspace"] = h5py.SoftLink("/kspace"), h5py.SoftLink("/a")


def external_storage(file: h5py.File, other: Path) -> None:
    file.create_dataset("kspace", (5, 3, 8, 6), np.complex64, external=[(str(other), 0, h5py.h5f.UNLIMITED)])


def virtual_dataset(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout((5, 3, 8, 6), np.complex64)
    layout[:] = h5py.VirtualSource(str(other), "kspace", (5, 3, 8, 6))
    file.create_virtual_dataset("kspace", layout)


@pytest.mark.parametrize(
    ("tamper", "word"),
    [
        (external_link, "leads to"),
        (external_link_behind_a_soft_link, "leads to"),
        (circle, "circles"),
        (external_storage, "lies in"),
        (virtual_dataset, "lies in"),
        (
            lambda f, _: f.create_dataset("kspace", (5, 3, 8, 6), h5py.vlen_dtype(np.float32)),
            "object",
        ),
        (lambda f, _: f.create_dataset("kspace", (5, 3, 8, 6), "f4", scaleoffset=2), "gzip"),
        (lambda f, _: f.create_dataset("kspace", data=h5py.Empty("c8")), "complex64"),
        (lambda f, _: f.create_dataset("kspace", (8, 6), "c8"), "4 axes"),
        (lambda f, _: f.create_dataset("kspace", (5, 2**20, 2**20, 2**20), "c8", chunks=True), "64 times"),
    ],
)
def test_an_hdf5_file_leads_nowhere_else(victim, tamper, word, refuse):
    with h5py.File(victim, "r+") as file:
        del file["kspace"]
        tamper(file, victim.with_name("other.h5"))
    refuse(victim, word, field="kspace")


def test_soft_links_inside_the_file_are_followed(victim, scan):
    with h5py.File(victim, "r+") as file:
        group = file.create_group("deep/er")
        file.move("kspace", "deep/data")
        group["link"] = h5py.SoftLink("/deep/data")
        file["kspace"] = h5py.SoftLink("deep/./er/link")
    assert load(victim).kspace.equal(scan.kspace)


def test_chunks_larger_than_the_limit_are_refused(tmp_path, refused):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (1, 1), "u1", chunks=(2**15, 2**15), maxshape=(None, None), compression="gzip")
    with hdf5.open_hdf5(tmp_path / "x.h5") as file, refused("1 GiB", field="x: one chunk"):
        hdf5.find_array(file, "x").read(max_bytes=2**20)


def test_chunks_that_inflate_beyond_their_shape_are_refused(tmp_path, refused):
    bomb = zlib.compress(bytes(2**26), 9)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, side in (("small", 4), ("large", 2**10)):
            data = file.create_dataset(name, (2, side, side), "u1", chunks=(1, side, side), compression="gzip")
            data[0] = 1
            data.id.write_direct_chunk((1, 0, 0), bomb)
    with hdf5.open_hdf5(tmp_path / "x.h5") as file:
        for name in ("small", "large"):
            data = hdf5.find_array(file, name)
            assert (data.read(slice(0, 1, 1), max_bytes=2**24) == 1).all()
            for keep in ((), (slice(1, 2, 1),), (1,)):
                with refused("chunk", field=name):
                    data.read(*keep, max_bytes=2**24)
        with refused("16 bytes", field="small"):
            hdf5.find_array(file, "small").read(max_bytes=2**40)  # refused without unpacking


def tamper(path: Path, stored: bytes, *, mask: int = 0, **filters: object) -> None:
    """Write two chunks of 4 KiB, and replace the second by these bytes."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", (2, 4096), "u1", chunks=(1, 4096), **filters)
        data[:] = 7
        data.id.write_direct_chunk((1, 0), stored, mask)


def read_back(path: Path, *part: int | slice) -> np.ndarray:
    with hdf5.open_hdf5(path) as file:
        return hdf5.find_array(file, "x").read(*part, max_bytes=2**20)


@pytest.mark.parametrize("short", [1, 512, 4095])
def test_a_chunk_that_inflates_to_less_shows_no_other_memory(tmp_path, short, refused):
    tamper(tmp_path / "x.h5", zlib.compress(bytes(4096 - short)), compression="gzip")
    assert (read_back(tmp_path / "x.h5", 0) == 7).all()
    for part in ((), (1,)):
        with refused("4096 bytes", field="x"):
            read_back(tmp_path / "x.h5", *part)


@pytest.mark.parametrize("stored", [b"\1", b"\1\2", b"\1\2\3", b"\1\2\3\4"])
@pytest.mark.parametrize("filters", [{}, {"compression": "gzip"}, {"shuffle": True}])
def test_a_chunk_shorter_than_its_checksum_is_refused(tmp_path, stored, filters, refused):
    tamper(tmp_path / "x.h5", stored, fletcher32=True, **filters)
    with refused("checksum", field="x"):
        read_back(tmp_path / "x.h5")


@pytest.mark.parametrize("short", [b"", b"\1", b"\1\2\3", b"\1\2\3\4", bytes(4096), bytes(4099)])
def test_a_checksum_inside_of_gzip_is_not_short_either(tmp_path, short, refused):
    """With fletcher32 before gzip, the library ends the process."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((1, 4096))
    plan.set_fletcher32()
    plan.set_deflate(1)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = h5py.h5d.create(file.id, b"x", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((2, 4096)), plan)
        h5py.Dataset(data)[:] = 7
        data.write_direct_chunk((1, 0), zlib.compress(short))
    assert (read_back(tmp_path / "x.h5", 0) == 7).all()
    with refused("4100 bytes", field="x"):
        read_back(tmp_path / "x.h5")


@pytest.mark.parametrize("stored", [bytes(4095), bytes(4097), b"\1"])
@pytest.mark.parametrize("filters", [{"compression": "gzip", "mask": 1}, {"shuffle": True}])
def test_a_chunk_that_is_not_compressed_has_its_declared_length(tmp_path, stored, filters, refused):
    tamper(tmp_path / "x.h5", stored, **filters)
    with refused("4096 bytes", field="x"):
        read_back(tmp_path / "x.h5")


def test_an_lzf_chunk_is_not_decoded_beyond_what_it_declares(tmp_path, refused):
    copies = b"\0\7" + b"\xe0\xff\0" * 1300  # 264 bytes each: 340 KB in 4 KB
    tamper(tmp_path / "x.h5", copies, compression="lzf")
    with refused("more than the 4096 bytes", field="x"):
        read_back(tmp_path / "x.h5")
    tamper(tmp_path / "x.h5", copies[:41], compression="lzf")
    with refused("not the 4096 bytes", field="x"):
        read_back(tmp_path / "x.h5")


def test_a_damaged_byte_is_found_by_the_checksum(tmp_path, refused):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (1, 4096), "u1", chunks=(1, 4096), fletcher32=True)[:] = 7
        _, raw = file["x"].id.read_direct_chunk((0, 0))
        file["x"].id.write_direct_chunk((0, 0), raw[:99] + b"\0" + raw[100:])
    with refused("checksum", field="x"):
        read_back(tmp_path / "x.h5")


def test_filters_that_a_chunk_does_not_have_are_not_undone(tmp_path):
    tamper(tmp_path / "x.h5", bytes(range(256)) * 16, mask=0b11, compression="gzip", shuffle=True)
    assert (read_back(tmp_path / "x.h5", 1) == np.tile(np.arange(256), 16)).all()


def test_many_large_chunks_of_a_small_array_are_refused(tmp_path, refused):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (200, 1), "u1", chunks=(1, 2**20), maxshape=(None, None), compression="gzip")
    with refused("200 ", field="x"):
        read_back(tmp_path / "x.h5")


@pytest.mark.parametrize("dtype", ["c8", ">c8", "f2", ">i2", "?", "c16", [("real", "f4"), ("imag", "f4")]])
@pytest.mark.parametrize("chunks", [(2, 3, 4), (1, 7, 9), (5, 7, 9), (3, 7, 1)])
def test_parts_are_those_that_h5py_reads(tmp_path, dtype, chunks):
    """Of chunks of every shape, some of which were never written and others extend beyond the edge."""
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("x", (5, 7, 9), dtype, chunks=chunks, compression="gzip", shuffle=True)
        data[1:4, 2:6] = rng.integers(0, 2**62, (3, 4, 9)).astype("i8").view("u1")[..., ::8].astype("?").astype(dtype)
        parts = [(), (2,), (slice(0, 5, 2),), (slice(1, 4, 1), 3), (slice(4, 5, 1), slice(0, 7, 3), slice(2, 9, 5))]
        parts += [(slice(2, 2, 1),), (0, 0, 0)]
        expected = [data[part] for part in parts]
    for part, array in zip(parts, expected, strict=True):
        found = read_back(tmp_path / "x.h5", *part)
        assert (found.dtype.newbyteorder("="), found.shape) == (array.dtype.newbyteorder("="), array.shape)
        np.testing.assert_array_equal(found, array)


def test_what_was_never_written_has_the_fill_value(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (4, 4), "f4", chunks=(2, 2), compression="gzip", fillvalue=5)[:2, :2] = 1
    assert read_back(tmp_path / "x.h5").tolist() == [[1, 1, 5, 5]] * 2 + [[5, 5, 5, 5]] * 2


def test_numbers_that_numpy_stores_otherwise_are_refused(tmp_path, refused):
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(31, 20, 11, 0, 20)  # an exponent of 11 bits
    with h5py.File(tmp_path / "x.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((3,)))
    with refused("numbers", field="x"):
        read_back(tmp_path / "x.h5")


@pytest.mark.parametrize("filters", [{"compression": "gzip"}, {"compression": "lzf"}, {}])
def test_honest_compression_is_read(tmp_path, gaussian, filters):
    array = gaussian(3, 40, 50)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=array, chunks=(2, 30, 50), shuffle=True, fletcher32=True, **filters)
    with hdf5.open_hdf5(tmp_path / "x.h5") as file:
        data = hdf5.find_array(file, "x")
        assert (data.read(max_bytes=2**16) == array).all()
        assert (data.read(slice(0, 3, 2), max_bytes=2**16) == array[::2]).all()
        assert hdf5.find_array(file, "y") is None
        assert hdf5.find_array(file, "x/y") is None


def test_hdf5_of_another_kind_is_not_ours(tmp_path, refused, refuse):
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=1024) as file:
        file["data"] = [1, 2, 3]
    refuse(tmp_path / "x.h5", "no scan in a known format")
    with refused("other HDF5", path=tmp_path / "x.h5"):
        load_reconstruction(tmp_path / "x.h5")


def test_a_part_is_that_of_the_array(tmp_path, gaussian):
    array = gaussian(4, 3, 5)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("a/b", data=array, chunks=(1, 3, 5), compression="gzip")
        file["one"] = np.float32(7)
    with hdf5.open_hdf5(tmp_path / "x.h5") as file:
        stored = hdf5.find_array(file, "a/b")
        assert (stored.name, stored.shape, stored.dtype, stored.nbytes) == ("a/b", (4, 3, 5), array.dtype, array.nbytes)
        np.testing.assert_array_equal(stored.read(2, slice(1, 3, 1), max_bytes=2**20), array[2, 1:3])
        assert hdf5.find_array(file, "one").read(max_bytes=4) == 7
        assert (hdf5.has_link(file, "one"), hdf5.has_link(file, "two")) == (True, False)
        with pytest.raises(InputError) as error:
            stored.read(max_bytes=array.nbytes - 1)
        assert error.value.field == "a/b"


def test_groups_are_those_that_hold_all_parts(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/data"], file["a/xml"], file["b/data"], file["data"] = 1, 2, 3, 4
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/a")
    with hdf5.open_hdf5(tmp_path / "x.h5") as file:
        assert hdf5.groups_with(file, "data", "xml") == ["a"]
        assert hdf5.groups_with(file, "data") == ["a", "b"]
    assert hdf5.matches(tmp_path / "x.h5", lambda file: hdf5.has_link(file, "data"))


def test_attributes_are_short_and_of_fixed_length(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        file.attrs["number"], file.attrs["text"], file.attrs["long"] = 3, "variable", np.zeros(9000)
        file.attrs["empty"] = h5py.Empty("f4")
    with hdf5.open_hdf5(tmp_path / "x.h5") as file:
        assert hdf5.short_attribute(file, "number") == 3
        assert hdf5.short_attribute(file, "none") is None
        for name in ("text", "long", "empty"):
            with pytest.raises(InputError) as error:
                hdf5.short_attribute(file, name)
            assert error.value.field == name


def test_a_file_of_countless_small_chunks_is_refused(victim, refuse):
    """Each takes far more memory and time than the number that it holds."""
    with h5py.File(victim, "r+") as file:
        del file["kspace"]
        made = file.create_dataset("kspace", (5, 3, 1024, 32), "c8", chunks=(1, 1, 1, 1))
        made[0, 0, :300] = 1
    refuse(victim, "491520 chunks", field="kspace")


@pytest.mark.parametrize("change", [-512, -1, 1, 512])
def test_a_chunk_without_filters_has_exactly_its_length(victim, refuse, change):
    """The HDF5 library would read a longer one over other memory, and fill up a shorter one with it."""
    with h5py.File(victim, "r+") as file:
        shape = file["kspace"].shape
        del file["kspace"]
        made = file.create_dataset("kspace", shape, "c8", chunks=shape)
        size = made.nbytes
        made.id.write_direct_chunk((0, 0, 0, 0), bytes(size + change))
    refuse(victim, f"{size} bytes is stored in {size + change}", field="kspace")
