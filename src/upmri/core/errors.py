"""InputError: the input is wrong, and what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, TypeVar

Error = TypeVar("Error", bound=BaseException)


class InputError(ValueError):
    """The caller or a file supplied something that cannot be used.

    The text of the error is ``path: field: message``, without the parts that are not known.

    Parameters
    ----------
    message
        What was expected, and what was found instead.
    field
        The argument, setting or part of a file that is wrong, as ``"kspace"`` or ``"train.coils"``.
    path
        The file that is wrong.

    Examples
    --------
    >>> error = InputError("expected a complex array, got float32", field="kspace", path="scan.npy")
    >>> str(error)
    'scan.npy: kspace: expected a complex array, got float32'
    >>> error.field
    'kspace'
    """

    def __init__(self, message: str, *, field: str | None = None, path: str | PathLike[str] | None = None) -> None:
        super().__init__(message)
        self.message, self.field, self.path = message, field, None if path is None else str(path)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.path, self.field, self.message) if part)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.field, self.path)

    def within(self, *, field: str | None = None, path: str | PathLike[str] | None = None) -> InputError:
        """Return the same error as seen from outside: its field below ``field``, in the file ``path``.

        A path that is already known is kept, and so are notes.
        """
        inner = ".".join(part for part in (field, self.field) if part) or None
        return with_notes(type(self)(self.message, field=inner, path=self.path or path), self)


def with_notes(error: Error, other: BaseException) -> Error:
    """Return an error after adding the notes of another one to it."""
    for note in getattr(other, "__notes__", ()):
        error.add_note(note)
    return error


def as_input_error(error: BaseException) -> InputError:
    """Return an error as an InputError; the message of another one has its kind."""
    return error if isinstance(error, InputError) else InputError(f"{type(error).__name__}: {error}")


def first_of(errors: Sequence[InputError], what: str) -> InputError:
    """Return the first of some errors, with the number of the others; ``what`` they are of, such as "slices"."""
    first = errors[0]
    more = f"; {len(errors) - 1} other {what} failed, too" if len(errors) > 1 else ""
    return InputError(f"{first.message}{more}", field=first.field, path=first.path)


def _rebuild(kind: type[InputError], message: str, field: str | None, path: str | None) -> InputError:
    return kind(message, field=field, path=path)
