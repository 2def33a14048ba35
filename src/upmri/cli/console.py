"""What the command line says: lines and tables, in which whatever came from a file is text and nothing but text."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

out = Console()
err = Console(stderr=True)
_LONGEST = 1000  # letters of a message


def table(*columns: str) -> Table:
    """A table with these columns."""
    made = Table(header_style="bold")
    for column in columns:
        made.add_column(column)
    return made


def listing(pairs: Iterable[tuple[str, Any]]) -> None:
    """Two columns on stdout: names, and what there is to say of them."""
    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        grid.add_row(Text(name), Text(plain(value) or "—"))
    out.print(grid)


def plain(value: Any) -> str:
    """What a file says, as one line of text that can do nothing to a terminal, and no longer than can be read."""
    if isinstance(value, dict):
        text = ", ".join(f"{key} {plain(item)}" for key, item in value.items())
    elif isinstance(value, list):
        text = ", ".join(map(plain, value))
    else:
        text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def say(text: str) -> None:
    """A line on stdout."""
    out.print(plain(text), markup=False, highlight=False, soft_wrap=True)


def complain(error: BaseException) -> None:
    """One line on stderr; whatever a file put into the message stays text."""
    if debugging():
        traceback.print_exception(error, file=sys.stderr)
    _tell(error, "red")


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A line on stderr, in the place of ``warnings.showwarning``."""
    _tell(message, "yellow")


@contextmanager
def warnings_told(*, quiet: bool) -> Iterator[None]:
    """Within it, warnings to users are lines on stderr, or nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "default", UserWarning)
        warnings.showwarning = warn
        yield


def _tell(message: object, style: str) -> None:
    err.print(f"upmri: {plain(str(message))}", style=style, markup=False, highlight=False, soft_wrap=True)


def debugging() -> bool:
    """Whether the whole traceback is wanted."""
    return "--debug" in sys.argv
