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


def refuse(path: Path, complaint: str, **options) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        load(path, **options)
    assert caught.value.path == str(path)
    assert "\n" not in str(caught.value)


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
    for error in (OSError("x\n\ny"), InputError("x\r\ny", field="a\nb"), MemoryError()):
        with pytest.raises(InputError, match="a  b: ") as caught, guard.naming(tmp_path / "a\n b"):
            raise error
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("error", [TypeError, KeyError, IndexError, RuntimeError, ValueError, AttributeError])
def test_errors_of_the_program_itself_are_not_taken_for_a_damaged_file(tmp_path, error):
    with pytest.raises(error) as caught, guard.naming(tmp_path / "x"):
        raise error("a bug")
    assert not isinstance(caught.value, InputError)


@pytest.mark.parametrize("error", [TypeError, KeyError, OSError, RuntimeError, ValueError, zlib.error, struct.error])
def test_errors_of_a_library_are_a_damaged_file(error):
    with pytest.raises(InputError, match="damaged") as caught, guard.library("kspace"):
        raise error("what a library says")
    assert caught.value.field == "kspace"
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


def test_too_little_memory_is_the_files_fault_not_a_traceback(tmp_path, scan, monkeypatch):
    scan.save(tmp_path / "x.h5")
    with open_source(tmp_path / "x.h5") as source:

        def exhausted(_keep):
            raise MemoryError

        monkeypatch.setattr(source, "_read", exhausted)
        with pytest.raises(InputError, match="too large for the memory of this machine"):
            source.read()
