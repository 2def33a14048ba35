"""The server's log: one JSON object per line, with numbers and codes, and nothing that came out of a stream.

Modules of the server report events through :mod:`logging`, as loggers below ``upmri.server``. ``upmri serve`` installs
the handler; a program that embeds the server can install another.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from upmri.core.errors import InputError
from upmri.server.counters import Counters

LOGGER = "upmri.server"


def event(logger: logging.Logger, name: str, **facts: int | float | str | None) -> None:
    """Report an event and what is known about it.

    Parameters
    ----------
    logger
        Logger of the module that reports.
    name
        Name of the event, such as ``"stream_end"``.
    **facts
        Numbers and codes. Never text that a client sent: it may contain names of patients.
    """
    logger.info(name, extra={"facts": facts})


class JsonFormatter(logging.Formatter):
    """Formats a record as ``{"time": …, "event": …}`` and its facts, in UTC, with floats to four decimals.

    Tracebacks are left out, because they may quote what a client sent.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {"time": f"{seconds}.{int(record.msecs):03}Z", "event": record.getMessage()}
        for key, value in getattr(record, "facts", {}).items():
            line[key] = round(value, 4) if isinstance(value, float) else value
        return json.dumps(line)


class JsonHandler(logging.StreamHandler[TextIO]):
    """Writes JSON lines to a file, or to stderr.

    A line that cannot be written is counted as ``log_lost_total`` and dropped: a full disk must not stop a scan.

    Parameters
    ----------
    path
        File to append to; stderr if None.
    counters
        Counters of the server.
    """

    def __init__(self, path: Path | None, counters: Counters) -> None:
        try:
            # Line buffering, so that a line that fails leaves nothing in the buffer that would fail again.
            stream = sys.stderr if path is None else path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", field="--log", path=path) from error
        super().__init__(stream)
        self.setFormatter(JsonFormatter())
        self._owned, self._counters = path is not None, counters

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002  the name and arguments are logging's
        """Count a line that could not be written."""
        self._counters.add("log_lost_total")

    def close(self) -> None:
        """Close the file."""
        if self._owned:
            with suppress(OSError, ValueError):
                self.stream.close()
        super().close()


@contextmanager
def log_to(path: Path | None, counters: Counters) -> Iterator[None]:
    """Write the server's events to a file, or to stderr, within a ``with`` block."""
    handler, logger = JsonHandler(path, counters), logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(before[0])
        logger.propagate = before[1]
