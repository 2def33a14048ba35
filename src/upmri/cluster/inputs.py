"""Input files by their names and those of their folders, and a relative name for the output of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from upmri.core.errors import InputError
from upmri.formats.file_names import base_name, find_pair
from upmri.formats.folders import find_files
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


def expand(paths: Sequence[Path], *, images: bool) -> list[tuple[Path, str]]:
    """Return each file with a name for its output: the file's own name, below a folder with its subfolders.

    Parameters
    ----------
    paths
        Files (BART's also without suffix), and folders to search with all their subfolders; hidden files, texts and
        tables in them are left out.
    images
        Whether files of images in a folder count, too; otherwise they are left out, and so are reconstructions in
        .h5: those that were written into the folder of the scans are no scans.
    """
    others = _OTHERS if images else (*_OTHERS, *_IMAGES)
    found: list[tuple[Path, str]] = []
    for path in map(find_pair, paths):
        if not path.is_dir():
            found.append((path, base_name(path)))
            continue
        inside = [file for file in find_files([str(path)], deep=True) if not file.name.lower().endswith(others)]
        if not images:
            inside = [file for file in inside if file.suffix.lower() != ".h5" or not is_reconstruction(file)]
        if not inside:
            raise InputError("has no scans", path=path)
        root = path.absolute()
        below = [file.relative_to(root) for file in inside]  # named as the folder was: relative, if it was
        found += [(path / file, str(file.parent / base_name(file))) for file in below]
    names: dict[str, Path] = {}
    for file, name in found:
        if name in names:
            apart = "" if file.parent == names[name].parent else "give the folder above both, or "
            raise InputError(
                f"would be written to the same file as {names[name]}; {apart}rename one, or do each alone, with a name "
                "of its own for what is written",
                field="SCAN", path=file,
            )  # fmt: skip
        names[name] = file
    return found
