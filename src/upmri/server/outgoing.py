"""What goes to one client: a thread that sends, so that neither the reader nor the worker waits for a slow one."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable

from upmri.server.counters import Metrics

_STEP = 2**16  # bytes within which a client must show that it reads


class Outgoing:
    """Sends messages in their order; ``broken`` once the client does not take them any more."""

    def __init__(
        self, sock: socket.socket, most: int, patience: float, metrics: Metrics, on_break: Callable[[bool], None]
    ) -> None:
        self._socket = sock.dup()  # with a timeout of its own
        self._socket.settimeout(patience)
        self._most, self._metrics, self._on_break = most, metrics, on_break
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

    def room(self) -> None:
        """Wait until the client has taken enough of what is queued, or is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending < self._most or self.broken)

    def finish(self, seconds: float) -> bool:
        """Wait until all is sent, so long at the most; tell whether it was."""
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
        self._metrics.add("bytes_out_total", len(message))
        with self._changed:
            self._pending -= len(message)
            self._changed.notify_all()
