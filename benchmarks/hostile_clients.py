"""Clients for `upmri serve` on this machine: honest ones, and hostile ones of ten kinds.

Used by `hostile_peers.py` and by the tests. Addresses are those of the loopback network 127.0.0.0/8, which on Linux are
all this machine.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from upmri import formats
from upmri.server import sending, wire
from upmri.server.limits import Limits
from upmri.server.wire import Incoming, Kind

PAUSE = 0.2  # seconds between two tries of a hostile client
To = tuple[str, int]
Images = list[tuple[int, int, int, bytes]]


def scan_messages(path: Path) -> list[bytes]:
    """Return the header and the readouts of a scan."""
    with formats.open_source(path) as source:
        return list(sending.messages(source, None))


# --- honest -----------------------------------------------------------------------------------------------------------


def exchange(to: To, source: str, config: str, messages: Sequence[bytes], seconds: float = 600.0) -> Images:
    """Send a scan from an address of this machine and return its images: series, repetition, slice, pixels."""
    whole = b"".join([wire.config_text_message(config), *messages, wire.close_message()])
    images: Images = []
    with socket.create_connection(to, seconds, source_address=(source, 0)) as sock:
        sender = threading.Thread(target=sock.sendall, args=(whole,), daemon=True)
        sender.start()
        incoming = Incoming(sock.recv, Limits(stream_bytes=2**50))
        while (message := incoming.message()).kind != Kind.CLOSE:
            if message.kind == Kind.IMAGE:
                head = message.head
                images.append((head.image_series_index, head.repetition, head.slice, bytes(message.body)))
            elif message.text.startswith(wire.ERROR):
                raise RuntimeError(message.text)
        sender.join()
    return sorted(images)


# --- hostile ----------------------------------------------------------------------------------------------------------


@dataclass
class Attacker:
    """One hostile client, that tries again and again until it is stopped; ``messages`` are those of a scan."""

    to: To
    source: str
    messages: Sequence[bytes]
    stop: threading.Event
    sockets: list[socket.socket] = field(default_factory=list)

    def connect(self, first: bytes = b"") -> socket.socket:
        """Connect and send some bytes."""
        sock = socket.create_connection(self.to, 2.0, source_address=(self.source, 0))
        self.sockets.append(sock)
        if first:
            sock.sendall(first)
        return sock

    def scan(self, config: str, part: float = 1.0) -> bytes:
        """Return a configuration and a part of a scan."""
        several = self.messages[: max(2, int(part * len(self.messages)))]
        close = [wire.close_message()] if part == 1 else []
        return b"".join([wire.config_text_message(config), *several, *close])

    def read(self, sock: socket.socket) -> None:
        """Receive until the server closes the connection."""
        while not self.stop.is_set():
            with suppress(TimeoutError):
                if not sock.recv(2**16):
                    return

    def attempt(self, kind: Attack) -> None:
        """Try once, and close everything."""
        with suppress(OSError):
            kind(self)
        for sock in self.sockets:
            sock.close()
        self.sockets.clear()


Attack = Callable[[Attacker], None]
SENSE, SLOW, COSTLY = '{"method": "sense"}', '{"method": "upmri"}', '{"method": "upmri", "samples": 16, "adapt": true}'


def silent(one: Attacker) -> None:
    """Connects and sends nothing."""
    one.read(one.connect())


def slow(one: Attacker) -> None:
    """Sends a scan byte by byte."""
    sock = one.connect(one.scan(SENSE, 0.1))
    for byte in one.messages[-1]:
        sock.send(bytes([byte]))
        if one.stop.wait(0.05):
            return


def gone(one: Attacker) -> None:
    """Sends half of a scan and resets the connection."""
    sock = one.connect(one.scan(SENSE, 0.5))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def garbage(one: Attacker) -> None:
    """Sends random bytes, at first or within a scan."""
    chance = random.Random(time.monotonic_ns())
    one.read(one.connect((one.scan(SENSE, 0.2) if chance.random() < 0.5 else b"") + chance.randbytes(2**16)))


def huge(one: Attacker) -> None:
    """Declares messages and images of any size."""
    xml = one.messages[0]
    for raw in (
        struct.pack("<HI", Kind.CONFIG_TEXT, 2**32 - 1),
        wire.config_text_message(SENSE) + struct.pack("<HI", Kind.HEADER, 2**32 - 1),
        wire.config_text_message(SENSE) + xml.replace(b"<x>", b"<x>9999").replace(b"<y>", b"<y>9999") + one.messages[1],
        wire.config_text_message(SENSE) + xml + struct.pack("<H", Kind.WAVEFORM) + b"\xff" * 240,
    ):
        one.read(one.connect(raw))


def many(one: Attacker) -> None:
    """Opens many connections, each with a byte."""
    for _ in range(40):
        with suppress(OSError):
            one.connect(b"\x01")
    one.stop.wait(1.0)


def costly(one: Attacker) -> None:
    """Asks for the most expensive reconstruction and waits for it."""
    one.read(one.connect(one.scan(COSTLY)))


def costly_gone(one: Attacker) -> None:
    """Asks for the most expensive reconstruction and leaves."""
    one.connect(one.scan(COSTLY))
    one.stop.wait(1.5)


def half_closed(one: Attacker) -> None:
    """Sends a scan for a slow method, stops to send, and reads everything."""
    sock = one.connect(one.scan(SLOW))
    sock.shutdown(socket.SHUT_WR)
    one.read(sock)


def deaf(one: Attacker) -> None:
    """Sends a scan and never reads its images."""
    one.connect(one.scan('{"method": "sense", "complex": true}'))
    one.stop.wait(5.0)


KINDS: tuple[Attack, ...] = (silent, slow, gone, garbage, huge, many, costly, costly_gone, half_closed, deaf)


def attack(to: To, messages: Sequence[bytes], kinds: Sequence[Attack], stop: threading.Event) -> Counter[str]:
    """Run hostile clients of these kinds until they are stopped; return the number of tries of each kind."""
    tries: Counter[str] = Counter()

    def run(number: int) -> None:
        kind = kinds[number]
        one = Attacker(to, f"127.0.2.{number + 1}", messages, stop)
        while not stop.is_set():
            one.attempt(kind)
            tries[kind.__name__] += 1
            stop.wait(PAUSE)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(kinds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tries
