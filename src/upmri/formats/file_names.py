"""Names of files: without the suffix of their format, and BART's pairs by the name that both have in common."""

from __future__ import annotations

import os
from pathlib import Path

# Suffixes of formats that are read or written; longer ones first.
_SUFFIXES = (
    ".nii.gz", ".ismrmrd", ".hdf5", ".cfl", ".dat", ".dcm", ".hdr", ".mat", ".mrd", ".nii", ".npy", ".npz", ".png",
    ".raw", ".h5",
)  # fmt: skip


def base_name(path: Path) -> str:
    """Return the name of a file without the suffix of its format: ``sub.01`` of ``sub.01.npy``."""
    name = path.name
    suffix = next((suffix for suffix in _SUFFIXES if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)] or name


def find_pair(path: Path) -> Path:
    """Return the .cfl file of a BART array that is named without suffix, as BART does; any other path as it is."""
    if not path.name or os.path.exists(path):  # noqa: PTH110  # False, and no error, in a closed folder
        return path
    pair = path.with_name(f"{path.name}.cfl")
    return pair if os.path.isfile(pair) else path  # noqa: PTH113
