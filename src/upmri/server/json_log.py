"""Logs of the server: one JSON object a line, with numbers and codes, and nothing that came out of a stream.

What cannot be written is lost and counted: a full disk must not stop a scan.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from upmri.core.errors import InputError


class Log:
    """Writes events to a file, or to stderr; ``lost`` counts those that could not be written."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self.lost = 0
        try:
            # By lines, so that one that fails leaves nothing behind to fail again.
            self._file: TextIO = sys.stderr if path is None else path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise InputError(f"--log: {path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not sys.stderr:
            with suppress(OSError, ValueError):
                self._file.close()

    def event(self, name: str, **facts: int | float | str | None) -> None:
        """Write an event with what is known of it."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
        told: dict[str, Any] = {"time": stamp, "event": name}
        told |= {key: round(value, 4) if isinstance(value, float) else value for key, value in facts.items()}
        with self._lock:
            try:
                self._file.write(json.dumps(told) + "\n")
                self._file.flush()
            except (OSError, ValueError):
                self.lost += 1
