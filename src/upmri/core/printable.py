"""Text for people from values of any origin: one line, of limited length, without control characters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

_LONGEST = 1000  # characters
_CLOSE = 0.78  # similarity of names from which one is taken for a slip of the other: one letter of five


def one_line(value: Any) -> str:
    """Return a value as one line of printable text.

    Values come from files, so they may hold anything: control characters, which could change a terminal, are replaced
    by U+FFFD, white space becomes single blanks, and text of more than 1000 characters is cut.

    Parameters
    ----------
    value
        Text, a number, None (gives ""), or a list or dictionary of such values.
    """
    if isinstance(value, dict):
        text = ", ".join(f"{key} {one_line(item)}" for key, item in value.items())
    elif isinstance(value, list):
        text = ", ".join(map(one_line, value))
    else:
        text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def slices_like(count: int) -> str:
    """Return how many slices a file has that goes with a scan of ``count`` slices: "1 slice or 8, as the scan has"."""
    return f"1 slice{f' or {count}' * (count != 1)}, as the scan has"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return "; did you mean sense?" for a name that is close to a known one, otherwise nothing."""
    close = difflib.get_close_matches(given.lower(), list(known), 1, _CLOSE)
    return f"; did you mean {close[0]}?" if close else ""
