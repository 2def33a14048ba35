"""The process of the server: it listens, starts a thread for each client, and stops cleanly on a signal."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import select
import signal
import socket
import ssl
import threading
import time
from contextlib import suppress
from types import FrameType

from upmri.core.errors import InputError
from upmri.server.connection import Connection
from upmri.server.health import HealthServer
from upmri.server.json_log import event
from upmri.server.limits import RefusedError
from upmri.server.shared import Shared
from upmri.server.tls import accept_tls

_LOG = logging.getLogger(__name__)
_BACKLOG = 64
_WATCH = 0.1  # seconds between checks that clients are there
# Seconds without a packet until the system asks a client for one, between two questions, and the number of questions:
# a client that was switched off is found in 25 s.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_ARENA_MAX, _ARENAS = -8, 2  # of glibc's mallopt
_LOCAL = ("127.0.0.1", "::1", "localhost")


def is_local(host: str) -> bool:
    """Whether a server at this address can be reached from this machine only."""
    return host in _LOCAL


class Server:
    """Serves clients until a signal: the first one lets streams end, the second one ends them.

    Parameters
    ----------
    host, port
        Address to listen at; port 0 takes a free one.
    shared
        Objects that all connections share.
    health_port
        Port for ``GET /health`` and ``GET /metrics``; None for neither.
    health_host
        Address of that port; by default ``host``.
    context
        Settings of TLS, without which connections are not encrypted.
    """

    def __init__(
        self,
        host: str,
        port: int,
        shared: Shared,
        health_port: int | None = None,
        health_host: str | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._shared, self._context = shared, context
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Connection, threading.Thread]] = {}
        self._number = 0
        self._stops = 0
        self._first_signal = 0
        self._socket = _listen(host, port, "--port")
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._monitor: HealthServer | None = None
        if health_port is not None:
            try:
                listening = _listen(health_host or host, health_port, "--health-port")
            except InputError:
                self._socket.close()
                raise
            self._monitor = HealthServer(listening, shared.counters, self._health)
        self._waking, self._woken = socket.socketpair()

    def serve(self) -> int:
        """Start the worker, serve clients, and return the number of the first signal, when all streams have ended."""
        _limit_heaps()
        before = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._shared.dispatcher.start()
            health = self._monitor.server_address[1] if self._monitor else None
            event(_LOG, "listening", host=self.address[0], port=self.address[1], health_port=health, pid=os.getpid())
            if not is_local(self.address[0]) and self._context is None:
                text = "MRD has no passwords and no encryption: everyone who reaches this port may use it"
                event(_LOG, "warning", text=text)
            _notify("READY=1")
            self._accept()
            _notify("STOPPING=1")
            self._drain()
        finally:
            for one in (self._socket, self._waking, self._woken):
                one.close()
            self._shared.dispatcher.stop()
            if self._monitor:
                self._monitor.close()
            event(_LOG, "stopped")
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._first_signal

    def _signalled(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._first_signal = self._first_signal or number
        self._stops += 1
        with suppress(OSError):
            self._waking.send(b"!")

    def _accept(self) -> None:
        """Accept clients until the first signal."""
        poll = select.poll()
        for one in (self._socket, self._woken):
            poll.register(one, select.POLLIN)
        while not self._stops:
            events = dict(poll.poll(1000 * _WATCH))  # a signal may come just before it, and is then handled after it
            self._watch()
            if self._socket.fileno() not in events:
                continue
            try:
                sock, peer = self._socket.accept()
            except OSError:  # the client is gone again, or too many files are open
                time.sleep(0.05)
                continue
            self._begin(sock, peer[0])
        self._socket.close()

    def _begin(self, sock: socket.socket, peer: str) -> None:
        limits, counters = self._shared.limits, self._shared.counters
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEP_ALIVE.items():
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._number += 1
        number = self._number
        with self._lock:  # those served, those that wait and those that get an error
            same = sum(one.peer == peer for one, _ in self._open.values())
            flood = same >= 3 * limits.per_address or len(self._open) >= 3 * limits.clients + limits.per_address
        if flood:
            sock.close()
            counters.add("streams_refused_total", code="flood")
            return
        if self._context is not None:
            sock = accept_tls(sock, self._context, limits.begin_seconds)
        connection = Connection(sock, number, self._shared, peer)
        thread = threading.Thread(target=self._run, args=(connection,), name=f"stream {number}", daemon=True)
        counters.add("streams_total")
        event(_LOG, "stream_begin", stream=number, peer=peer)
        with self._lock:
            self._open[number] = (connection, thread)
            counters.put("streams_open", len(self._open))
        self._shared.places.enter(connection)
        thread.start()

    def _run(self, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                del self._open[connection.number]
                self._shared.counters.put("streams_open", len(self._open))

    def _watch(self) -> None:
        """End the streams of clients that are gone, also during a reconstruction; let long slices give way."""
        for connection, _ in self._alive():
            connection.watch()
        self._shared.dispatcher.watch()

    def _drain(self) -> None:
        """Wait for streams to end, for a limited time; end the others with an error."""
        limits = self._shared.limits
        event(_LOG, "draining", streams=len(self._open), seconds=limits.drain_seconds)
        until = time.monotonic() + limits.drain_seconds
        while (alive := self._alive()) and self._stops < 2 and time.monotonic() < until:
            alive[0][1].join(_WATCH)
            self._watch()
        for connection, _ in self._alive():
            connection.fail(RefusedError("stopping", "the server is stopping; send the scan again later"))
        until = time.monotonic() + 2 * limits.linger_seconds + 1
        while self._alive() and time.monotonic() < until:
            self._alive()[0][1].join(0.1)

    def _alive(self) -> list[tuple[Connection, threading.Thread]]:
        with self._lock:
            return list(self._open.values())

    def _health(self) -> dict[str, object]:
        state = "draining" if self._stops else "ready" if self._shared.dispatcher.ready else "no worker"
        return {"ready": state == "ready", "state": state, "streams": len(self._open)}


def _listen(host: str, port: int, option: str) -> socket.socket:
    if not 0 <= port < 2**16:
        raise InputError(f"cannot listen at {host}:{port}; expected a port from 0 to 65535", field=option)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        message = f"cannot listen at {host}:{port}: {error}"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise InputError(f"{message}; choose another, or stop the program that uses it", field=option) from error
        if isinstance(error, PermissionError):
            raise InputError(f"{message}; choose one from 1024 to 65535", field=option) from error
        where = option.replace("port", "host")
        raise InputError(f"{message}; expected an address of this machine", field=where) from error


def _limit_heaps() -> None:
    """Ask the C library for few heaps: with one per thread, each would keep memory that its streams have freed."""
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _ARENAS)


def _notify(state: str) -> None:
    """Report the state to systemd, if it started this process."""
    path = os.environ.get("NOTIFY_SOCKET")
    if path:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect("\0" + path[1:] if path.startswith("@") else path)
            sock.sendall(state.encode())
