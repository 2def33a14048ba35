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
                with refused("compressed", field=name):
                    data.read(*keep, max_bytes=2**24)
        with refused("16 bytes", field="small"):
            hdf5.find_array(file, "small").read(max_bytes=2**40)  # refused without unpacking


@pytest.mark.parametrize("filters", [{"compression": "gzip"}, {"compression": "lzf"}, {}])
def test_honest_compression_is_read(tmp_path, gaussian, filters):
    array = gaussian(3, 40, 50)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=array, chunks=(2, 30, 50), shuffle=True, fletcher32=True, **filters)
    with hdf5.open_hdf5(tmp_path / "x.h5") as file:
        data = hdf5.find_array(file, "x")
        assert (data.read(max_bytes=2**16) == array).all()  # small enough for every chunk to be looked into
        assert (data.read(slice(0, 3, 2), max_bytes=2**16) == array[::2]).all()
        assert hdf5.find_array(file, "y") is None
        assert hdf5.find_array(file, "x/y") is None


def test_hdf5_of_another_kind_is_not_ours(tmp_path, refused, refuse):
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=1024) as file:
        file["data"] = [1, 2, 3]
    refuse(tmp_path / "x.h5", "not a kind")
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
