"""Messages to one client, sent by a thread of their own, so that neither the reader nor the worker waits for it."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable

from upmri.server.counters import Counters

_STEP = 2**16  # bytes that a client must receive within its time limit


class Outgoing:
    """Sends messages in order; ``broken`` is True once the client does not receive them any more.

    Parameters
    ----------
    sock
        Connection to the client.
    max_bytes
        Size of the queue above which :meth:`wait_for_space` waits.
    seconds
        Time for the client to receive the next 64 KiB.
    counters
        Counters of the server.
    on_break
        Function that is called once when sending fails, with True if the client was too slow.
    """

    def __init__(
        self, sock: socket.socket, max_bytes: int, seconds: float, counters: Counters, on_break: Callable[[bool], None]
    ) -> None:
        self._socket = sock.dup()  # with a timeout of its own
        self._socket.settimeout(seconds)
        self._max_bytes, self._counters, self._on_break = max_bytes, counters, on_break
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._pending = 0
        self._over = False
        self.broken = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def put(self, *messages: bytes) -> None:
        """Queue messages."""
        with self._changed:
            if not (self.broken or self._over):
                self._queue.extend(messages)
                self._pending += sum(map(len, messages))
                self._changed.notify_all()

    @property
    def idle(self) -> bool:
        """Whether everything was sent."""
        return self._pending == 0

    def wait_for_space(self) -> None:
        """Wait until the client has received enough of the queue, or is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending < self._max_bytes or self.broken)

    def finish(self, seconds: float) -> bool:
        """Wait until everything is sent, for at most so many seconds, and return whether it was."""
        with self._changed:
            sent = self._changed.wait_for(lambda: self._pending == 0 or self.broken, seconds) and not self.broken
            self._over = True
            self._changed.notify_all()
        return sent

    def close(self) -> None:
        """Stop sending."""
        with self._changed:
            self._over = True
            self._queue.clear()
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        with self._socket:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._queue or self._over)
                    if not self._queue:
                        return
                    message = self._queue.popleft()
                try:
                    self._send(message)
                except OSError as error:
                    with self._changed:
                        self.broken, self._pending = True, 0
                        self._queue.clear()
                        self._changed.notify_all()
                    self._on_break(isinstance(error, TimeoutError))
                    return

    def _send(self, message: bytes) -> None:
        view = memoryview(message)
        for at in range(0, len(view), _STEP):
            self._socket.sendall(view[at : at + _STEP])
        self._counters.add("bytes_out_total", len(message))
        with self._changed:
            self._pending -= len(message)
            self._changed.notify_all()
