"""One client: messages in, frames to the worker, images and texts out, and an end that the client gets to know of.

The order is MRD's: a configuration, the XML header, parameters as text if any, readouts, CLOSE.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from upmri.core.errors import InputError
from upmri.server import wire
from upmri.server.assemble import Assembler, Frame
from upmri.server.counters import Metrics
from upmri.server.dispatch import Dispatcher
from upmri.server.json_log import Log
from upmri.server.limits import Limits, RefusedError
from upmri.server.order import Order, parse
from upmri.server.outgoing import Outgoing
from upmri.server.series import NOTICE, Series
from upmri.server.wire import EndedError, Incoming, Kind, Message

ERROR = "ERROR: "  # how a text begins that tells why there will be no more
_GONE = "gone"  # the code of a client to whom nothing can be told


@dataclass(frozen=True)
class House:
    """What all connections share."""

    limits: Limits
    default: Order
    allowed: tuple[str, ...]
    dispatcher: Dispatcher
    log: Log
    metrics: Metrics


class Connection:
    """Reads one client to its end, in a thread of its own."""

    def __init__(self, sock: socket.socket, number: int, house: House) -> None:
        self.number, self._socket, self._house, self._limits = number, sock, house, house.limits
        self.order = house.default
        self.lines: Assembler | None = None
        self.model: str | None = None
        self._fault: RefusedError | None = None
        self._lock = threading.Lock()
        self._waking, self._woken = socket.socketpair()
        self._poll = select.poll()
        for one in (sock, self._woken):
            self._poll.register(one, select.POLLIN)
        self._out = Outgoing(sock, self._limits.out_bytes, self._limits.idle_seconds, house.metrics, self._broken)
        self._in = Incoming(self._receive, self._limits)
        self._began = time.monotonic()
        self._until = (self._began + self._limits.begin_seconds, "begin_seconds")
        self._configured = False
        self._images: Series | None = None

    # --- what the dispatcher and the server use -----------------------------------------------------------------------

    @property
    def fault(self) -> RefusedError | None:
        """Why it goes no further, if so; the first reason counts."""
        return self._fault

    def fail(self, error: RefusedError) -> None:
        """End the stream for this reason, from any thread."""
        with self._lock:
            if self._fault is not None:
                return
            self._fault = error
        with suppress(OSError):
            self._waking.send(b"!")
        self._house.dispatcher.wake()

    def deliver(self, frame: Frame, told: dict[str, Any], arrays: list[memoryview]) -> None:
        """Send an image of the worker's, and say how far things are."""
        if self._images is None:
            self._images = Series(self.order.method, self.order.complex)
        self.model = self.model or told["settings"].get("model")
        messages = self._images.messages(frame, told, arrays)
        counters = dict(zip(("repetition", "phase", "set", "contrast", "slice"), frame.key, strict=True))
        where = ", ".join(f"{name} {value}" for name, value in counters.items() if value or name == "slice")
        done = f"image {self._images.count}: {where}, by {self.order.method} in {told['seconds']:.2f} s"
        self._out.put(*messages, wire.text(done))
        self._house.metrics.add("images_total", len(messages))

    # --- the thread ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve the client to the end, whatever it does."""
        house, code = self._house, "done"
        try:
            self._read()
            house.dispatcher.finish(self)
            self._out.put(wire.close())
        except RefusedError as error:
            code = error.code
            self._out.put(wire.text(f"{ERROR}{error}"), wire.close())
        except InputError as error:
            code = "data"
            self._out.put(wire.text(f"{ERROR}{error}"), wire.close())
        except EndedError as error:
            code = "cut"
            self._out.put(wire.text(f"{ERROR}{error}; expected CLOSE"), wire.close())
        except OSError:
            code = _GONE
        except Exception as error:
            code = "fault"
            house.log.event("fault", kind=type(error).__name__, where="connection", stream=self.number)
            self._out.put(wire.text(f"{ERROR}the server failed: {type(error).__name__}"), wire.close())
        with self._lock:
            # From here on nothing is delivered, whoever wants to.
            self._fault = self._fault or RefusedError(code, "over")
        house.dispatcher.forget(self)
        try:
            sent = self._end(code)
        finally:
            self._let_go()
        self._account("done" if code == "done" and sent else _GONE if code == "done" else code)
        # Objects that refer to each other in circles would keep all of this until Python looks for circles.
        self.lines = self._images = None
        del self._in

    def refuse(self, error: RefusedError) -> None:
        """Tell a client that it is not served at all."""
        try:
            self._out.put(wire.text(f"{ERROR}{error}"), wire.close())
            self._end(error.code)
        finally:
            self._let_go()

    def _end(self, code: str) -> bool:
        """Send what is left, then read on for a while: closing with unread input would lose it on its way."""
        if code == _GONE or self._out.broken:
            return False
        patience = self._limits.idle_seconds if code == "done" else self._limits.linger_seconds
        sent = self._out.finish(patience)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(self._limits.linger_seconds)
            until, left = time.monotonic() + self._limits.linger_seconds, self._limits.linger_bytes
            while left > 0 and time.monotonic() < until and (got := self._socket.recv(2**16)):
                left -= len(got)
        return sent

    def _let_go(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # also ends what the writer may still be at
        self._out.close()
        for one in (self._socket, self._waking, self._woken):
            one.close()

    def _account(self, code: str) -> None:
        house = self._house
        house.metrics.add("bytes_in_total", self._in.count)
        if code == "done":
            house.metrics.add("streams_done_total")
        else:
            house.metrics.add("streams_refused_total", code=code)
        house.log.event(
            "stream_end",
            stream=self.number,
            code=code,
            method=self.order.method,
            readouts=self.lines.readouts if self.lines else 0,
            images=self._images.count if self._images else 0,
            bytes_in=self._in.count,
            seconds=time.monotonic() - self._began,
        )

    # --- what a client says -------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Take messages until CLOSE."""
        while (message := self._in.message()).kind != Kind.CLOSE:
            self._take(message)
            if self.lines is not None:
                self._until = (time.monotonic() + self._limits.idle_seconds, "idle_seconds")
        if self.lines is None:
            raise RefusedError("order", "CLOSE came before the XML header; expected configuration, header, readouts")
        for frame in self.lines.rest():
            self._hand_over(frame)
        if self.lines.late:
            note = f"{self.lines.late} readouts came too late (their slice was complete) and were left out"
            self._out.put(wire.text(note))

    def _take(self, message: Message) -> None:
        if message.kind in (Kind.CONFIG_FILE, Kind.CONFIG_TEXT, Kind.TEXT):
            self._configure(message)
        elif message.kind == Kind.HEADER:
            if not self._configured or self.lines is not None:
                wrong = "a second header" if self.lines is not None else "the header came before a configuration"
                raise RefusedError("order", f"{wrong}; expected configuration, header, readouts")
            self.lines = Assembler(message.body, self._limits)
        elif message.kind == Kind.ACQUISITION:
            if self.lines is None:
                raise RefusedError("order", "a readout came before the XML header; expected the header first")
            if not self.lines.readouts:
                self._out.put(wire.text(f"reconstructing with {self.order.method}; {NOTICE}"))
            for frame in self.lines.add(message.head, message.body):
                self._hand_over(frame)
        elif message.kind == Kind.IMAGE:
            raise RefusedError(
                "order", "an image came; expected raw data (readouts), of which this server makes images"
            )

    def _configure(self, message: Message) -> None:
        """Read a configuration, or parameters that change it; other texts before readouts are refused."""
        if self.lines is not None and self.lines.readouts:
            if message.kind == Kind.TEXT:
                return  # what a client says meanwhile is for people
            raise RefusedError("order", "a configuration came after readouts; expected it before")
        self.order = parse(message.text, self.order, self._house.allowed)
        self._configured = True

    def _hand_over(self, frame: Frame) -> None:
        self._out.room()
        self._house.dispatcher.submit(self, frame)

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
        limit = getattr(self._limits, name)
        raise RefusedError(f"limit:{name}", f"waited too long: more than this server's limit of {limit:g} s ({name})")

    def _broken(self, slow: bool) -> None:
        self.fail(RefusedError(_GONE, "the client does not take its images" if slow else "the client is gone"))
