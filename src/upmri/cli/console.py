"""Output of the command line: lines and tables. Text that came from a file is never interpreted as markup."""

from __future__ import annotations

import errno
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from upmri.core.errors import InputError, with_notes
from upmri.core.printable import one_line

_DISK = (errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG, errno.ENOSPC, errno.EPERM, errno.EROFS)

out = Console()
err = Console(stderr=True)
unwritten: OSError | None = None  # why stdout could not be written


class Ended(SystemExit):
    """The end of a command whose reason has been printed already."""


def table(*columns: str) -> Table:
    """Return an empty table with these columns."""
    made = Table(header_style="bold")
    for column in columns:
        made.add_column(column)
    return made


def listing(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and their values in two columns on stdout; blanks in front of a name indent it."""
    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        grid.add_row(Text(name[: len(name) - len(name.lstrip(" "))] + one_line(name)), Text(one_line(value) or "—"))
    _print(grid)


def say(text: str) -> None:
    """Print a line on stdout."""
    _print(one_line(text), markup=False, highlight=False, soft_wrap=True)


def _print(shown: Any, **options: Any) -> None:
    """Print on stdout. Where it cannot be written the work goes on, and :func:`upmri.cli.main` says why at its end."""
    global unwritten
    try:
        out.print(shown, **options)
    except OSError as error:
        unwritten, out.quiet = error, True
    except SystemExit as end:  # which Rich makes of a closed pipe
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        unwritten, out.quiet = end.__context__, True


def complain(error: BaseException) -> None:
    """Print an error with its notes as one line on stderr, with its traceback above when ``--debug`` was given."""
    if debugging():
        traceback.print_exception(error, file=sys.stderr)
    _print_message("; ".join([str(error), *getattr(error, "__notes__", ())]), "red")


def complain_of(error: Exception, path: Path | None = None) -> int:
    """Print what ended the work, with the file that was worked on; return the exit status that it stands for.

    It is 2 for wrong input, which includes a disk that is full or cannot be written, and 1 for an error in upmri
    itself, of which ``--debug`` shows where it was raised.
    """
    if isinstance(error, OSError) and error.errno in _DISK:
        error = with_notes(InputError(f"cannot be written or read: {error.strerror}", path=error.filename), error)
    if isinstance(error, InputError):
        complain(error.within(path=path).with_traceback(error.__traceback__))
        return 2
    named = "" if path is None else f"{path}: "
    shown = RuntimeError(f"{named}{type(error).__name__}: {error} (an error in upmri itself; --debug shows where)")
    shown.__cause__ = error
    complain(with_notes(shown, error))
    return 1


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line on stderr; has the signature of ``warnings.showwarning``."""
    _print_message(message, "yellow")


@contextmanager
def warnings_shown(*, quiet: bool) -> Iterator[None]:
    """Within this context, each ``UserWarning`` is one line on stderr, or nothing with ``quiet``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "default", UserWarning)
        warnings.showwarning = warn
        yield


def _print_message(message: object, style: str) -> None:
    err.print(f"upmri: {one_line(str(message))}", style=style, markup=False, highlight=False, soft_wrap=True)


def debugging() -> bool:
    """Return whether ``--debug`` was given, which asks for the whole traceback."""
    return "--debug" in sys.argv
