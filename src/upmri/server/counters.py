"""What the server counts, and the port that tells: ``/health`` for whoever restarts it, ``/metrics`` for Prometheus."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_PATIENCE = 2.0  # seconds for a request and for its answer
_REQUEST = 2**13

_ABOUT = {
    "streams_total": ("counter", "Streams that were accepted."),
    "streams_done_total": ("counter", "Streams that ended with all their images."),
    "streams_refused_total": ("counter", "Streams that were refused or failed, by code."),
    "streams_open": ("gauge", "Streams at work."),
    "images_total": ("counter", "Images that were sent."),
    "bytes_in_total": ("counter", "Bytes received."),
    "bytes_out_total": ("counter", "Bytes sent."),
    "frames_waiting": ("gauge", "Complete frames that wait for the worker."),
    "frame_seconds_total": ("counter", "Seconds that the worker spent on frames."),
    "worker_starts_total": ("counter", "Times that a worker was started."),
    "worker_ready": ("gauge", "1 when the worker can take a frame."),
    "log_lost_total": ("counter", "Lines of the log that could not be written."),
}


class Metrics:
    """Numbers by name, some of them by code."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[str, str], float] = {}

    def add(self, name: str, amount: float = 1, code: str = "") -> None:
        """Count."""
        with self._lock:
            self._values[name, code] = self._values.get((name, code), 0) + amount

    def put(self, name: str, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[name, ""] = value

    def get(self, name: str, code: str = "") -> float:
        """Return a number, 0 if never counted."""
        with self._lock:
            return self._values.get((name, code), 0)

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        with self._lock:
            values = dict(self._values)
        lines = []
        for name, (kind, help_) in _ABOUT.items():
            lines += [f"# HELP upmri_{name} {help_}", f"# TYPE upmri_{name} {kind}"]
            found = {code: value for (one, code), value in values.items() if one == name} or {"": 0.0}
            for code, value in sorted(found.items()):
                label = f'{{code="{code}"}}' if code else ""
                lines.append(f"upmri_{name}{label} {value:.10g}")
        return "\n".join(lines) + "\n"


class Door:
    """Answers ``GET /health`` (200 or 503) and ``GET /metrics``, one at a time."""

    def __init__(self, sock: socket.socket, metrics: Metrics, health: Callable[[], dict[str, object]]) -> None:
        self._socket = sock  # which listens
        self.address = self._socket.getsockname()
        self._metrics, self._health = metrics, health
        threading.Thread(target=self._run, name="health", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:  # closed
                return
            with suppress(OSError), peer:
                peer.settimeout(_PATIENCE)
                self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        path = peer.recv(_REQUEST).split(b" ", 2)[1:2]
        status, kind, body = "404 Not Found", "text/plain", "expected GET /health or GET /metrics\n"
        if path == [b"/metrics"]:
            status, kind, body = "200 OK", "text/plain; version=0.0.4", self._metrics.text()
        elif path == [b"/health"]:
            state = self._health()
            status = "200 OK" if state["ready"] else "503 Service Unavailable"
            kind, body = "application/json", json.dumps(state) + "\n"
        raw = body.encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
        peer.sendall(head.encode() + raw)

    def close(self) -> None:
        """Answer no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
