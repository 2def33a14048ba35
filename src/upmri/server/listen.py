"""The server's process: it listens, starts a reader for each client, and ends in good order."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import threading
import time
from contextlib import suppress
from types import FrameType

from upmri.core.errors import InputError
from upmri.server.connection import Connection, House
from upmri.server.counters import Door
from upmri.server.limits import RefusedError

_BACKLOG = 64
_ARENA_MAX, _ARENAS = -8, 2  # of glibc's mallopt
_LOCAL = ("127.0.0.1", "::1", "localhost")


def is_local(host: str) -> bool:
    """Whether only this machine can reach a server there."""
    return host in _LOCAL


class Server:
    """Serves clients until it is told to stop: once to let streams end, twice to end them."""

    def __init__(self, host: str, port: int, house: House, health_port: int | None = None) -> None:
        self._house = house
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Connection, threading.Thread]] = {}
        self._turned_away = 0
        self._number = 0
        self._stops = 0
        self._socket = _listen(host, port, "--port")
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._door: Door | None = None
        if health_port is not None:
            try:
                listening = _listen(host, health_port, "--health-port")
            except InputError:
                self._socket.close()
                raise
            self._door = Door(listening, house.metrics, self._health)
        self._waking, self._woken = socket.socketpair()

    def serve(self) -> None:
        """Start the worker, serve, and return when all is over."""
        log = self._house.log
        _share_memory()
        before = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._house.dispatcher.start()
            health = self._door.address[1] if self._door else None
            log.event("listening", host=self.address[0], port=self.address[1], health_port=health, pid=os.getpid())
            if not is_local(self.address[0]):
                log.event(
                    "warning", text="MRD has no passwords and no encryption: everyone who reaches this port may use it"
                )
            _notify("READY=1")
            self._accept()
            _notify("STOPPING=1")
            self._drain()
        finally:
            for one in (self._socket, self._waking, self._woken):
                one.close()
            self._house.dispatcher.stop()
            if self._door:
                self._door.close()
            log.event("stopped")
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._stops += 1
        with suppress(OSError):
            self._waking.send(b"!")

    def _accept(self) -> None:
        """Take clients until the first signal."""
        poll = select.poll()
        for one in (self._socket, self._woken):
            poll.register(one, select.POLLIN)
        while not self._stops:
            self._house.metrics.put("log_lost_total", self._house.log.lost)
            if self._socket.fileno() not in dict(poll.poll()):
                continue
            try:
                sock, peer = self._socket.accept()
            except OSError:  # gone again, or too many files open
                time.sleep(0.05)
                continue
            self._welcome(sock, peer[0])
        self._socket.close()

    def _welcome(self, sock: socket.socket, peer: str) -> None:
        limits, metrics = self._house.limits, self._house.metrics
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._number += 1
        number = self._number
        with self._lock:
            full = len(self._open) >= limits.clients
            flood = full and self._turned_away >= limits.clients
            self._turned_away += full and not flood
        if flood:  # those who are being told already are enough
            sock.close()
            metrics.add("streams_refused_total", code="flood")
            return
        connection = Connection(sock, number, self._house)
        target = self._turn_away if full else self._run
        thread = threading.Thread(target=target, args=(connection,), name=f"stream {number}", daemon=True)
        if not full:
            metrics.add("streams_total")
            self._house.log.event("stream_begin", stream=number, peer=peer)
            with self._lock:
                self._open[number] = (connection, thread)
                metrics.put("streams_open", len(self._open))
        thread.start()

    def _run(self, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                del self._open[connection.number]
                self._house.metrics.put("streams_open", len(self._open))

    def _turn_away(self, connection: Connection) -> None:
        most = self._house.limits.clients
        try:
            connection.refuse(RefusedError("limit:clients", f"the server is busy with {most} clients; try again later"))
            self._house.metrics.add("streams_refused_total", code="limit:clients")
        finally:
            with self._lock:
                self._turned_away -= 1

    def _drain(self) -> None:
        """Let streams end, for a while; tell the others to come back."""
        limits, log = self._house.limits, self._house.log
        log.event("draining", streams=len(self._open), seconds=limits.drain_seconds)
        until = time.monotonic() + limits.drain_seconds
        while self._alive() and self._stops < 2 and time.monotonic() < until:
            self._alive()[0][1].join(0.1)
        for connection, _ in self._alive():
            connection.fail(RefusedError("stopping", "the server is stopping; send the scan again later"))
        until = time.monotonic() + 2 * limits.linger_seconds + 1
        while self._alive() and time.monotonic() < until:
            self._alive()[0][1].join(0.1)

    def _alive(self) -> list[tuple[Connection, threading.Thread]]:
        with self._lock:
            return list(self._open.values())

    def _health(self) -> dict[str, object]:
        state = "draining" if self._stops else "ready" if self._house.dispatcher.ready else "no worker"
        return {"ready": state == "ready", "state": state, "streams": len(self._open)}


def _listen(host: str, port: int, option: str) -> socket.socket:
    if not 0 <= port < 2**16:
        raise InputError(f"{option}: cannot listen at {host}:{port}; expected a port from 0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(
            f"{option}: cannot listen at {host}:{port}: {error}; choose another, or end who has it"
        ) from error


def _share_memory() -> None:
    """Ask the C library for few heaps: with one for every thread that ever read a stream, each keeps its own debris."""
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _ARENAS)


def _notify(state: str) -> None:
    """Tell systemd, where it wants to know."""
    path = os.environ.get("NOTIFY_SOCKET")
    if path:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect("\0" + path[1:] if path.startswith("@") else path)
            sock.sendall(state.encode())
