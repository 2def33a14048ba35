"""Files that are named, and those in folders that are; of some people only, where a list tells them apart."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError


def find_files(names: Sequence[str], part: str | None = None, *, deep: bool = False) -> list[Path]:
    """Find files by their names or their folders', with ``$VARIABLES`` and ``~`` in them.

    Parameters
    ----------
    names
        Files and folders.
    part
        Take of a folder only the files that ``splits.json`` beside it lists under this part.
    deep
        Search the folders' subfolders, too.
    """
    files: list[Path] = []
    for name in names:
        path = Path(os.path.expandvars(name)).expanduser().absolute()
        if path.is_dir():
            wanted = None if part is None else _people(path, part)
            inside = path.rglob("*") if deep else path.iterdir()
            found = sorted(p for p in inside if p.is_file() and not _hidden(p.relative_to(path)))
            files += [p for p in found if wanted is None or p.stem in wanted]
        elif path.is_file():
            files.append(path)
        else:
            raise InputError(f"{path}: expected a file or a folder, there is none")
    return files


def _hidden(path: Path) -> bool:
    return any(name.startswith(".") for name in path.parts)


def _people(folder: Path, part: str) -> set[str]:
    file = folder.parent / "splits.json"
    try:
        people: Any = json.loads(file.read_text())[folder.name][part]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: expected a list of the files of {folder.name} under {part!r}") from error
    return set(people)
