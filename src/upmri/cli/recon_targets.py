"""The output of each scan of `upmri recon`: one named file, or a file for each scan in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from upmri.cli import console
from upmri.core.errors import InputError

if TYPE_CHECKING:
    from upmri.cluster.perform import FileTask


def pair_targets(scans: list[Path], target: Path | None) -> tuple[list[tuple[Path, Path]], list[int]]:
    """Return each scan with its output: the file that was named, or one file for each scan in a folder.

    What is wrong with other scans is printed, as the second list has its exit statuses: those that can be done are
    done. Without any, the command ends.
    """
    from upmri.cluster.inputs import expand
    from upmri.formats import suffixes
    from upmri.formats.file_names import find_pair

    if target is not None and target.name.lower().endswith(suffixes()):  # a folder of DICOM files, too
        if len(scans) == 1 and scans[0].is_dir():
            raise InputError(f"expected a folder as --out for the scans of a folder, got {target}", path=scans[0])
        if len(scans) != 1:
            raise InputError(f"expected a folder for {len(scans)} scans, got one file, {target}", field="--out")
        return [(find_pair(scans[0]), target)], []
    if target is not None and target.suffix and not target.is_dir():
        raise InputError(
            f"expected a folder that exists, or a name that ends in {', '.join(suffixes())}, got {target}; a folder "
            "with a dot in its name is not made",
            field="--out",
        )  # fmt: skip
    found, wrong = expand(scans, images=False)
    ends = [console.complain_of(error) for error in wrong]
    if not found and wrong:
        raise console.Ended(2)
    return [(path, (target or Path()) / f"{name}.nii.gz") for path, name in found], ends


def without_existing(pairs: list[tuple[Path, Path]]) -> list[tuple[Path, Path]]:
    """Return the scans of several whose image does not exist yet: files appear complete, so the others are done."""
    return [(path, destination) for path, destination in pairs if not destination.exists()]


def make_folders(pairs: list[tuple[Path, Path]], target: Path | None) -> None:
    """Make the folders of the outputs, unless one file was named."""
    from upmri.formats import atomic

    if pairs[0][1] != target:  # a file that was named is in a folder that exists
        for folder in {target or Path(), *(destination.parent for _, destination in pairs)}:
            atomic.make_folder(folder)


def file_tasks(pairs: list[tuple[Path, Path]], folder: Path) -> list[FileTask]:
    """Return a task for each scan, with absolute names, as processes of other machines need them."""
    from upmri.cluster.perform import FileTask

    return [
        FileTask(str(destination.relative_to(folder)), (str(path.absolute()),), str(destination.absolute()))
        for path, destination in pairs
    ]
