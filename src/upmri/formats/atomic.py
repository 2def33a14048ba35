"""Atomic writing: a result appears complete under its name, or not at all. A failure of the disk is an InputError."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from upmri.core.errors import InputError
from upmri.formats import leftovers

Ours = Callable[[Path], bool]
"""Returns whether this program wrote a file."""


@contextmanager
def staged(path: Path, *, overwrite: bool, ours: Ours | None = None) -> Iterator[Path]:
    """Yield a path of the same name in a hidden folder beside it; what is written there is published together.

    A format of several files writes them side by side, or into a folder. An error, in the writing or in the
    publishing, leaves what was there before as it was. An ``OSError``, such as that of a full disk, becomes an
    :class:`InputError` with the path. What earlier processes left in the folder when they were killed is removed.

    Parameters
    ----------
    path
        Path of the result.
    overwrite
        Whether existing files may be replaced; otherwise they are an :class:`InputError`.
    ours
        Given when the result is a folder, which is then created here, empty. An existing folder is replaced only when
        this is true of all files in it; files of other programs are never removed.
    """
    check_writable(path, overwrite=overwrite, ours=ours)
    leftovers.remove(path.parent.absolute())
    with failures(path):
        stage = leftovers.make(path.parent)
        try:
            result = stage / "new" / path.name
            result.parent.mkdir()
            if ours is None:
                yield result
                files = sorted(result.parent.iterdir())
                for file in files:
                    _sync(file)
                _publish(files, path.parent, stage / "before", overwrite)
            else:
                result.mkdir()
                yield result
                for file in (*result.iterdir(), result):
                    _sync(file)
                _publish_folder(result, path, overwrite, ours)
        finally:
            shutil.rmtree(stage)
        _sync(path.parent)


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Within this context, an ``OSError`` in the writing of a path is an :class:`InputError` with that path."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be written: {_reason(error)}", path=path) from error


def _reason(error: OSError) -> str:
    """Return the words of the system, which a library may have wrapped in an error of its own."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return f"{error}; is the disk full?"  # NumPy gives only two numbers of bytes


def make_folder(path: Path) -> None:
    """Make a folder, with those above it, if it is not there yet."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InputError("expected a folder, it is a file", path=path) from error
    except OSError as error:
        raise InputError(f"the folder cannot be made: {error.strerror}", path=path) from error


def check_not_input(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write a path that is one of the files to be read, by this name or through a link.

    The two files of BART's format, .cfl and .hdr, count together.
    """
    taken = {state for name in inputs for part in _pair(name) if (state := _identity(part)) is not None}
    for part in _pair(path):
        if _identity(part) in taken:
            raise InputError("is an input, which is never overwritten; choose another name", path=part)


def _pair(path: Path) -> tuple[Path, ...]:
    pair = (".cfl", ".hdr")
    return tuple(path.with_suffix(suffix) for suffix in pair) if path.suffix.lower() in pair else (path,)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the numbers of device and file, which all names and links of a file share; None where there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def check_writable(path: Path, *, overwrite: bool, ours: Ours | None = None) -> None:
    """Refuse a path where a file, or with ``ours`` a folder, could not be written, before the work is done."""
    with failures(path):
        if not path.parent.is_dir():
            raise InputError(f"expected a folder that exists, there is no {path.parent}", path=path)
        _check_place(path)
    if ours is None:
        _check_free(path, overwrite)
        if path.suffix.lower() == ".cfl":  # its header is written beside it
            _check_free(path.with_suffix(".hdr"), overwrite)
    elif os.path.lexists(path):
        if not overwrite:
            raise _taken(path)
        _own(path, path, ours)


def _check_place(path: Path) -> None:
    """Raise the ``OSError`` that writing would end in, if the name is too long or the folder cannot be written."""
    with suppress(FileNotFoundError):
        path.lstat()
    if not os.access(path.parent, os.W_OK | os.X_OK):
        read_only = os.statvfs(path.parent).f_flag & os.ST_RDONLY if hasattr(os, "statvfs") else 0
        code = errno.EROFS if read_only else errno.EACCES
        raise OSError(code, f"{os.strerror(code)} in {path.parent}")


def _publish(files: list[Path], folder: Path, kept: Path, overwrite: bool) -> None:
    """Give each staged file its final name; when one cannot have it, give none, and put back what was ``kept``."""
    done: list[tuple[Path, Path | None]] = []  # a name given, and what had it before
    kept.mkdir()
    try:
        for file in files:
            target = folder / file.name
            _check_free(target, overwrite)
            before = _keep(target, kept / file.name)
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
    """Give a staged folder its final name; the folder that had it before is removed once that has succeeded."""
    check_writable(target, overwrite=overwrite, ours=ours)
    if not os.path.lexists(target):
        try:
            folder.rename(target)
        except OSError as error:
            if os.path.lexists(target):  # another program was faster
                raise _taken(target) from error
            raise
        return
    aside = leftovers.make(target.parent, kept=True)
    before = aside / target.name
    try:
        target.rename(before)
        files = _own(before, target, ours)  # once more, now that no other program knows its name
        folder.rename(target)
    except BaseException:
        if os.path.lexists(before):
            before.rename(target)  # if even that fails, it stays where it is, and the error has both names
        aside.rmdir()
        raise
    for file in files:  # these and no others
        file.unlink()
    before.rmdir()
    aside.rmdir()


def _own(folder: Path, name: Path, ours: Ours) -> list[Path]:
    """Return the files of a folder that this program made, by whatever name; any other is an error."""
    if folder.is_symlink() or not folder.is_dir():
        raise InputError("expected a folder to replace, it is a file or a link; choose another name", path=name)
    files = sorted(folder.iterdir())
    for file in files:
        if file.is_symlink() or not file.is_file() or not ours(file):
            raise InputError(
                f"is not replaced, because UPMRI did not write {file.name!r} in it; choose another name", path=name
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
        raise _taken(target) from error
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


def _taken(path: Path) -> InputError:
    return InputError("exists already; choose another name or use --overwrite (overwrite=True)", path=path)


def _check_free(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise InputError("expected the name of a file, it is a folder", path=path)
    if not overwrite and os.path.lexists(path):
        raise _taken(path)


def _sync(path: Path) -> None:
    """Wait until it is on the disk, so that after a power cut no name is left without its content."""
    if path.is_dir() and os.name != "posix":
        return  # elsewhere a folder cannot be opened
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
