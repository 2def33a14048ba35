"""Opening of regular files, and of nothing else: a pipe can wait for ever, and a device can have no end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from upmri.core.errors import InputError


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises
    ------
    InputError
        For a folder, device, pipe or socket.
    OSError
        For a file that does not exist or may not be read.
    """
    # What was opened is checked, not the name, which could lead elsewhere a moment later. O_NONBLOCK: to open a pipe
    # would wait for a writer. It changes nothing for a regular file.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise InputError(f"expected a file, got {'a folder' if stat.S_ISDIR(mode) else 'a device or pipe'}", path=path)
    return os.fdopen(descriptor, "rb")
