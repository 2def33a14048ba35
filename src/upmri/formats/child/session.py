"""One child and its file, seen from the program: requests, time limit, and what it means when the child ends."""

from __future__ import annotations

import builtins
import os
import signal
import threading
import time
import warnings
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from upmri.core import fork_server
from upmri.core.errors import InputError
from upmri.core.framing import receive_json, send_json
from upmri.formats.child.shared_arrays import TakenArrays, check_specs, make_room, map_room

SECONDS = 120.0  # for any answer, however small the file
_BYTES_PER_SECOND = 2**20  # of the slowest disk: more time for a large file
_AHEAD = 2  # requests without an answer: while one is copied, the next is read
_FOLD, _SMALL = 2, 2**26  # arrays may be longer than in the file: float32 becomes complex64
_SIGNALS = {
    signal.SIGBUS: "it became shorter while it was read, or the disk failed",
    signal.SIGXCPU: "it took too much time",
    signal.SIGKILL: "it took too much memory, or its process was ended from outside",
}
Answer = tuple[dict[str, Any], dict[str, NDArray[Any]]]


class ChildSession:
    """A child for one file. Several threads may ask; answers come in the order of the requests.

    Parameters
    ----------
    path
        The file.
    max_bytes
        Most bytes of memory for the arrays of one answer, as they lie in the file.

    Attributes
    ----------
    active
        Names of the limits that the child has set for itself.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._most = path, _FOLD * max_bytes + _SMALL
        self._seconds = SECONDS + _stored_bytes(path) / _BYTES_PER_SECOND
        self._lock = threading.Lock()
        self._pending: deque[dict[str, Any]] = deque()
        self._pieces = 0  # of all answers so far
        room = make_room()
        try:
            self._server, self._link, self._child = fork_server.fork(room)
        except BaseException:
            os.close(room)
            raise
        # A child whose program closes the socket ends by itself.
        self._closed = weakref.finalize(self, self._link.close)
        self._room = map_room(room, writable=False)
        first = {"path": str(path.absolute()), "max_bytes": max_bytes, "seconds": self._seconds}
        values, _ = self.request(**first, threads=torch.get_num_threads())
        self.active: list[str] = [str(name) for name in values.get("active", [])]

    def request(self, **message: Any) -> Answer:
        """Send a request and return its answer: values that are JSON, and arrays. Both are as the child sent them."""
        with self._lock:
            if not self._pending or self._pending[0] != message:
                while self._pending:
                    self._receive(drop=True)
                self._send(message)
            return self._receive()

    def request_ahead(self, *messages: dict[str, Any]) -> None:
        """Send requests whose answers are probably needed next, in this order, and do not wait for them."""
        with self._lock:
            for message in messages:
                if message not in self._pending and len(self._pending) < _AHEAD:
                    self._send(message)

    def end(self) -> None:
        """End the child; the file is not open any more when this returns."""
        if self._closed.alive:
            self._status()

    def _send(self, message: dict[str, Any]) -> None:
        if not self._closed.alive:
            raise InputError("the file is closed, or its reader stopped")
        self._pending.append(message)
        try:
            send_json(self._link, message)
        except OSError as error:
            raise self._stopped() from error
        except BaseException:
            self._status()
            raise

    def _receive(self, *, drop: bool = False) -> Answer:
        """Wait for the answer to the last request; ``drop``: nobody needs it."""
        try:
            answer = receive_json(self._link, deadline=time.monotonic() + self._seconds)
            arrays = {} if "arrays" not in answer else self._take(answer["arrays"])
        except TimeoutError as error:
            self._status()
            raise InputError(
                f"the file made its reader stop: no answer for {self._seconds:.0f} s; it may be damaged"
            ) from error
        except (EOFError, OSError) as error:
            raise self._stopped() from error
        except (ValueError, KeyError, TypeError) as error:
            self._status()
            raise InputError(f"the file made its reader stop: its answer is {error}; it may be damaged") from error
        except BaseException:  # such as Ctrl-C: the rest of the answer would be taken for the next one
            self._status()
            raise
        self._pending.popleft()
        if drop:
            return {}, {}
        _warn(answer.get("warnings"))
        _raise(answer)
        values = answer.get("values")
        return values if isinstance(values, dict) else {}, arrays

    def _take(self, said: Any) -> dict[str, NDArray[Any]]:
        incoming = TakenArrays(check_specs(said, self._most), self._room, self._pieces)
        for piece in range(incoming.pieces):
            if piece > 0:
                receive_json(self._link, deadline=time.monotonic() + self._seconds)
            incoming.take(piece)
            self._pieces += 1
            send_json(self._link, {"taken": self._pieces})
        return incoming.arrays

    def _status(self) -> int | None:
        """End the child and return its exit status; None where the process that forks is gone, too."""
        self._closed()
        self._pending.clear()
        try:
            return self._server.end(self._child)
        except (EOFError, OSError, ValueError):
            fork_server.stop(self._server)
            return None

    def _stopped(self) -> InputError:
        status = self._status()
        if status is not None and status < 0:
            number = signal.Signals(-status)
            reason = f"{_SIGNALS.get(number, 'a crash')} ({number.name})"
        else:
            reason = "its process ended"
        return InputError(f"the file made its reader stop: {reason}; it may be damaged")


def _stored_bytes(path: Path) -> int:
    """Return the size of the file, or of the larger one of BART's pair."""
    sizes = [one.stat().st_size for one in (path, path.with_suffix(".cfl")) if one.is_file()]
    return max(sizes, default=0)


def _warn(said: Any) -> None:
    """Raise the warnings of the child here."""
    for item in said if isinstance(said, list) else []:
        name, text = item if isinstance(item, list) and len(item) == 2 else ("", "")
        kind = getattr(builtins, str(name), None)
        known = isinstance(kind, type) and issubclass(kind, Warning)
        warnings.warn(str(text), kind if known else UserWarning, stacklevel=6)


def _raise(answer: dict[str, Any]) -> None:
    """Raise the error of the child here."""
    error = answer.get("error")
    if isinstance(error, dict):
        field = error.get("field")
        raise InputError(str(error.get("message")), field=None if field is None else str(field))
    if answer.get("memory"):
        raise MemoryError
    if "fault" in answer:
        fault = RuntimeError(str(answer["fault"]))
        fault.add_note(str(answer.get("trace", "")))
        raise fault
