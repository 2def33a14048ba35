"""Every file that cannot be used is an InputError of one line; errors of the program itself pass through."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from upmri import InputError, load
from upmri.formats import guard, load_reconstruction, open_source


def npy(shape: tuple[int, ...], descr: str = "<c8", body: bytes = b"") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + body


def test_a_message_names_the_path_as_it_is_on_one_line(tmp_path, refused, refuse):
    for name in ("a  b", " a\tb "):
        (tmp_path / name).write_bytes(b"\x93NUMPY")
        refuse(tmp_path / name, "damaged", field="kspace")
        refuse(tmp_path / f"{name}c", "no such file")
    (tmp_path / "a\n b").write_bytes(b"\x93NUMPY")
    for error, field in ((OSError("x\n\ny"), None), (InputError("x\r\ny", field="a\nb"), "a b"), (MemoryError(), None)):
        with refused(field=field, path=tmp_path / "a  b"), guard.naming(tmp_path / "a\n b"):
            raise error


@pytest.mark.parametrize("error", [TypeError, KeyError, IndexError, RuntimeError, ValueError, AttributeError])
def test_errors_of_the_program_itself_are_not_taken_for_a_damaged_file(tmp_path, error):
    with pytest.raises(error) as caught, guard.naming(tmp_path / "x"):
        raise error("a bug")
    assert not isinstance(caught.value, InputError)


@pytest.mark.parametrize("error", [TypeError, KeyError, OSError, RuntimeError, ValueError, zlib.error, struct.error])
def test_errors_of_a_library_are_a_damaged_file(error, refused):
    with refused("damaged", field="kspace") as caught, guard.library("kspace"):
        raise error("what a library says")
    assert isinstance(caught.value.__cause__, error)


def test_an_error_that_is_already_one_of_the_file_stays_as_it_is():
    with pytest.raises(InputError) as caught, guard.library("kspace"):
        raise InputError("expected more", field="mask")
    assert (caught.value.field, caught.value.message) == ("mask", "expected more")


def test_a_bug_in_a_reader_is_not_hidden(tmp_path, scan, monkeypatch):
    """Neither when a file is opened nor when it is read."""
    scan.save(tmp_path / "x.h5")

    def bug(*_args, **_kwargs):
        raise TypeError("a bug")

    with open_source(tmp_path / "x.h5") as source:
        monkeypatch.setattr(source, "_read", bug)
        with pytest.raises(TypeError, match="a bug"):
            source.read()
    monkeypatch.setattr("upmri.formats.native._contents", bug)
    with pytest.raises(TypeError, match="a bug"):
        open_source(tmp_path / "x.h5")


@pytest.mark.parametrize(
    ("content", "field", "word"),
    [
        (b"", None, "empty"),
        (b"just some text\n", None, "no scan in a known format"),
        (b"\0" * 5000, None, "no scan in a known format"),
        (b"\x93NUMPY", "kspace", "damaged"),
        (b"\x93NUMPY\x03\x00" + b"\0" * 99, "kspace", "3.0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 10**5, "kspace", "damaged"),
        (b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 0x76, "kspace", "damaged"),
        (b"PK\x03\x04 and no more", None, "damaged"),
        (b"\x89HDF\r\n\x1a\n and no more", None, "damaged"),
        (b"\0" * 512 + b"\x89HDF\r\n\x1a\n and no more", None, "damaged"),
    ],
)
def test_what_is_no_scan_is_refused(tmp_path, content, field, word, refuse):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    refuse(path, word, field=field)


def test_what_is_no_file_is_refused(tmp_path, refused, refuse):
    refuse(tmp_path / "absent.npy", "no such file")
    refuse(tmp_path, "folder")
    refuse(Path(os.devnull), "device")
    os.mkfifo(tmp_path / "pipe.npy")  # to open it would wait for a writer
    refuse(tmp_path / "pipe.npy", "pipe")
    with refused("null", path="a\0b"):
        load("a\0b")
    with refused("no such file", path=tmp_path / "absent.h5"):
        load_reconstruction(tmp_path / "absent.h5")


def test_what_may_not_be_read_is_refused(tmp_path, monkeypatch, refuse):
    (tmp_path / "x.npy").write_bytes(npy((1, 2, 2), body=b"\1" * 32))

    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("upmri.core.regular.os.open", denied)
    refuse(tmp_path / "x.npy", "Permission denied")


@pytest.mark.parametrize("suffix", [".h5", ".npy", ".npz"])
def test_files_cut_short_are_refused_wherever_they_end(tmp_path, scan, suffix, refuse):
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
        refuse(path, field="kspace" if suffix == ".npy" and length > 6 else None)  # 6 bytes show that it is NumPy's


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


def test_too_little_memory_is_the_files_fault_not_a_traceback(tmp_path, scan, monkeypatch, refused):
    scan.save(tmp_path / "x.h5")
    with open_source(tmp_path / "x.h5") as source:

        def exhausted(_keep):
            raise MemoryError

        monkeypatch.setattr(source, "_read", exhausted)
        with refused("memory", path=tmp_path / "x.h5"):
            source.read()


def test_what_is_too_large_for_single_precision_becomes_infinite():
    assert guard.single(np.array([1e300 + 0j, 1])).tolist() == [complex(np.inf, 0), 1]
    assert guard.single(np.array([2.0], ">f8"), np.float32).dtype == np.dtype("=f4")
    as_it_is = np.zeros(2, np.complex64)
    assert guard.single(as_it_is) is as_it_is
