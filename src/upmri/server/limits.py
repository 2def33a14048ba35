"""What a peer may ask for: every limit of the server, and the refusal that tells which one was hit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from upmri.core.errors import InputError

_MIB = 2**20


class RefusedError(InputError):
    """A stream that is not taken further: the message is for the peer, the code for logs and metrics.

    Messages may repeat what the peer sent, so they go to the peer and nowhere else.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Limits:
    """Limits of the server; sizes in bytes, times in seconds.

    Parameters
    ----------
    clients
        Connections at once; one more is told so and closed.
    message_bytes, text_bytes, xml_bytes
        One readout or waveform; one configuration or text; the XML header.
    stream_bytes, readouts
        All of a stream.
    held_bytes
        What a stream may have waiting in memory: lines of slices that are not complete, noise, calibration.
    out_bytes
        Images that a client has not taken yet; above it, its stream is read no further until it does.
    matrix, coils, frames
        Lines, partitions and samples without oversampling; receive coils; slices, repetitions, … that were begun and
        are not complete.
    begin_seconds, idle_seconds, total_seconds
        From connecting to the XML header; for the next message to arrive whole, and for a client to take what it is
        sent; for the whole stream.
    frame_seconds
        For the reconstruction of one slice; above it the worker is replaced.
    linger_seconds, linger_bytes
        How long, and how much, is still read of a peer that was refused, so that it gets to read why.
    drain_seconds
        From SIGTERM until streams that are not done are told to come back later.
    ahead
        Complete slices of one stream that may wait for the worker.
    """

    clients: int = 8
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
    linger_seconds: float = 3.0
    linger_bytes: int = 256 * _MIB
    drain_seconds: float = 60.0
    ahead: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise InputError(f"--limit {field.name}: expected a number above 0, got {value}")

    def changed(self, words: Iterable[str]) -> Limits:
        """Return these limits with some changed, each as in "coils=64"."""
        kinds: dict[str, type[int] | type[float]] = {
            field.name: float if field.type == "float" else int for field in fields(self)
        }
        told: dict[str, float] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in kinds:
                raise InputError(f"--limit: {word!r} is not NAME=NUMBER with NAME one of {', '.join(kinds)}")
            try:
                told[name] = kinds[name](value)
            except ValueError as error:
                kind = "a number" if kinds[name] is float else "a whole number"
                raise InputError(f"--limit {name}: expected {kind}, got {value!r}") from error
        return replace(self, **told)  # type: ignore[arg-type]

    def check(self, name: str, value: float, what: str) -> None:
        """Refuse a value above the limit of that name."""
        limit = getattr(self, name)
        if value > limit:
            raise RefusedError(
                f"limit:{name}", f"{what}: {value:g} is more than this server's limit of {limit:g} ({name})"
            )
