"""The hostile corpus: each file must be an InputError of one line, quickly and without touching anything else."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from upmri import InputError, Scan, load
from upmri.formats import guard, load_reconstruction, open_source


class Bomb:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def refuse(path: Path, complaint: str, **options) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        load(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


def npy(shape: tuple[int, ...], descr: str = "<c8", body: bytes = b"") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + body


def test_a_message_names_the_path_as_it_is_on_one_line(tmp_path):
    for name in ("a  b", " a\tb "):
        (tmp_path / name).write_bytes(b"\x93NUMPY")
        refuse(tmp_path / name, "damaged")
        refuse(tmp_path / f"{name}c", "no such file")
    (tmp_path / "a\n b").write_bytes(b"\x93NUMPY")
    for error in (ValueError("x\n\ny"), InputError("x\r\ny"), MemoryError()):
        with pytest.raises(InputError, match="a  b: ") as caught, guard.naming(tmp_path / "a\n b"):
            raise error
        assert len(str(caught.value).splitlines()) == 1


# --- any file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "the file is empty"),
        (b"just some text\n", "not a kind of file that is known; expected NumPy .* or HDF5"),
        (b"\0" * 5000, "not a kind of file that is known"),
        (b"\x93NUMPY", "damaged"),
        (b"\x93NUMPY\x03\x00" + b"\0" * 99, "expected version 1.0 or 2.0 of .npy, got 3.0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 10**5, "damaged"),
        (b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 0x76, "damaged"),
        (b"PK\x03\x04 and no more", "damaged"),
        (b"\x89HDF\r\n\x1a\n and no more", "damaged"),
        (b"\0" * 512 + b"\x89HDF\r\n\x1a\n and no more", "damaged"),
    ],
)
def test_what_is_no_scan_is_refused(tmp_path, content, complaint):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    refuse(path, complaint)


def test_what_is_no_file_is_refused(tmp_path):
    refuse(tmp_path / "absent.npy", "no such file")
    refuse(tmp_path, "expected a file, got a folder")
    refuse(Path(os.devnull), "expected a file, got a device")
    with pytest.raises(InputError, match="null"):
        load("a\0b")
    with pytest.raises(InputError, match="no such file"):
        load_reconstruction(tmp_path / "absent.h5")


def test_what_may_not_be_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.npy").write_bytes(npy((1, 2, 2), body=b"\1" * 32))

    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    refuse(tmp_path / "x.npy", "cannot be read: Permission denied")


@pytest.mark.parametrize("suffix", [".h5", ".npy", ".npz"])
def test_files_cut_short_are_refused_wherever_they_end(tmp_path, scan, suffix):
    path = tmp_path / f"x{suffix}"
    if suffix == ".h5":
        scan.save(path)
    elif suffix == ".npy":
        np.save(path, scan.kspace.numpy())
    else:
        np.savez_compressed(path, kspace=scan.kspace.numpy())
    whole = path.read_bytes()
    for length in (1, 7, 64, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refuse(path, "damaged|cut short|not a kind of file")


@pytest.mark.parametrize("suffix", [".h5", ".npy", ".npz"])
def test_files_with_bytes_overwritten_are_read_or_refused(tmp_path, scan, suffix):
    path = tmp_path / f"x{suffix}"
    if suffix == ".h5":
        scan.save(path)
    elif suffix == ".npy":
        np.save(path, scan.kspace.numpy())
    else:
        np.savez(path, kspace=scan.kspace.numpy(), noise=0.1)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(whole)
        for at in rng.integers(min(len(whole), 2000), size=3):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(InputError):
            load(path)


# --- NumPy ------------------------------------------------------------------------------------------------------------


def test_pickles_are_never_loaded(tmp_path):
    bomb = np.array([Bomb(tmp_path / "owned")], dtype=object)
    np.save(tmp_path / "x.npy", bomb, allow_pickle=True)
    np.savez(tmp_path / "x.npz", kspace=bomb, allow_pickle=True)
    (tmp_path / "y.npy").write_bytes(pickle.dumps(bomb))
    refuse(tmp_path / "x.npy", "kspace: expected an array of numbers, got object; pickled objects are never loaded")
    refuse(tmp_path / "x.npz", "expected an array of numbers, got (object|bool)|kspace: expected an array of numbers")
    refuse(tmp_path / "y.npy", "not a kind of file that is known")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("shape", "descr", "complaint"),
    [
        ((10**6, 1000, 1000), "<c8", r"cut short; the header declares 8000000000000 bytes of complex64"),
        ((2**40, 2**40, 2**40), "<c8", "cut short"),
        ((-4, -4, 4), "<c8", r"declares the impossible shape \(-4, -4, 4\)"),
        ((4, 4, 4), "|O", "pickled objects are never loaded"),
        ((4, 4, 4), "|V9", "expected a complex array|cut short"),
        ((4, 4, 4), "<f8", "expected a complex array|cut short"),
    ],
)
def test_npy_headers_are_not_believed(tmp_path, shape, descr, complaint):
    (tmp_path / "x.npy").write_bytes(npy(shape, descr, b"\1" * 256))
    refuse(tmp_path / "x.npy", complaint)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("kspace.npy", npy(shape, descr, b"\1" * 256))
    refuse(tmp_path / "x.npz", complaint)


def test_a_zip_bomb_is_refused_by_what_it_declares(tmp_path):
    # 64 MiB of zeros in 64 KiB, behind a limit of 16 MiB.
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kspace.npy", npy((8, 1024, 1024), body=bytes(64 * 2**20)))
    refuse(tmp_path / "x.npz", "kspace.npy: 0.0625 GiB, more than the limit of 0.0156 GiB", max_bytes=2**24)
    refuse(tmp_path / "x.npz", "kspace.npy: declares 671.* bytes, more than 64 times the 65.* that are stored")


@pytest.mark.parametrize(("sampled", "accepted"), [(1, False), (8, True)])
def test_more_than_64_times_what_is_stored_is_refused(tmp_path, gaussian, sampled, accepted):
    """Noise in some of 256 lines, and zeros, which compress to nothing; what is small may compress as it likes."""
    kspace = np.zeros((2, 1, 256, 512), np.complex64)  # 2 MiB
    kspace[:, :, :sampled] = gaussian(2, 1, sampled, 512)
    mask = np.broadcast_to((np.arange(256) < sampled)[:, None], (2, 256, 512))
    np.savez_compressed(tmp_path / "x.npz", kspace=kspace, mask=mask)
    Scan(kspace=kspace, mask=mask).save(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        del file["kspace"]
        file.create_dataset("kspace", data=kspace, chunks=(1, 1, 256, 512), compression="gzip")
    for path in (tmp_path / "x.npz", tmp_path / "x.h5"):
        if accepted:
            assert torch.equal(load(path).kspace, torch.from_numpy(kspace))
        else:
            refuse(path, "kspace(.npy)?: declares .* bytes, more than 64 times the")


def test_a_zip_that_lies_about_its_size_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kspace.npy", npy((2, 64, 64), body=b"\1" * (2 * 64 * 64 * 8)))
    raw = (tmp_path / "x.npz").read_bytes()
    size = (len(npy((2, 64, 64))) + 2 * 64 * 64 * 8).to_bytes(4, "little")
    assert raw.count(size) == 2  # in the local header and in the directory
    (tmp_path / "x.npz").write_bytes(raw.replace(size, (500).to_bytes(4, "little")))
    refuse(tmp_path / "x.npz", "damaged.*Bad CRC|cut short")
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kspace.npy", npy((4, 2, 64, 64), body=b"\1" * (2 * 64 * 64 * 8)))
    raw = (tmp_path / "x.npz").read_bytes()
    assert raw.count(size) == 2
    (tmp_path / "x.npz").write_bytes(raw.replace(size, (2**20).to_bytes(4, "little")))
    refuse(tmp_path / "x.npz", "damaged")  # one slice is there, and is not repeated for the others


def test_odd_zip_entries_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("kspace.npy", npy((1, 2, 2), body=b"\1" * 32))
    refuse(tmp_path / "x.npz", "kspace.npy: expected an entry as numpy.savez writes it")


# --- HDF5 -------------------------------------------------------------------------------------------------------------


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
    ("tamper", "complaint"),
    [
        (external_link, "kspace: leads to another file"),
        (external_link_behind_a_soft_link, "kspace: leads to another file"),
        (circle, "kspace: leads to another file, or in circles"),
        (external_storage, "kspace: its data lies in another file"),
        (virtual_dataset, "kspace: its data lies in another file"),
        (
            lambda f, _: f.create_dataset("kspace", (5, 3, 8, 6), h5py.vlen_dtype(np.float32)),
            "expected an array of num",
        ),
        (lambda f, _: f.create_dataset("kspace", (5, 3, 8, 6), "f4", scaleoffset=2), "expected no filters but gzip"),
        (lambda f, _: f.create_dataset("kspace", data=h5py.Empty("c8")), "expected an array of numbers"),
        (lambda f, _: f.create_dataset("kspace", (8, 6), "c8"), "kspace: expected a dataset of 4 axes"),
        (lambda f, _: f.create_dataset("kspace", (5, 2**20, 2**20, 2**20), "c8", chunks=True), "more than 64 times"),
    ],
)
def test_an_hdf5_file_leads_nowhere_else(victim, tamper, complaint):
    with h5py.File(victim, "r+") as file:
        del file["kspace"]
        tamper(file, victim.with_name("other.h5"))
    refuse(victim, complaint)


def test_soft_links_inside_the_file_are_followed(victim, scan):
    with h5py.File(victim, "r+") as file:
        group = file.create_group("deep/er")
        file.move("kspace", "deep/data")
        group["link"] = h5py.SoftLink("/deep/data")
        file["kspace"] = h5py.SoftLink("deep/./er/link")
    assert load(victim).kspace.equal(scan.kspace)


def test_chunks_larger_than_the_limit_are_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (1, 1), "u1", chunks=(2**15, 2**15), maxshape=(None, None), compression="gzip")
    with guard.open_hdf5(tmp_path / "x.h5") as file, pytest.raises(InputError, match="one chunk: 1 GiB"):
        guard.read(guard.dataset(file, "x"), max_bytes=2**20)


def test_chunks_that_inflate_beyond_their_shape_are_refused(tmp_path):
    bomb = zlib.compress(bytes(2**26), 9)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, side in (("small", 4), ("large", 2**10)):
            data = file.create_dataset(name, (2, side, side), "u1", chunks=(1, side, side), compression="gzip")
            data[0] = 1
            data.id.write_direct_chunk((1, 0, 0), bomb)
    with guard.open_hdf5(tmp_path / "x.h5") as file:
        for name in ("small", "large"):
            data = guard.dataset(file, name)
            assert (guard.read(data, slice(0, 1, 1), max_bytes=2**24) == 1).all()
            for keep in (None, slice(1, 2, 1)):
                with pytest.raises(InputError, match=f"/{name}: a compressed chunk holds more than"):
                    guard.read(data, keep, max_bytes=2**24)
        with pytest.raises(InputError, match="a compressed chunk holds more than the 16 bytes it declares"):
            guard.read(guard.dataset(file, "small"))  # longer packed than unpacked: told without unpacking


@pytest.mark.parametrize("filters", [{"compression": "gzip"}, {"compression": "lzf"}, {}])
def test_honest_compression_is_read(tmp_path, gaussian, filters):
    array = gaussian(3, 40, 50)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=array, chunks=(2, 30, 50), shuffle=True, fletcher32=True, **filters)
    with guard.open_hdf5(tmp_path / "x.h5") as file:
        data = guard.dataset(file, "x")
        assert (guard.read(data, max_bytes=2**16) == array).all()  # small enough for every chunk to be looked into
        assert (guard.read(data, slice(0, 3, 2), max_bytes=2**16) == array[::2]).all()
        assert guard.dataset(file, "y") is None
        assert guard.dataset(file, "x/y") is None


def test_hdf5_of_another_kind_is_not_ours(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=1024) as file:
        file["data"] = [1, 2, 3]
    refuse(tmp_path / "x.h5", "not a kind of file that is known")
    with pytest.raises(InputError, match=r"x\.h5: expected a reconstruction written by UPMRI, got other HDF5"):
        load_reconstruction(tmp_path / "x.h5")


def test_too_little_memory_is_the_files_fault_not_a_traceback(tmp_path, scan, monkeypatch):
    scan.save(tmp_path / "x.h5")
    with open_source(tmp_path / "x.h5") as source:

        def exhausted(_keep):
            raise MemoryError

        monkeypatch.setattr(source, "_read", exhausted)
        with pytest.raises(InputError, match="too large for the memory of this machine"):
            source.read()
