"""The one error that means: what came in is wrong, and this is what would be right."""

from __future__ import annotations


class InputError(ValueError):
    """What the caller or a file supplied cannot be used; the message names the field and what was expected."""
