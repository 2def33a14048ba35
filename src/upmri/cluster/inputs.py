"""Input files by their names and those of their folders, and a relative name for the output of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from upmri.core.errors import InputError
from upmri.formats.file_names import base_name, find_pair
from upmri.formats.folders import files_below
from upmri.formats.native import is_reconstruction

# Files in a folder of scans that are no scans; .hdr goes with its .cfl.
_OTHERS = (
    ".csv",
    ".hdr",
    ".htm",
    ".html",
    ".json",
    ".log",
    ".md",
    ".pdf",
    ".png",
    ".sh",
    ".tsv",
    ".txt",
    ".yaml",
    ".yml",
)
# Files of images, which `upmri recon` writes and `upmri simulate` reads; they have no k-space.
_IMAGES = (".nii", ".nii.gz", ".dcm")


def expand(paths: Sequence[Path], *, images: bool) -> tuple[list[tuple[Path, str]], list[InputError]]:
    """Return each file with a name for its output: the file's own name, below a folder with its subfolders.

    Parameters
    ----------
    paths
        Files (BART's also without suffix), and folders to search with all their subfolders; hidden files, texts and
        tables in them are left out.
    images
        Whether files of images in a folder count, too; otherwise they are left out, and so are reconstructions in
        .h5: those that were written into the folder of the scans are no scans.

    Returns
    -------
    tuple[list, list]
        Files with their names, each file once; and what is wrong with others: folders without files or that cannot be
        read, and files of which several would have the same output, of which none is returned.
    """
    found: list[tuple[Path, str]] = []
    wrong: list[InputError] = []
    for path in map(find_pair, paths):
        if os.path.isdir(path):  # noqa: PTH112  # False, and no error, in a folder that cannot be read
            found += _below(path, images, wrong)
        else:
            found.append((path, base_name(path)))
    named: dict[str, list[Path]] = {}
    for file, name in found:
        others = named.setdefault(name, [])
        if not any(_same(file, other) for other in others):
            others.append(file)
    wrong += [_several(files) for files in named.values() if len(files) > 1]
    return [(files[0], name) for name, files in named.items() if len(files) == 1], wrong


def _below(folder: Path, images: bool, wrong: list[InputError]) -> list[tuple[Path, str]]:
    """Return what :func:`expand` does of one folder, whose errors are added to ``wrong``."""
    others = _OTHERS if images else (*_OTHERS, *_IMAGES)
    files, unread = files_below(folder)
    wrong += unread
    inside = [file for file in files if not file.name.lower().endswith(others)]
    if not images:
        inside = [file for file in inside if file.suffix.lower() != ".h5" or not is_reconstruction(file)]
    if not inside and not unread:
        wrong.append(InputError(f"has no {'images' if images else 'scans'}", path=folder))
    return [(file, str(file.relative_to(folder).parent / base_name(file))) for file in inside]


def _same(file: Path, other: Path) -> bool:
    """Return whether two names are of one file."""
    try:
        return file.samefile(other)
    except OSError:  # one of them is not there
        return file.absolute() == other.absolute()


def _several(files: list[Path]) -> InputError:
    """Return the error of files that would be written to the same output."""
    first, second = files[:2]
    more = f", and so would {len(files) - 2} more" if len(files) > 2 else ""
    apart = "" if first.parent == second.parent else "give the folder above all, or "
    return InputError(
        f"would be written to the same file as {first}{more}, so none of them is; {apart}rename all but one, or do "
        "each alone, with a name of its own for what is written",
        field="SCAN", path=second,
    )  # fmt: skip
