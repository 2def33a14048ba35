"""Writing that is whole or absent: what is asked for appears complete under its name, or nothing does."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from upmri.errors import InputError


@contextmanager
def staged(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a path of the same name in a hidden folder beside; what is written there appears together, or not at all.

    A format of several files writes them side by side. An error, in the writing or in the publishing, leaves what was
    there before as it was.

    Parameters
    ----------
    path
        Where the result shall be.
    overwrite
        Whether files that are there already may be replaced; otherwise they are an :class:`InputError`.
    """
    check(path, overwrite=overwrite)
    try:
        stage = Path(tempfile.mkdtemp(prefix=".upmri-", dir=path.parent))
    except OSError as error:
        raise InputError(f"{path}: cannot write in {path.parent}: {error.strerror}") from error
    try:
        yield stage / path.name
        files = sorted(stage.iterdir())
        for file in files:
            _sync(file)
        _publish(files, path.parent, overwrite)
    finally:
        shutil.rmtree(stage)
    _sync(path.parent)


def check(path: Path, *, overwrite: bool) -> None:
    """Tell before the work is done whether a file could be written there."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: expected a folder that exists, there is no {path.parent}")
    _check_free(path, overwrite)


def _publish(files: list[Path], folder: Path, overwrite: bool) -> None:
    """Give each staged file its final name; when one cannot have it, give none, and put back what was replaced."""
    done: list[tuple[Path, Path | None]] = []  # a name given, and what had it before
    try:
        for file in files:
            target = folder / file.name
            _check_free(target, overwrite)
            before = _keep(target, file.with_name(file.name + ".before"))
            if overwrite:
                file.replace(target)
            else:
                _claim(target, file)
            done.append((target, before))
    except BaseException:
        for target, before in done:
            if before is None:
                target.unlink()
            else:
                before.replace(target)
        raise


def _keep(target: Path, before: Path) -> Path | None:
    """Keep what a file is about to replace, if there is anything, under a second name."""
    if not target.exists():
        return None
    if not _link(target, before):
        shutil.copy2(target, before)
    return before


def _claim(target: Path, file: Path) -> None:
    """Name the file only if the name is free, even if another program takes it at this very moment."""
    try:
        if _link(file, target):
            return
        target.touch(exist_ok=False)
    except FileExistsError as error:
        raise InputError(_taken(target)) from error
    try:
        file.replace(target)
    except BaseException:
        target.unlink()
        raise


def _link(file: Path, name: Path) -> bool:
    """Give a file a second name; False where the file system cannot."""
    try:
        name.hardlink_to(file)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def _taken(path: Path) -> str:
    return f"{path}: exists already; choose another name or ask for --overwrite (overwrite=True)"


def _check_free(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise InputError(f"{path}: expected the name of a file, it is a folder")
    if not overwrite and os.path.lexists(path):
        raise InputError(_taken(path))


def _sync(path: Path) -> None:
    """Wait until it is on the disk, so that a name never outlives a power cut without its content."""
    if path.is_dir() and os.name != "posix":
        return  # elsewhere a folder cannot be opened
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
