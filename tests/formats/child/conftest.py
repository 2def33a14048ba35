"""Files that misbehave in the process that reads them: their reader is a package that only that process can import.

The text of such a file is ``HOSTILE`` and the name of a function of the reader, called when the file is opened.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from upmri.core import fork_server

READER = """
    import ctypes, mmap, os, socket, struct, subprocess, time, warnings
    import numpy as np
    import torch
    from upmri import InputError, Scan
    from upmri.formats.source import Source

    READS = "hostile files"

    def recognise(path, head):
        return head.startswith(b"HOSTILE")

    class Hostile(Source):
        format, slices, coils, matrix, slice_bytes = "hostile", 3, 2, (4, 6), 384

        def __init__(self, path, max_bytes):
            super().__init__(path, max_bytes)
            self._words = path.read_text().split()[1:-1]
            name, *words = self._words
            if not name.startswith("read_"):
                globals()[name](*words)
            self._map = mmap.mmap(os.open(path, os.O_RDONLY), 0, access=mmap.ACCESS_READ)

        def _read(self, keep):
            name, *words = self._words
            if name.startswith("read_"):
                globals()[name](self, *words)
            count = len(range(keep.start, keep.stop, keep.step))
            kspace = torch.full((count, 2, 4, 6), float(keep.start + 1), dtype=torch.complex64)
            return Scan(kspace=kspace, name=self.name)

    open_source = Hostile

    def nothing(): pass
    def segv(): ctypes.string_at(0)
    def hang(): time.sleep(3600)
    def busy():
        while True: pass
    def flood(): held = [np.empty(2**27) for _ in range(1000)]
    def flood_torch(): held = [torch.empty(2**27) for _ in range(1000)]
    def warn(): warnings.warn("odd header", RuntimeWarning)
    def wrong(): raise InputError("expected something else", field="part")
    def bug(): raise TypeError("a mistake")
    def leave(): os._exit(3)
    def read_map(source): source._map[2**16]
    def read_late_crash(source): ctypes.string_at(0)

    def tried(what):
        try:
            raise InputError(f"it worked: {what()}")
        except OSError as error:
            raise InputError(f"refused: {error.strerror}")

    def network(): tried(lambda: socket.socket())
    def write(name): tried(lambda: open(name, "w"))
    def append(name): tried(lambda: open(name, "a"))
    def remove(name): tried(lambda: os.remove(name))
    def program(): tried(lambda: os.execv("/bin/true", ["true"]))
    def branch(): tried(lambda: os.fork())
    def signal_to(number): tried(lambda: os.kill(int(number), 0))
    def other(name): tried(lambda: open(name).read())
    def parents_environment(): tried(lambda: open(f"/proc/{os.getppid()}/environ").read())
    def environment(): raise InputError(" ".join(sorted(os.environ)))
    def place(): raise InputError(os.getcwd())

    def long_message():
        for number in range(3, 64):
            try: os.write(number, struct.pack("<I", 2**31))
            except OSError: pass
        time.sleep(3600)

    def no_message():
        for number in range(3, 64):
            try: os.write(number, struct.pack("<I", 4) + b"[1]]")
            except OSError: pass
        time.sleep(3600)
"""


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package with the reader."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "hostile_reader.py").write_text(textwrap.dedent(READER))
    about = folder / "hostile-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[upmri.formats]\nhostile = hostile_reader\n")
    return folder


@pytest.fixture(scope="session")
def _server(package: Path) -> Iterator[None]:
    """The process that forks, which can import the package; this one cannot."""
    fork_server.stop()
    patch = pytest.MonkeyPatch()
    patch.setattr(sys, "path", [str(package), *sys.path])
    patch.setenv("A_SECRET", "token")
    fork_server.start()
    patch.undo()
    yield
    fork_server.stop()


@pytest.fixture(autouse=True)
def _isolated(_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPMRI_TRUSTED", "0")


@pytest.fixture
def hostile(tmp_path: Path) -> Callable[..., Path]:
    """``hostile(*words)``: a file that calls this function when it is opened; ``read_…`` when it is read."""

    def write(*words: object, name: str = "scan.bad") -> Path:
        path = tmp_path / name
        path.write_text(" ".join(map(str, ("HOSTILE", *words))) + " " + "." * 2**17)
        return path

    return write
