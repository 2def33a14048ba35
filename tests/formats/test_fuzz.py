"""Hostile files of every format, written by hand: each is refused in one line, soon, in little memory.

Damaged files by the thousand are in ``test_made_files.py``. What was found and corrected is at the end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import io
import os
import resource
import signal
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from upmri import InputError, Scan, cli, formats

LIMIT = 64 << 20  # bytes that a read may take
SECONDS = 60  # for one file; a busy machine may need several to import what reads it
HUGE = (2, 50, 10**5, 10**5)  # 8 TB of complex64


# --- one good file of every format ------------------------------------------------------------------------------------


def sibling(name: str) -> ModuleType:
    """The module of another format's tests, which knows how to write its files."""
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", Path(__file__).with_name(f"test_{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def noise(*shape: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def npy(folder: Path) -> Path:
    np.save(folder / "x.npy", noise(2, 3, 8, 6))
    return folder / "x.npy"


def npz(folder: Path) -> Path:
    kspace = noise(2, 3, 8, 6)
    np.savez_compressed(folder / "x.npz", kspace=kspace, maps=kspace, mask=np.ones((2, 1, 6), bool), spacing=[1, 2, 3])
    return folder / "x.npz"


def native(folder: Path) -> Path:
    Scan(kspace=noise(2, 3, 8, 6), maps=noise(2, 3, 8, 6), noise=0.1, meta={"a": [1]}).save(folder / "x.h5")
    return folder / "x.h5"


def fastmri(folder: Path) -> Path:
    write = sibling("fastmri")
    kspace = noise(2, write.COILS, write.READOUT, write.COLUMNS)
    kspace[..., : write.LEFT] = kspace[..., write.RIGHT :] = 0
    made = write.write(folder / "x.h5", kspace, reconstruction_rss=write.rss(kspace, write.ROWS, write.COLUMNS))
    return Path(made)


def cmrxrecon(folder: Path) -> Path:
    write = sibling("cmrxrecon")
    return Path(write.write(folder / "x.mat", "kspace_sub04", write.pairs(noise(2, 2, 2, 12, 20))))


def mrd(folder: Path) -> Path:
    write = sibling("mrd")
    readouts = write.readouts(write.measured(write.image(2, 8, 6)))
    silence = write.readout(noise(2, 16), flags=[write.ismrmrd.ACQ_IS_NOISE_MEASUREMENT])
    return Path(write.write(folder / "x.h5", [silence, *readouts]))


def bart(folder: Path) -> Path:
    return Path(sibling("bart").write(folder / "x.cfl", noise(8, 6, 1, 3)))


def twix(folder: Path) -> Path:
    write = sibling("twix")
    readouts = write.blocks(write.measured(write.image(2, 8, 6)))
    return Path(write.write(folder / "x.dat", write.protocol() + readouts + write.end()))


GOOD: dict[str, Callable[[Path], Path]] = {
    made.__name__: made for made in (npy, npz, native, fastmri, cmrxrecon, mrd, bart, twix)
}
HDF5 = ("native", "fastmri", "cmrxrecon", "mrd")
KSPACE = {"native": "kspace", "fastmri": "kspace", "cmrxrecon": "kspace_sub04", "mrd": "dataset/data"}


class TooLongError(BaseException):
    """Nothing that a reader catches."""


@contextlib.contextmanager
def deadline() -> Iterator[None]:
    """Stop what takes too long, and the whole process when that is inside a library, where no signal is heard."""

    def late(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, late)
    faulthandler.dump_traceback_later(3 * SECONDS, exit=True, file=sys.__stderr__)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def attempt(path: Path) -> str:
    """Read the first slice; return the message of the refusal, "" if it was read."""
    with deadline():
        try:
            with formats.open_source(path, max_bytes=LIMIT) as source:
                source.read(0)
        except InputError as error:
            assert error.path == str(path)
            assert len(str(error).splitlines()) == 1
            return str(error)
    return ""


def needs(kind: str) -> None:
    if kind == "twix":
        pytest.importorskip("twixtools")


@pytest.mark.parametrize("kind", GOOD)
def test_the_good_files_are_read(tmp_path, kind):
    needs(kind)
    assert attempt(GOOD[kind](tmp_path)) == ""


# --- hostile files ----------------------------------------------------------------------------------------------------


def lead_away(path: Path, name: str, other: Path, how: str) -> None:
    """Replace a dataset by one that lies in another file."""
    with h5py.File(path, "r+") as file:
        shape, dtype = file[name].shape, file[name].dtype
        del file[name]
        if how == "link":
            file[name] = h5py.ExternalLink(str(other), f"/{name}")
        elif how == "soft link":
            file["out"] = h5py.ExternalLink(str(other), "/")
            file[name] = h5py.SoftLink(f"/out/{name}")
        elif how == "storage":  # which cannot hold data of variable length, as MRD's is
            plain = "f4" if dtype.hasobject else dtype
            file.create_dataset(name, shape, plain, external=[(str(other), 0, h5py.h5f.UNLIMITED)])
        else:
            layout = h5py.VirtualLayout(shape, dtype)
            layout[:] = h5py.VirtualSource(str(other), name, shape)
            file.create_virtual_dataset(name, layout)


@pytest.mark.parametrize("how", ["link", "soft link", "storage", "virtual"])
@pytest.mark.parametrize("kind", HDF5)
def test_no_file_leads_to_another(tmp_path, kind, how):
    path = GOOD[kind](tmp_path)
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    if how == "storage" and kind != "mrd":  # true samples, so that following them would be a success
        other.write_bytes(noise(2, 8, 32, 22).tobytes())
    lead_away(path, KSPACE[kind], other, how)
    assert "another file" in attempt(path)


@pytest.mark.parametrize("kind", HDF5)
def test_no_group_or_text_leads_to_another_file(tmp_path, kind):
    path = GOOD[kind](tmp_path)
    (tmp_path / "other").write_bytes(path.read_bytes())
    name = {"native": "header", "fastmri": "ismrmrd_header", "cmrxrecon": KSPACE[kind], "mrd": "dataset"}[kind]
    with h5py.File(path, "r+") as file:
        del file[name]
        file[name] = h5py.ExternalLink(str(tmp_path / "other"), f"/{name}")
    assert attempt(path)


def huge_npy(path: Path, sparse: bool) -> Path:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<c8", "fortran_order": False, "shape": HUGE})
    path.write_bytes(header.getvalue() + bytes(64))
    if sparse:
        os.truncate(path, len(header.getvalue()) + 8 * 10**12)
    return path


def huge_npz(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kspace.npy", huge_npy(path.with_suffix(".part"), sparse=False).read_bytes())
    path.with_suffix(".part").unlink()
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 24, 2**32 - 2)  # as large as an entry can say it is
    path.write_bytes(data)
    return path


def huge_hdf5(path: Path, kind: str) -> Path:
    made = GOOD[kind](path.parent)
    shape = {"cmrxrecon": (1, *HUGE), "mrd": (10**10,)}.get(kind, HUGE)
    with h5py.File(made, "r+") as file:
        dtype = file[KSPACE[kind]].dtype
        del file[KSPACE[kind]]
        file.create_dataset(KSPACE[kind], shape, dtype, chunks=(1,) * len(shape))
    return made.rename(path)


def huge_mrd(path: Path) -> Path:
    write = sibling("mrd")
    most = write.xml(samples=16, lines=65535, partitions=65535, centre=0)
    return Path(write.write(path, write.readouts(noise(2, 6, 16), partition=1), most))


def huge_bart(path: Path) -> Path:
    path.with_suffix(".hdr").write_text(f"# Dimensions\n{10**4} {10**4} 1 {10**4}\n")
    path.touch()
    os.truncate(path, 8 * 10**12)
    return path


def huge_twix(path: Path) -> Path:
    write = sibling("twix")
    kspace = noise(2, 6, 16)
    far = write.block(kspace[:, 0], 65533, centre=(None, 0, 0), Par=65533)
    return Path(write.write(path, write.protocol() + far + write.end()))


def bomb_hdf5(path: Path, kind: str) -> Path:
    """A chunk of 2 GiB, in 2 MiB, that says it is of 16 KiB."""
    made = GOOD[kind](path.parent)
    squeeze = zlib.compressobj(9, wbits=-15)
    piece = squeeze.compress(bytes(2**24)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    chunk = b"\x78\xda" + 128 * piece + b"\x03\0" + struct.pack(">HH", 2**31 % 65521, 1)  # and the right checksum
    with h5py.File(made, "r+") as file:
        old = file[KSPACE[kind]]
        shape, dtype = old.shape, old.dtype
        del file[KSPACE[kind]]
        new = file.create_dataset(KSPACE[kind], shape, dtype, chunks=shape, compression=1)
        new.id.write_direct_chunk((0,) * len(shape), chunk)
    return made.rename(path)


def bomb_npz(path: Path) -> Path:
    """An array of 64 MiB, in 64 KiB, that says it is of 1 MiB."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<c8", "fortran_order": False, "shape": (1, 2, 256, 256)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kspace.npy", header.getvalue() + bytes(2**26))
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 24, len(header.getvalue()) + 2**20)
    path.write_bytes(data)
    return path


def cut(path: Path, kind: str) -> Path:
    made = GOOD[kind](path.parent)
    os.truncate(made, made.stat().st_size * 9 // 10)
    return made if kind == "bart" else made.rename(path)


def wrong_type(path: Path, kind: str) -> Path:
    made = GOOD[kind](path.parent)
    with h5py.File(made, "r+") as file:
        shape = file[KSPACE[kind]].shape
        del file[KSPACE[kind]]
        file[KSPACE[kind]] = np.ones(shape, np.int16)
    return made.rename(path)


def saved(path: Path, array: Any, **options: Any) -> Path:
    np.save(path, array, **options)
    return path


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


CORPUS: dict[str, Callable[[Path], Path]] = {
    "8 TB, declared.npy": lambda path: huge_npy(path, sparse=False),
    "8 TB, sparse.npy": lambda path: huge_npy(path, sparse=True),
    "8 TB.npz": huge_npz,
    "8 TB.cfl": huge_bart,
    "8 TB.dat": huge_twix,
    "8 TB, grid of mrd.h5": huge_mrd,
    **{f"8 TB, {kind}.h5": lambda path, kind=kind: huge_hdf5(path, kind) for kind in HDF5},
    "bomb.npz": bomb_npz,
    **{f"bomb, {kind}.h5": lambda path, kind=kind: bomb_hdf5(path, kind) for kind in HDF5[:3]},
    **{f"cut, {kind}": lambda path, kind=kind: cut(path, kind) for kind in GOOD},
    **{f"wrong type, {kind}.h5": lambda path, kind=kind: wrong_type(path, kind) for kind in HDF5},
    "float.npy": lambda path: saved(path, np.ones((2, 8, 6), np.float32)),
    "text.npy": lambda path: saved(path, np.full((2, 8, 6), "a")),
    "object.npy": lambda path: saved(path, np.full((2, 8, 6), {}, object), allow_pickle=True),
    "not finite.npy": lambda path: saved(path, np.full((2, 8, 6), np.nan + 0j)),
    "nothing sampled.npy": lambda path: saved(path, np.zeros((2, 8, 6), np.complex64)),
    "empty": lambda path: written(path, b""),
    "empty.h5": lambda path: written(path, b""),
    "empty.cfl": lambda path: written(path, b""),
    "text.txt": lambda path: written(path, b"k-space\n" * 99),
    "text.dat": lambda path: written(path, b"k-space\n" * 9999),
    "zeros.dat": lambda path: written(path, bytes(10**6)),
    "lonely.cfl": lambda path: written(path, bytes(800)),
    "folder.npy": folder,
    "folder": folder,
    "pipe.npy": pipe,
}


def hostile(name: str, where: Path) -> Path:
    needs("twix" if name in ("8 TB.dat", "cut, twix") else name)
    where.mkdir()
    return CORPUS[name](where / name)


def recon(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """What `upmri recon` exits with and says."""
    words = ["upmri", "recon", str(path), "-m", "zero-filled", "-o", str(path.parent.parent / "out.npy"), "--quiet"]
    monkeypatch.setattr(sys, "argv", words)
    capsys.readouterr()
    with deadline(), pytest.raises(SystemExit) as stop:
        cli.main()
    code = stop.value.code or 0
    assert isinstance(code, int)
    return code, *capsys.readouterr()


@pytest.mark.parametrize("name", CORPUS)
def test_a_hostile_file_is_one_line_and_exit_2(tmp_path, monkeypatch, capsys, name):
    path = hostile(name, tmp_path / "in")
    before = sorted(path.parent.iterdir())
    code, out, err = recon(path, monkeypatch, capsys)
    assert (code, out) == (2, ""), err
    assert err.startswith(f"upmri: {path}: ")
    assert err.count("\n") == 1
    assert not name.startswith("8 TB") or any(
        why in err for why in ("more than the limit", "more than 64 times", "cut short")
    )
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "in", *before]


def test_swapped_axes_are_another_scan_or_too_small_a_one(tmp_path, monkeypatch, capsys):
    (tmp_path / "in").mkdir()
    for number, axes in enumerate([(3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1), (0, 3, 2, 1)]):
        path = saved(tmp_path / "in" / f"{number}.npy", noise(2, 3, 8, 6).transpose(axes))
        code, _, err = recon(path, monkeypatch, capsys)
        assert (code, err.count("\n")) in ((0, 0), (2, 1)), err
        assert (tmp_path / "out.npy").exists() == (code == 0)
        (tmp_path / "out.npy").unlink(missing_ok=True)


# --- memory -----------------------------------------------------------------------------------------------------------


def within_two_gib(where: Path) -> None:
    """Read all the corpus, in a process that is allowed 2 GiB more than it has now."""
    paths = [hostile(name, where / str(number)) for number, name in enumerate(CORPUS)]
    (where / "first").mkdir()
    for kind, make in GOOD.items():  # imports what the readers do
        (where / "first" / kind).mkdir()
        assert attempt(make(where / "first" / kind)) == ""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2**31
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    messages = dict(zip(CORPUS, [attempt(path) for path in paths], strict=True))
    # A scan without samples is read; its reconstruction is refused.
    assert [name for name, message in messages.items() if not message] == ["nothing sampled.npy"]
    # Whoever asked for more than there is would be refused as well, by the system.
    assert not [text for text in messages.values() if "memory of this machine" in text or "llocate" in text]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB; half of what is allowed


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory, and where it is read, are Linux's")
def test_hostile_files_take_less_than_two_gib(tmp_path):
    pytest.importorskip("twixtools")
    code = """if True:
        import importlib.util, sys
        from pathlib import Path
        spec = importlib.util.spec_from_file_location("fuzz", sys.argv[1])
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.within_two_gib(Path(sys.argv[2]))
    """
    command = [sys.executable, "-c", code, __file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


# --- what was found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [7, 1.5, np.arange(3), h5py.Empty("S4"), h5py.Empty("f4"), np.bytes_(b"\xff")])
@pytest.mark.parametrize("name", ["upmri", "version"])
def test_a_mark_that_is_no_text_is_refused(tmp_path, name, value):
    path = native(tmp_path)
    with h5py.File(path, "r+") as file:
        file.attrs[name] = value
    assert attempt(path)


def test_a_chunk_of_no_bytes_is_refused(tmp_path):
    """The HDF5 library would crash: from a chunk with a checksum it subtracts the four bytes of it."""
    path = native(tmp_path)
    with h5py.File(path) as file:
        at = file["kspace"].id.get_chunk_info(1)
    raw = bytearray(path.read_bytes())
    entry = struct.pack("<II", at.size, 0)  # size and mask of filters, in the index of chunks
    assert raw.count(entry) == 4  # of two arrays with two slices
    place = raw.index(entry, raw.index(entry) + 1)
    raw[place : place + 4] = bytes(4)
    path.write_bytes(raw)
    with pytest.raises(InputError) as error:
        formats.load(path)
    assert error.value.path == str(path)
    assert error.value.field in ("kspace", "maps")
    assert "damaged" in error.value.message
