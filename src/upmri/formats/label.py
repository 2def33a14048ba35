"""The description that every image file carries where its format has a field for text."""

from __future__ import annotations

_WARNING = " NOT FOR CLINICAL USE"


def describe(method: str, length: int) -> bytes:
    """Return what made the image and what it is not for, in at most ``length`` ASCII characters."""
    return f"UPMRI {method}"[: length - len(_WARNING)].encode("ascii", "replace") + _WARNING.encode()
