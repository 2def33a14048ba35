"""HTTP for monitoring: ``GET /health`` for the program that restarts the server, ``GET /metrics`` for Prometheus."""

from __future__ import annotations

import io
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from upmri.server.counters import Counters
from upmri.server.json_log import event

_LOG = logging.getLogger(__name__)
_SECONDS = 2.0  # for a whole request, and again for its answer
_REQUEST_BYTES = 2**13
_CONNECTIONS = 16  # at once; one more is closed without an answer


class HealthServer(ThreadingHTTPServer):
    """Answers ``GET /health`` (200 or 503) and ``GET /metrics``, each connection in a thread of its own.

    Parameters
    ----------
    sock
        Socket that listens.
    counters
        Values for ``/metrics``.
    health
        Function that returns the answer to ``/health``; its ``"ready"`` decides between 200 and 503.
    """

    daemon_threads = True

    def __init__(self, sock: socket.socket, counters: Counters, health: Callable[[], dict[str, object]]) -> None:
        super().__init__(sock.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()  # the one that the base class made
        self.socket, self.server_address = sock, sock.getsockname()
        self.counters, self.health = counters, health
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        self._thread = threading.Thread(target=self.serve_forever, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Return whether one more connection is allowed."""
        return self._free.acquire(blocking=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for one connection."""
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no more threads
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log the kind of a fault of the program; a client that went away is none."""
        error = sys.exception()
        if not isinstance(error, OSError):
            event(_LOG, "fault", kind=type(error).__name__, where="health")


class _Handler(BaseHTTPRequestHandler):
    server: HealthServer
    default_request_version = "HTTP/1.0"  # so that nonsense gets a status line, too
    server_version, sys_version = "upmri", ""
    error_message_format, error_content_type = "%(code)d %(message)s\n", "text/plain"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_BoundedReader(self.connection))

    def do_GET(self) -> None:
        """Answer."""
        self.connection.settimeout(_SECONDS)
        if self.path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4", self.server.counters.prometheus())
        elif self.path == "/health":
            state = self.server.health()
            self._answer(200 if state["ready"] else 503, "application/json", json.dumps(state) + "\n")
        else:
            self._answer(404, "text/plain", "expected GET /health or GET /metrics\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write nothing: what a client sent does not enter the log."""


class _BoundedReader(io.RawIOBase):
    """Bytes of a socket: at most ``_REQUEST_BYTES``, within ``_SECONDS``; after that many bytes it is at its end."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._left, self._until = sock, _REQUEST_BYTES, time.monotonic() + _SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._until - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the request took too long")
        self._socket.settimeout(seconds)
        count = self._socket.recv_into(memoryview(buffer)[: self._left]) if self._left else 0
        self._left -= count
        return count
