"""The content of a file as a short text: results of a file that was replaced are not taken for those of the new one."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from upmri.core.errors import InputError

# Files up to this size are read as a whole, larger ones in so many blocks, evenly spread. In bytes.
_WHOLE, _BLOCK, _BLOCKS = 64 << 20, 1 << 20, 16


def file_digest(path: Path) -> str:
    """Return a hash of the content of a file, the same under every name and on every machine.

    Of a file over 64 MiB it is the hash of its size and of 16 MiB of it.
    """
    try:
        state = path.stat()
        return _digest(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error


@lru_cache(maxsize=4096)
def _digest(path: Path, size: int, _changed: int) -> str:
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= _WHOLE:
            found.update(file.read())
        else:
            for i in range(_BLOCKS):
                file.seek(i * (size - _BLOCK) // (_BLOCKS - 1))
                found.update(file.read(_BLOCK))
    return found.hexdigest()[:24]
