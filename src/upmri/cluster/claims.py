"""Claims: of all processes that share a folder, one at a time works on a task.

A claim is a file ``NAME.ATTEMPT`` that only one process can create. Where the process of an attempt was lost, the next
attempt is a new file, so that two processes that find the same lost claim cannot both take it.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from upmri.formats import atomic, leftovers

BEAT = 20.0
"""Seconds between two signs of life of a claim."""
LOST = 150.0
"""Seconds without a sign of life after which a claim of another machine is lost."""


@dataclass(frozen=True)
class Claim:
    """A task that belongs to this process.

    Parameters
    ----------
    again
        Whether an earlier process was lost while it wrote the output, which may exist already.
    mark
        File that says that this process writes.
    """

    again: bool
    mark: Path

    def begin(self) -> None:
        """Say that this process writes from now on: an output that exists later is its own."""
        with atomic.failures(self.mark):
            self.mark.touch()


@contextmanager
def claimed(folder: Path, name: str) -> Iterator[Claim | None]:
    """Claim a task for this process until the end of the context; yield None if another process has it.

    Parameters
    ----------
    folder
        Folder of all claims.
    name
        Name of the task; it may have subfolders.
    """
    atomic.make_folder((folder / name).parent)
    attempt = _take(folder, name)
    if attempt is None:
        yield None
        return
    ended = threading.Event()
    beat = threading.Thread(target=_show_life, args=(_path(folder, name, attempt), ended), daemon=True)
    beat.start()
    try:
        marks = [_mark(folder, name, earlier) for earlier in range(attempt + 1)]
        yield Claim(any(mark.exists() for mark in marks), marks[-1])
    finally:
        ended.set()
        beat.join()
        for earlier in range(attempt, -1, -1):
            _mark(folder, name, earlier).unlink(missing_ok=True)
            _path(folder, name, earlier).unlink(missing_ok=True)


def _take(folder: Path, name: str) -> int | None:
    for attempt in itertools.count():
        path = _path(folder, name, attempt)
        with atomic.failures(path):
            try:
                number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            except FileExistsError:
                if not _lost(path):
                    return None
                continue
            with os.fdopen(number, "w") as file:
                json.dump(_me(), file)
        return attempt
    return None  # not reached


def _path(folder: Path, name: str, attempt: int) -> Path:
    return folder / f"{name}.{attempt}"


def _mark(folder: Path, name: str, attempt: int) -> Path:
    return folder / f"{name}.{attempt}.writing"


def _me() -> list[str | int]:
    return [leftovers.machine(), os.getpid(), _born(os.getpid())]


def _born(process: int) -> str:
    """Return when a process began, which a later one with the same number does not share; empty where unknown."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


def _lost(path: Path) -> bool:
    """Return whether the process of a claim has ended, or has shown no sign of life for long."""
    try:
        machine, process, born = json.loads(path.read_text())
        if machine == leftovers.machine():
            return not leftovers.runs(int(process)) or _born(int(process)) != born
    except FileNotFoundError:
        return False  # just released
    except (OSError, ValueError):
        pass  # it is being written, or its disk was full
    return _age(path) > LOST


def _age(path: Path) -> float:
    """Return the seconds since a file changed, by the clock of its disk: clocks of machines may differ."""
    probe = path.parent / f".clock-{leftovers.machine()}-{os.getpid()}-{threading.get_ident()}"
    try:
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
    except OSError:
        now = time.time()
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0


def _show_life(path: Path, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        with suppress(OSError):
            os.utime(path)
