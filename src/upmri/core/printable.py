"""Text for people from values of any origin: one line, of limited length, without control characters."""

from __future__ import annotations

from typing import Any

_LONGEST = 1000  # characters


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
