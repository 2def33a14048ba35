"""Files by their names or those of their folders; of some subjects only, where ``splits.json`` lists them."""

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
        Names of files and folders.
    part
        Part of the data, such as "train"; of a folder only the files that ``splits.json`` beside it lists under it.
    deep
        Whether subfolders are searched, too.
    """
    files: list[Path] = []
    for name in names:
        given = Path(os.path.expandvars(name)).expanduser()
        path = given.absolute()
        if path.is_dir():
            wanted = None if part is None else _subjects(path, part)
            inside = path.rglob("*") if deep else path.iterdir()
            found = sorted(p for p in inside if p.is_file() and not _hidden(p.relative_to(path)))
            files += [p for p in found if wanted is None or p.stem in wanted]
        elif path.is_file():
            files.append(path)
        else:
            raise InputError("expected a file or a folder, there is none", path=given)
    return files


def _hidden(path: Path) -> bool:
    return any(name.startswith(".") for name in path.parts)


def _subjects(folder: Path, part: str) -> set[str]:
    file = folder.parent / "splits.json"
    try:
        splits: Any = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"expected a list of the files of {folder.name} under {part!r}", path=file) from error
    of_folder = splits.get(folder.name) if isinstance(splits, dict) else None
    subjects = of_folder.get(part) if isinstance(of_folder, dict) else None
    if not isinstance(subjects, list) or not all(isinstance(name, str) for name in subjects):
        raise InputError(f"expected a list of the files of {folder.name} under {part!r}", path=file)
    return set(subjects)
