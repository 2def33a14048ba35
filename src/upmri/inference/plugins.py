"""One function for a user's own methods and formats."""

from __future__ import annotations

from typing import TypeVar

from upmri.formats import Reader, Writer
from upmri.formats import register as register_format
from upmri.methods.base import Method
from upmri.methods.registry import register_method

T = TypeVar("T", bound="type[Method] | Reader | None")


def register(
    plugin: T = None,  # type: ignore[assignment]
    *,
    suffix: str | None = None,
    writer: Writer | None = None,
    complex_writer: Writer | None = None,
) -> T:
    """Make a method or a format available under its name in this program; usable as a decorator of a method's class.

    A package that is installed does the same with the entry points ``upmri.methods`` and ``upmri.formats``.

    Parameters
    ----------
    plugin
        A subclass of :class:`upmri.methods.Method`, or a reader: a module or an object with the names of
        :class:`upmri.formats.Reader`.
    suffix, writer, complex_writer
        Suffix of files, and the functions that write them; see :func:`upmri.formats.register`.

    Examples
    --------
    >>> import upmri
    >>> from dataclasses import dataclass
    >>> @upmri.register
    ... @dataclass(frozen=True)
    ... class Half(upmri.methods.Method):
    ...     name = "half"
    ...     summary = "half of the zero-filled image"
    ...     def reconstruct(self, problem):
    ...         return problem.adjoint / 2
    >>> "half" in upmri.methods()
    True
    """
    if isinstance(plugin, type) and issubclass(plugin, Method):
        register_method(plugin)
    else:
        register_format(plugin, suffix=suffix, writer=writer, complex_writer=complex_writer)
    return plugin
