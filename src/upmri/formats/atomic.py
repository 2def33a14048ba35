"""Writing that is whole or absent: what is asked for appears complete under its name, or nothing does."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from upmri.core.errors import InputError

Ours = Callable[[Path], bool]
"""Whether this program wrote a file."""


@contextmanager
def staged(path: Path, *, overwrite: bool, ours: Ours | None = None) -> Iterator[Path]:
    """Yield a path of the same name in a hidden folder beside; what is written there appears together, or not at all.

    A format of several files writes them side by side, or into a folder. An error, in the writing or in the
    publishing, leaves what was there before as it was.

    Parameters
    ----------
    path
        Where the result shall be.
    overwrite
        Whether files that are there already may be replaced; otherwise they are an :class:`InputError`.
    ours
        Given when the result is a folder, which is then made here, empty. A folder that is there already is replaced
        only when all it holds are files of which this is true; nobody else's files are ever removed.
    """
    check(path, overwrite=overwrite, ours=ours)
    stage = _hidden(path)
    try:
        result = stage / path.name
        if ours is None:
            yield result
            files = sorted(stage.iterdir())
            for file in files:
                _sync(file)
            _publish(files, path.parent, overwrite)
        else:
            result.mkdir()
            yield result
            for file in (*result.iterdir(), result):
                _sync(file)
            _publish_folder(result, path, overwrite, ours)
    finally:
        shutil.rmtree(stage)
    _sync(path.parent)


def check(path: Path, *, overwrite: bool, ours: Ours | None = None) -> None:
    """Tell before the work is done whether a file, or with ``ours`` a folder, could be written there."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: expected a folder that exists, there is no {path.parent}")
    if ours is None:
        _check_free(path, overwrite)
    elif os.path.lexists(path):
        if not overwrite:
            raise InputError(_taken(path))
        _own(path, path, ours)


def _hidden(path: Path) -> Path:
    """Make a hidden folder beside a path, on the same disk, so that moving between them is only a change of name."""
    try:
        return Path(tempfile.mkdtemp(prefix=".upmri-", dir=path.parent))
    except OSError as error:
        raise InputError(f"{path}: cannot write in {path.parent}: {error.strerror}") from error


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


def _publish_folder(folder: Path, target: Path, overwrite: bool, ours: Ours) -> None:
    """Give a staged folder its final name; what had it before goes aside, and is removed once that has succeeded."""
    check(target, overwrite=overwrite, ours=ours)
    if not os.path.lexists(target):
        try:
            folder.rename(target)
        except OSError as error:
            if os.path.lexists(target):  # another program was faster
                raise InputError(_taken(target)) from error
            raise
        return
    aside = _hidden(target)
    before = aside / target.name
    try:
        target.rename(before)
        files = _own(before, target, ours)  # once more, now that nobody knows its name
        folder.rename(target)
    except BaseException:
        if os.path.lexists(before):
            before.rename(target)  # if even that fails, it stays where it is, and the error tells both names
        aside.rmdir()
        raise
    for file in files:  # these and no others
        file.unlink()
    before.rmdir()
    aside.rmdir()


def _own(folder: Path, name: Path, ours: Ours) -> list[Path]:
    """Return the files of a folder that this program made, by whatever name; any other is an error."""
    if folder.is_symlink() or not folder.is_dir():
        raise InputError(f"{name}: expected a folder to replace, it is a file or a link; choose another name")
    files = sorted(folder.iterdir())
    for file in files:
        if file.is_symlink() or not file.is_file() or not ours(file):
            raise InputError(
                f"{name}: is not replaced, because UPMRI did not write {file.name!r} in it; choose another name"
            )
    return files


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
