"""Limits on what a client may send and ask for, and the error that names the limit that was exceeded."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError

_MIB = 2**20
_CONTAINER = Path("/sys/fs/cgroup/memory.max")  # the limit of a container, as the container sees it


def machine_memory() -> int:
    """Return the memory in bytes that this process may use: that of the machine, or less in a container."""
    memory = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no such file, or "max"
        memory = min(memory, int(_CONTAINER.read_text()))
    return memory


class RefusedError(InputError):
    """A stream that is ended: the message is for the client, the code for logs and counters.

    Messages may repeat what the client sent, so they are sent to the client and nowhere else.

    Parameters
    ----------
    code
        Reason in one word, such as ``"config"`` or ``"limit:coils"``.
    message, field, path
        As in :class:`~upmri.core.errors.InputError`.
    """

    def __init__(
        self, code: str, message: str, *, field: str | None = None, path: str | PathLike[str] | None = None
    ) -> None:
        super().__init__(message, field=field, path=path)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(RefusedError, field=self.field, path=self.path), (self.code, self.message)

    def within(self, *, field: str | None = None, path: str | PathLike[str] | None = None) -> RefusedError:
        """Return the same error as seen from outside, with the same code."""
        outer = InputError(self.message, field=self.field, path=self.path).within(field=field, path=path)
        return RefusedError(self.code, outer.message, field=outer.field, path=outer.path)


@dataclass(frozen=True)
class Limits:
    """Limits of the server; sizes in bytes, times in seconds.

    Parameters
    ----------
    clients, per_address
        Streams at once, from their XML header on: of all clients, and of one address. One more gets an error and is
        closed. An address may also have as many connections without a header; one more ends the oldest of them.
    samples, steps, adapt_steps
        Largest values of these settings that a client may ask for.
    message_bytes, text_bytes, xml_bytes
        One readout or waveform; one configuration or text; the XML header.
    stream_bytes, readouts
        Size of a whole stream.
    held_bytes
        Memory that a stream may use: lines of slices that are not complete, noise, calibration; for a method over
        time also complete frames, and in a worker k-space of the frames of one place.
    out_bytes
        Images that a client has not received yet; above it, the server stops reading from the client until it does.
    matrix, coils, frames
        Lines, partitions and samples without oversampling; receive coils; slices, repetitions and so on that were begun
        and are not complete, or are kept for a method over time.
    begin_seconds, idle_seconds, total_seconds
        Time from connecting to the XML header; for the next whole message, and for a client to receive what it is
        sent; for the whole stream.
    frame_seconds, work_seconds
        Time for the reconstruction of one slice, or of the frames of a place together, and of all slices of a stream;
        above it the worker is replaced.
    turn_seconds
        Time after which the reconstruction of a slice gives way if others wait, and is done again as a long one.
    linger_seconds, linger_bytes
        Time and bytes for which a client that was refused is still read, so that the error reaches it.
    drain_seconds
        Time from SIGTERM until streams that are still open are ended with an error.
    ahead
        Complete slices of one stream that may wait for the worker.
    """

    clients: int = 8
    per_address: int = 4
    samples: int = 16
    steps: int = 200
    adapt_steps: int = 200
    message_bytes: int = 64 * _MIB
    text_bytes: int = 64 * 2**10
    xml_bytes: int = 4 * _MIB
    stream_bytes: int = 2**40
    readouts: int = 10_000_000
    held_bytes: int = 2048 * _MIB
    out_bytes: int = 256 * _MIB
    matrix: int = 1024
    coils: int = 128
    frames: int = 10_000
    begin_seconds: float = 20.0
    idle_seconds: float = 120.0
    total_seconds: float = 7200.0
    frame_seconds: float = 900.0
    work_seconds: float = 3600.0
    turn_seconds: float = 10.0
    linger_seconds: float = 3.0
    linger_bytes: int = 256 * _MIB
    drain_seconds: float = 60.0
    ahead: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise InputError(f"expected a number above 0, got {value}", field=field.name)

    def changed(self, words: Iterable[str]) -> Limits:
        """Return these limits with some of them changed, each given as ``"coils=64"``."""
        kinds: dict[str, type[int] | type[float]] = {
            field.name: float if field.type == "float" else int for field in fields(self)
        }
        values: dict[str, float] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in kinds:
                raise InputError(f"{word!r} is not NAME=NUMBER with NAME one of {', '.join(kinds)}")
            try:
                values[name] = kinds[name](value)
            except ValueError as error:
                kind = "a number" if kinds[name] is float else "a whole number"
                raise InputError(f"expected {kind}, got {value!r}", field=name) from error
        return replace(self, **values)  # type: ignore[arg-type]

    def within_memory(self, memory: int, words: Iterable[str] = ()) -> Limits:
        """Return these limits, changed by words, such that all clients together use at most half of a memory.

        Each client may use ``(ahead + 2) · held_bytes + out_bytes``. Of its part of the memory ``out_bytes`` is at most
        an eighth. Limits that the words name are taken as they are.

        Parameters
        ----------
        memory
            Memory of the machine in bytes.
        words
            Changes, as in :meth:`changed`.
        """
        words = list(words)
        wanted = self.changed(words)
        each = memory // (2 * wanted.clients)
        out = min(wanted.out_bytes, each // 8)
        held = min(wanted.held_bytes, (each - out) // (wanted.ahead + 2))
        return replace(wanted, out_bytes=max(out, _MIB), held_bytes=max(held, _MIB)).changed(words)

    def check(self, name: str, value: float, what: str) -> None:
        """Refuse a value above the limit of that name."""
        limit = getattr(self, name)
        if value > limit:
            raise RefusedError(
                f"limit:{name}", f"{what}: {value:g} is more than this server's limit of {limit:g} ({name})"
            )
