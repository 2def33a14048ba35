"""One client: its messages are read, its frames given to the worker, and images, texts and errors sent back.

Messages come in the order of MRD: a configuration, the XML header, parameters as text if any, readouts, CLOSE.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from upmri.core.errors import InputError
from upmri.server import wire
from upmri.server.assemble import Assembler, Frame
from upmri.server.json_log import event
from upmri.server.limits import RefusedError
from upmri.server.order import parse_order
from upmri.server.outgoing import Outgoing
from upmri.server.series import NOTICE, Series
from upmri.server.shared import Shared
from upmri.server.together import KeptFrames, Work
from upmri.server.wire import ERROR, EndedError, Incoming, Kind, Message

_LOG = logging.getLogger(__name__)
_GONE = "gone"  # the code of a client that does not receive any more
_PROBE_SECONDS = 0.3  # between texts to a client that may be gone
_STOPPED = getattr(select, "POLLRDHUP", 0)  # the event of a client that sends nothing more; Linux alone has it


class Connection:
    """Serves one client, in a thread of its own.

    Parameters
    ----------
    sock
        Connection to the client.
    number
        Number of the stream, for the log and the worker.
    shared
        Objects that all connections share.
    peer
        Address of the client.
    """

    def __init__(self, sock: socket.socket, number: int, shared: Shared, peer: str = "") -> None:
        self.peer, self.work_seconds = peer, 0.0
        self.number, self._socket, self._shared, self._limits = number, sock, shared, shared.limits
        self.order = shared.default
        self.lines: Assembler | None = None
        self.model: str | None = None
        self._fault: RefusedError | None = None
        self._lock = threading.Lock()
        self._waking, self._woken = socket.socketpair()
        self._poll = select.poll()
        for one in (sock, self._woken):
            self._poll.register(one, select.POLLIN)
        self._watched = select.poll()  # used by another thread
        self._watched.register(sock, select.POLLIN | _STOPPED)
        self._waiting: float | None = None  # time since when this thread waits for the worker
        self._probed = 0.0
        self._out = Outgoing(sock, self._limits.out_bytes, self._limits.idle_seconds, shared.counters, self._broken)
        self._in = Incoming(self._receive, self._limits)
        self._began = time.monotonic()
        self._until = (self._began + self._limits.begin_seconds, "begin_seconds")
        self._configured = False
        self._images: Series | None = None
        self._kept: KeptFrames | None = None  # for a method over time

    # --- what the dispatcher and the server use -----------------------------------------------------------------------

    @property
    def fault(self) -> RefusedError | None:
        """The reason why the stream is ended, if it is; the first one counts."""
        return self._fault

    def fail(self, error: RefusedError) -> None:
        """End the stream for this reason, from any thread."""
        with self._lock:
            if self._fault is not None:
                return
            self._fault = error
        with suppress(OSError):
            self._waking.send(b"!")
        self._shared.dispatcher.wake(self)

    def deliver(self, frame: Frame, answer: dict[str, Any], arrays: list[memoryview]) -> None:
        """Send an image that the worker made from a frame, and a text about the progress."""
        if self._images is None:
            self._images = Series(self.order.method, self.order.complex)
        self.model = self.model or answer["settings"].get("model")
        messages = self._images.messages(frame, answer, arrays)
        done = f"image {self._images.count}: {frame.where}, by {self.order.method} in {answer['seconds']:.2f} s"
        self._out.put(*messages, *self._images.warnings(answer, frame.where), wire.text_message(done))
        self._shared.counters.add("images_total", len(messages))

    def watch(self) -> None:
        """End the stream if its client is gone while the stream waits for the worker; called often, by one thread.

        A client that has closed its socket looks like one that has only stopped to send, and so does one whose last
        bytes are not read yet. But it answers new data with a reset. So such a client gets a text now and then.
        """
        waiting, now = self._waiting, time.monotonic()
        if waiting is None or self._fault is not None:
            return
        if now > self._began + self._limits.total_seconds:
            self.fail(self._too_long("total_seconds"))
            return
        state = sum(events for _, events in self._watched.poll(0))
        if state & (select.POLLERR | select.POLLHUP):
            self._broken(slow=False)
        elif state and now - max(self._probed, 0 if state & _STOPPED else waiting) > _PROBE_SECONDS:
            self._probed = now
            if self._out.idle:
                self._out.put(wire.text_message(f"{wire.WORKING}{now - waiting:.1f} s so far"))

    # --- the thread ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve the client until its stream ends, whatever it sends."""
        shared, code = self._shared, "done"
        try:
            self._read()
            with self._wait():
                shared.dispatcher.finish(self)
            self._out.put(wire.close_message())
        except RefusedError as error:
            code = error.code
            self._out.put(wire.text_message(f"{ERROR}{error}"), wire.close_message())
        except InputError as error:
            code = "data"
            self._out.put(wire.text_message(f"{ERROR}{error}"), wire.close_message())
        except EndedError as error:
            code = "cut"
            self._out.put(wire.text_message(f"{ERROR}{error}; expected CLOSE"), wire.close_message())
        except OSError:
            code = _GONE
        except Exception as error:
            code = "fault"
            event(_LOG, "fault", kind=type(error).__name__, where="connection", stream=self.number)
            self._out.put(wire.text_message(f"{ERROR}the server failed: {type(error).__name__}"), wire.close_message())
        with self._lock:
            # From here on the dispatcher delivers nothing.
            late = self._fault is not None
            self._fault = self._fault or RefusedError(code, "the stream has ended")
        shared.places.leave(self)
        shared.dispatcher.forget(self, late)
        try:
            sent = self._end(code)
        finally:
            self._close()
        self._account("done" if code == "done" and sent else _GONE if code == "done" else code)
        # These objects refer to each other in cycles, and would use memory until the next garbage collection.
        self.lines = self._images = self._kept = None
        del self._in

    def _end(self, code: str) -> bool:
        """Send the rest of the queue, and then read and drop input for a while.

        A socket that is closed with unread input resets the connection, and what was sent last would be lost.
        """
        if code == _GONE or self._out.broken:
            return False
        seconds = self._limits.idle_seconds if code == "done" else self._limits.linger_seconds
        sent = self._out.finish(seconds)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            if not self._in.count and code.startswith("limit:"):  # it sent nothing; there may be many such clients
                return sent
            self._socket.settimeout(self._limits.linger_seconds)
            until, left = time.monotonic() + self._limits.linger_seconds, self._limits.linger_bytes
            while left > 0 and time.monotonic() < until and (got := self._socket.recv(2**16)):
                left -= len(got)
        return sent

    def _close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # also ends a send of the writer
        self._out.close()
        for one in (self._socket, self._waking, self._woken):
            one.close()

    def _account(self, code: str) -> None:
        shared = self._shared
        shared.counters.add("bytes_in_total", self._in.count)
        if code == "done":
            shared.counters.add("streams_done_total")
        else:
            shared.counters.add("streams_refused_total", code=code)
        event(
            _LOG,
            "stream_end",
            stream=self.number,
            code=code,
            method=self.order.method,
            readouts=self.lines.readouts if self.lines else 0,
            images=self._images.count if self._images else 0,
            bytes_in=self._in.count,
            seconds=time.monotonic() - self._began,
        )

    # --- messages of the client ---------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Take messages until CLOSE."""
        while (message := self._in.message()).kind != Kind.CLOSE:
            self._handle(message)
            if self.lines is not None:
                self._until = (time.monotonic() + self._limits.idle_seconds, "idle_seconds")
        if self.lines is None:
            raise RefusedError("order", "CLOSE came before the XML header; expected configuration, header, readouts")
        for frame in self.lines.rest():
            self._take(frame)
        for place in () if self._kept is None else self._kept.rest():
            self._submit(place)
        if self.lines.late:
            note = f"{self.lines.late} readouts came too late (their slice was complete) and were left out"
            self._out.put(wire.text_message(note))

    def _handle(self, message: Message) -> None:
        if message.kind in (Kind.CONFIG_FILE, Kind.CONFIG_TEXT, Kind.TEXT):
            self._configure(message)
        elif message.kind == Kind.HEADER:
            if not self._configured or self.lines is not None:
                wrong = "a second header" if self.lines is not None else "the header came before a configuration"
                raise RefusedError("order", f"{wrong}; expected configuration, header, readouts")
            lines = Assembler(message.body, self._limits)
            self._shared.places.take(self)
            self.lines = lines
        elif message.kind == Kind.ACQUISITION:
            if self.lines is None:
                raise RefusedError("order", "a readout came before the XML header; expected the header first")
            if not self.lines.readouts:
                self._out.put(wire.text_message(f"reconstructing with {self.order.method}; {NOTICE}"))
                self._kept = KeptFrames(self.lines, self._limits) if self.order.dynamic else None
            bad = self.lines.bad_noise
            frames = self.lines.add(message.head, message.body)
            if self.lines.bad_noise > bad == 0:
                self._out.put(wire.text_message("warning: noise readouts that are not finite are left out"))
            for frame in frames:
                self._take(frame)
        elif message.kind == Kind.IMAGE:
            raise RefusedError(
                "order", "an image came; expected raw data (readouts), from which this server makes images"
            )

    def _configure(self, message: Message) -> None:
        """Read a configuration, or parameters that change it."""
        if self.lines is not None and self.lines.readouts:
            if message.kind == Kind.TEXT:
                return  # a remark for people
            raise RefusedError("order", "a configuration came after readouts; expected it before")
        token = None if self._configured else self._shared.token
        self.order = parse_order(message.text, self.order, self._shared.allowed, self._limits, token)
        self._configured = True

    def _take(self, frame: Frame) -> None:
        """Give a frame to the worker; for a method over time, keep it until the other frames of its place are here."""
        work = frame if self._kept is None else self._kept.add(frame)
        if self._kept is not None:
            self._out.put(wire.text_message(f"{wire.RECEIVED}{frame.where}"))
        if work is not None:
            self._submit(work)

    def _submit(self, work: Work) -> None:
        self._out.wait_for_space()
        with self._wait():
            self._shared.dispatcher.submit(self, work)

    @contextmanager
    def _wait(self) -> Iterator[None]:
        self._waiting = time.monotonic()
        try:
            yield
        finally:
            self._waiting = None

    # --- the socket ---------------------------------------------------------------------------------------------------

    def _receive(self, count: int) -> bytes:
        end = (self._began + self._limits.total_seconds, "total_seconds")
        until, name = min(self._until, end)
        while (left := until - time.monotonic()) > 0:
            events = self._poll.poll(left * 1000 + 1)
            if self._fault is not None:
                raise self._fault
            if any(descriptor == self._socket.fileno() for descriptor, _ in events):
                return self._socket.recv(count)
        raise self._too_long(name)

    def _too_long(self, name: str) -> RefusedError:
        limit = getattr(self._limits, name)
        return RefusedError(f"limit:{name}", f"waited too long: more than this server's limit of {limit:g} s ({name})")

    def _broken(self, slow: bool) -> None:
        self.fail(RefusedError(_GONE, "the client does not receive its images" if slow else "the client is gone"))
