"""The worker as the server sees it: a process that is started, asked, and replaced."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from upmri.core.errors import InputError
from upmri.server import link
from upmri.server.counters import Metrics
from upmri.server.json_log import Log

_START = 300.0  # seconds for a worker to load what it needs
_PAUSES = (0.0, 1.0, 5.0, 30.0)  # seconds before the next try, after so many failed starts in a row


class WorkerProcess:
    """One worker at a time, on this device, with the weights of this method loaded."""

    def __init__(self, device: str, method: str, log: Log, metrics: Metrics) -> None:
        self._device, self._method, self._log, self._metrics = device, method, log, metrics
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._failures, self._not_before = 0, 0.0
        self._lock = threading.Lock()  # of the process, which two threads may end
        self._over = False
        self.ready = False

    @property
    def alive(self) -> bool:
        """Whether there is one."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start one and wait until it is ready; InputError if it says that it cannot be."""
        began = time.monotonic()
        ours, theirs = socket.socketpair()
        with self._lock:
            if self._over:
                raise InputError("the server is stopping")
            command = [
                sys.executable,
                "-P",
                "-m",
                "upmri.server.worker",
                str(theirs.fileno()),
                self._device,
                self._method,
            ]
            self._process = subprocess.Popen(  # noqa: S603
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            self._socket = ours
        theirs.close()
        self._metrics.add("worker_starts_total")
        ours.settimeout(_START)
        try:
            told, _ = link.receive(ours)
        except (OSError, EOFError) as error:
            code = self.kill()
            raise InputError(f"the worker did not start (exit {code}); what it said is above") from error
        if not told["ready"]:
            self.kill()
            raise InputError(told["error"])
        self.ready = True
        self._metrics.put("worker_ready", 1)
        self._log.event(
            "worker_ready",
            pid=told["pid"],
            device=told["device"],
            method=self._method,
            seconds=time.monotonic() - began,
        )

    def restart(self) -> bool:
        """Start another, unless one has just failed to start; tell whether there is one now."""
        self.kill()
        if time.monotonic() < self._not_before:
            return False
        try:
            self.start()
        except InputError:
            self._not_before = time.monotonic() + _PAUSES[min(self._failures, len(_PAUSES) - 1)]
            self._failures += 1
            self._log.event("worker_failed", failures=self._failures)
            return False
        self._failures = 0
        return True

    def ask(
        self, job: dict[str, Any], buffers: Sequence[Sequence[link.Buffer]], seconds: float
    ) -> Iterator[tuple[dict[str, Any], list[memoryview]]]:
        """Send a job and return its answers as they come, each within so many seconds."""
        sock = self._socket
        if sock is None:
            raise EOFError("there is no worker")
        sock.settimeout(seconds)
        link.send(sock, job, buffers)
        last = False
        while not last:
            told, arrays = link.receive(sock)
            last = told["last"]
            yield told, arrays

    def kill(self, for_good: bool = False) -> int | None:
        """End it, if there is one, and return how it ended."""
        with self._lock:
            self._over = self._over or for_good
            process, sock, self._process, self._socket = self._process, self._socket, None, None
        self.ready = False
        self._metrics.put("worker_ready", 0)
        if process is None or sock is None:
            return None
        process.kill()
        code = process.wait()
        sock.close()
        return code
