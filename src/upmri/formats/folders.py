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
            found = [p for p in _files_in(path, deep) if p.is_file()]
            files += [p for p in found if wanted is None or p.stem in wanted]
        elif path.is_file():
            files.append(path)
        else:
            raise InputError("expected a file or a folder, there is none", path=given)
    return files


def _files_in(folder: Path, deep: bool) -> list[Path]:
    """Return the visible files of a folder; one that cannot be listed is an error."""
    found, wrong = files_below(folder, deep=deep)
    if wrong:
        raise wrong[0]
    return found


def files_below(folder: Path, *, deep: bool = True) -> tuple[list[Path], list[InputError]]:
    """Return the visible files of a folder by their names, and an error for each folder that cannot be listed.

    Links to folders are followed, unless they lead back to a folder that they are in. A link that leads nowhere, or a
    name of which nothing is known, counts as a file: its reader says what is wrong, instead of nobody.

    Parameters
    ----------
    folder
        The folder.
    deep
        Whether its subfolders are searched, too.
    """
    found: list[Path] = []
    wrong: list[InputError] = []
    _search(folder, deep, (), found, wrong)
    return sorted(found), wrong


def _search(folder: Path, deep: bool, above: tuple[Path, ...], found: list[Path], wrong: list[InputError]) -> None:
    try:
        real = folder.resolve()
        inside = [] if real in above else [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    except OSError as error:
        wrong.append(InputError(f"the folder cannot be read: {error.strerror}", path=folder))
        return
    for path in inside:
        if os.path.isdir(path):  # noqa: PTH112  # unlike that of Path, False where it cannot be known
            if deep:
                _search(path, deep, (*above, real), found, wrong)
        elif os.path.isfile(path) or not os.path.exists(path):  # noqa: PTH110, PTH113
            found.append(path)


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
