"""NumPy's files: headers are checked, nothing is unpickled, no archive grows beyond what it declares."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from upmri import Scan, load
from upmri.formats import npy as npy_files


class Bomb:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def npy(shape: tuple[int, ...], descr: str = "<c8", body: bytes = b"") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + body


def test_pickles_are_never_loaded(tmp_path, refuse):
    bomb = np.array([Bomb(tmp_path / "owned")], dtype=object)
    np.save(tmp_path / "x.npy", bomb, allow_pickle=True)
    np.savez(tmp_path / "x.npz", kspace=bomb, allow_pickle=True)
    (tmp_path / "y.npy").write_bytes(pickle.dumps(bomb))
    refuse(tmp_path / "x.npy", "object", field="kspace")
    refuse(tmp_path / "x.npz", "object", field="kspace")
    refuse(tmp_path / "y.npy", "no scan in a known format")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("shape", "descr", "word"),
    [
        ((10**6, 1000, 1000), "<c8", "8000000000000"),
        ((2**40, 2**40, 2**40), "<c8", "cut short"),
        ((-4, -4, 4), "<c8", "(-4, -4, 4)"),
        ((4, 4, 4), "|O", "object"),
        ((4, 4, 4), "|V9", "|V9"),
        ((4, 4, 4), "<f8", "float64"),
    ],
)
def test_npy_headers_are_not_believed(tmp_path, shape, descr, word, refuse):
    (tmp_path / "x.npy").write_bytes(npy(shape, descr, b"\1" * 256))
    refuse(tmp_path / "x.npy", word, field="kspace")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("kspace.npy", npy(shape, descr, b"\1" * 256))
    refuse(tmp_path / "x.npz", word, field="kspace")


def test_a_zip_bomb_is_refused_by_what_it_declares(tmp_path, refuse):
    # 64 MiB of zeros in 64 KiB, behind a limit of 16 MiB.
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kspace.npy", npy((8, 1024, 1024), body=bytes(64 * 2**20)))
    refuse(tmp_path / "x.npz", "0.0156 GiB", field="kspace.npy", max_bytes=2**24)
    refuse(tmp_path / "x.npz", "64 times", field="kspace.npy")


@pytest.mark.parametrize(("sampled", "accepted"), [(1, False), (8, True)])
def test_more_than_64_times_what_is_stored_is_refused(tmp_path, gaussian, sampled, accepted, refuse):
    """Noise in some of 256 lines, and zeros, which compress to nothing; what is small may compress as it likes."""
    kspace = np.zeros((2, 1, 256, 512), np.complex64)  # 2 MiB
    kspace[:, :, :sampled] = gaussian(2, 1, sampled, 512)
    mask = np.broadcast_to((np.arange(256) < sampled)[:, None], (2, 256, 512))
    np.savez_compressed(tmp_path / "x.npz", kspace=kspace, mask=mask)
    Scan(kspace=kspace, mask=mask).save(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        del file["kspace"]
        file.create_dataset("kspace", data=kspace, chunks=(1, 1, 256, 512), compression="gzip")
    for path, field in ((tmp_path / "x.npz", "kspace.npy"), (tmp_path / "x.h5", "kspace")):
        if accepted:
            assert torch.equal(load(path).kspace, torch.from_numpy(kspace))
        else:
            refuse(path, "64 times", field=field)


def test_a_zip_that_lies_about_its_size_is_refused(tmp_path, refuse):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kspace.npy", npy((2, 64, 64), body=b"\1" * (2 * 64 * 64 * 8)))
    raw = (tmp_path / "x.npz").read_bytes()
    size = (len(npy((2, 64, 64))) + 2 * 64 * 64 * 8).to_bytes(4, "little")
    assert raw.count(size) == 2  # in the local header and in the directory
    (tmp_path / "x.npz").write_bytes(raw.replace(size, (500).to_bytes(4, "little")))
    refuse(tmp_path / "x.npz", field="kspace")
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kspace.npy", npy((4, 2, 64, 64), body=b"\1" * (2 * 64 * 64 * 8)))
    raw = (tmp_path / "x.npz").read_bytes()
    assert raw.count(size) == 2
    (tmp_path / "x.npz").write_bytes(raw.replace(size, (2**20).to_bytes(4, "little")))
    refuse(tmp_path / "x.npz", "65536", field="kspace")  # one slice is there, and is not repeated for the others


def test_odd_zip_entries_are_refused(tmp_path, refuse):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("kspace.npy", npy((1, 2, 2), body=b"\1" * 32))
    refuse(tmp_path / "x.npz", "numpy.savez", field="kspace.npy")


def test_parts_of_an_archive_are_those_of_its_arrays(tmp_path, gaussian):
    array = gaussian(5, 4, 3)
    np.savez(tmp_path / "x.npz", rows=array, columns=np.asfortranarray(array), none=np.ones((0, 3)))
    with npy_files.open_npz(tmp_path / "x.npz", 2**20) as archive:
        for name, order in (("rows", "C"), ("columns", "F")):
            header = npy_files.npz_header(archive, name)
            assert (header.shape, header.order, header.nbytes) == ((5, 4, 3), order, array.nbytes)
            np.testing.assert_array_equal(npy_files.read_npz(archive, header), array)
            np.testing.assert_array_equal(npy_files.read_npz(archive, header, slice(1, 5, 2)), array[1:5:2])
        assert npy_files.read_npz(archive, npy_files.npz_header(archive, "none")).shape == (0, 3)


def test_a_type_without_size_is_no_array_of_numbers(refused):
    with refused("<U0", field="name"):
        npy_files.npy_header("name", npy((3,), "<U0"), 10**6)
