"""Hidden folders for results in the making, and the removal of those that killed processes left behind.

A folder is named ``.upmri-MACHINE-PROCESS-RANDOM``. It is a leftover when its process has ended, or when it is older
than a day, which is longer than any writing takes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

_NAME = re.compile(r"\.upmri-(kept-)?([0-9a-f]{8})-([0-9]+)-[a-z0-9_]{8}")
_EARLIER_NAME = re.compile(r"\.upmri-[a-z0-9_]{8}")  # of earlier versions, without a process
_OLD = 24 * 3600.0  # seconds


def make(folder: Path, *, kept: bool = False) -> Path:
    """Make a hidden folder of this process in a folder, on the same disk: moving between them only changes a name.

    Parameters
    ----------
    folder
        Folder of the result.
    kept
        Whether it is for a folder that is being replaced, which :func:`remove` puts back if its name is free.
    """
    return Path(tempfile.mkdtemp(prefix=f".upmri-{'kept-' if kept else ''}{machine()}-{os.getpid()}-", dir=folder))


@lru_cache(maxsize=256)  # once for each folder: a cache of slices may have many files
def remove(folder: Path) -> None:
    """Remove what killed processes left in a folder; what cannot be removed stays."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name.startswith(".upmri-") and _is_leftover(path):
                _remove(path)


def _remove(leftover: Path) -> None:
    if leftover.name.startswith(".upmri-kept-"):
        for before in leftover.iterdir():
            if not os.path.lexists(target := leftover.parent / before.name):
                before.rename(target)  # the process was killed between taking the old folder away and naming the new
    shutil.rmtree(leftover, ignore_errors=True)


def _is_leftover(path: Path) -> bool:
    made = _NAME.fullmatch(path.name)
    if (made is None and _EARLIER_NAME.fullmatch(path.name) is None) or path.is_symlink() or not path.is_dir():
        return False
    if made is not None and made[2] == machine() and not runs(int(made[3])):
        return True
    try:
        return time.time() - path.stat().st_mtime > _OLD
    except OSError:
        return False


def runs(process: int) -> bool:
    """Return whether a process of this machine still runs."""
    if os.name != "posix":
        return True  # elsewhere the call would end the process
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return True


@cache
def machine() -> str:
    """Return a hash of where a process number means the same process: the machine, and in it the container."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]
