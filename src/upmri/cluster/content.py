"""What a result depends on: the content of its input files, and a stamp of settings and weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError

_BLOCK = 1 << 20
# Files that belong to a scan beside the one that is named, by its suffix.
_PARTNERS = {".cfl": (".hdr",), ".hdr": (".cfl",)}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    sha = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                sha.update(block)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    return sha.hexdigest()


def stamp(facts: Any) -> str:
    """Return a hash of facts (JSON values; paths as text)."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def states(inputs: Iterable[str]) -> list[list[Any]]:
    """Return name, size, time of change and SHA-256 of each input file and its partners."""
    return [[*_state(path), digest(path)] for path in _files(inputs)]


def same(inputs: Iterable[str], known: list[list[Any]]) -> bool:
    """Return whether input files are as known: size and time are, or otherwise the content is."""
    files = _files(inputs)
    if [str(path) for path in files] != [name for name, *_ in known]:
        return False
    for path, (name, size, changed, sha) in zip(files, known, strict=True):
        now = _state(path)
        if now[1] != size or (now != [name, size, changed] and digest(path) != sha):
            return False
    return True


def _files(inputs: Iterable[str]) -> list[Path]:
    found: dict[Path, None] = {}
    for path in map(Path, inputs):
        found.setdefault(path)
        for suffix in _PARTNERS.get(path.suffix.lower(), ()):
            if (partner := path.with_suffix(suffix)).exists():
                found.setdefault(partner)
    return list(found)


def _state(path: Path) -> list[Any]:
    try:
        state = path.stat()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    return [str(path), state.st_size, state.st_mtime_ns]
