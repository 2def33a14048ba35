"""The worker process as the server uses it: started, given jobs, and replaced when it fails."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from upmri.core.errors import InputError
from upmri.server import link
from upmri.server.counters import Counters
from upmri.server.json_log import event

_LOG = logging.getLogger(__name__)
_START = 300.0  # seconds for a worker to load what it needs
_PAUSES = (0.0, 1.0, 5.0, 30.0)  # seconds before the next try, after so many failed starts in a row
_NICE = 10  # as of the command `nice`: a tenth of the CPU time that another process gets, if both want it


class WorkerProcess:
    """One worker at a time.

    Parameters
    ----------
    device
        Device of the worker, such as ``"auto"`` or ``"cuda:1"``.
    method
        Method whose weights the worker loads when it starts.
    counters
        Counters of the server.
    low
        Whether the process gives way to others on the CPU.
    """

    def __init__(self, device: str, method: str, counters: Counters, low: bool = False) -> None:
        self._device, self._method, self._counters = device, method, counters
        self._nice = str(_NICE if low else 0)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._failures, self._not_before = 0, 0.0
        self._lock = threading.Lock()  # of the process, which two threads may kill
        self._over = False
        self.ready = False

    @property
    def alive(self) -> bool:
        """Whether a worker is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def failed(self) -> bool:
        """Whether the last try to start a worker failed."""
        return self._failures > 0

    def start(self) -> None:
        """Start a worker and wait until it is ready; InputError if it cannot be."""
        began = time.monotonic()
        with self._lock:
            if self._over:
                raise InputError("the server is stopping")
            ours, theirs = socket.socketpair()
            with theirs:
                number = theirs.fileno()
                words = [str(number), self._device, self._method, self._nice]
                command = [sys.executable, "-P", "-m", "upmri.server.worker", *words]
                try:
                    self._process = subprocess.Popen(  # noqa: S603
                        command, pass_fds=[number], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
                    )
                except OSError as error:
                    ours.close()
                    raise InputError(f"the worker did not start: {error.strerror}") from error
            self._socket = ours
        self._counters.add("worker_starts_total")
        ours.settimeout(_START)
        try:
            answer, _ = link.receive_message(ours)
        except (OSError, EOFError) as error:
            code = self.kill()
            raise InputError(f"the worker did not start (exit {code}); its own message is above") from error
        if not answer["ready"]:
            self.kill()
            raise InputError(**answer["error"])
        self.ready = True
        self._counters.add("workers_ready", 1)
        event(
            _LOG,
            "worker_ready",
            pid=answer["pid"],
            device=answer["device"],
            method=self._method,
            seconds=time.monotonic() - began,
        )

    def restart(self) -> bool:
        """Start another worker, unless one has just failed to start; return whether one is ready now."""
        self.kill()
        if time.monotonic() < self._not_before:
            return False
        try:
            self.start()
        except InputError:
            self._not_before = time.monotonic() + _PAUSES[min(self._failures, len(_PAUSES) - 1)]
            self._failures += 1
            event(_LOG, "worker_failed", failures=self._failures)
            return False
        self._failures = 0
        return True

    def ask(
        self, job: dict[str, Any], buffers: Sequence[Sequence[link.Buffer]], seconds: float, in_all: float
    ) -> Iterator[tuple[dict[str, Any], list[memoryview]]]:
        """Send a job and yield its answers: each must arrive within so many seconds, and all within ``in_all``."""
        sock = self._socket
        if sock is None:
            raise EOFError("there is no worker")
        until = time.monotonic() + in_all
        sock.settimeout(min(seconds, in_all))
        link.send_message(sock, job, buffers)
        last = False
        while not last:
            left = min(seconds, until - time.monotonic())
            if left <= 0:
                raise TimeoutError("the answers take too long")
            sock.settimeout(left)
            answer, arrays = link.receive_message(sock)
            last = answer["last"]
            yield answer, arrays

    def interrupt(self) -> None:
        """Kill the process; the thread that waits for its answer sees the end of the connection, and does the rest."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def kill(self, for_good: bool = False) -> int | None:
        """Kill the worker, if one is running, and return its exit status; ``for_good`` if none may be started again."""
        with self._lock:
            self._over = self._over or for_good
            process, sock, self._process, self._socket = self._process, self._socket, None, None
            ready, self.ready = self.ready, False
        self._counters.add("workers_ready", -int(ready))
        if process is None or sock is None:
            return None
        process.kill()
        code = process.wait()
        sock.close()
        return code
