"""Between the server and its worker: one JSON text and some buffers a message, over a socket that both trust.

length of the JSON u32, JSON {…, "buffers": [bytes of each]}, buffers
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_PREFIX = struct.Struct("<I")
_VECTORS = 512  # buffers handed to the system at a time
_STEP = 2**20

Buffer = bytes | bytearray | memoryview


def send(sock: socket.socket, told: dict[str, Any], buffers: Sequence[Sequence[Buffer]] = ()) -> None:
    """Send a message; each of its buffers may come in parts, which are not copied together first."""
    sizes = [sum(len(part) for part in parts) for parts in buffers]
    text = json.dumps(told | {"buffers": sizes}).encode()
    sock.sendall(_PREFIX.pack(len(text)) + text)
    parts = [memoryview(part) for parts in buffers for part in parts if len(part)]
    at = 0
    while at < len(parts):
        taken = sock.sendmsg(parts[at : at + _VECTORS])
        while taken:  # what the socket took may end within a part
            whole = min(taken, len(parts[at]))
            parts[at], taken = parts[at][whole:], taken - whole
            at += not len(parts[at])


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[memoryview]]:
    """Wait for a message; EOFError if the other side is gone."""
    (length,) = _PREFIX.unpack(_exactly(sock, _PREFIX.size))
    told = json.loads(bytes(_exactly(sock, length)))
    sizes = told.pop("buffers")
    return told, [memoryview(_exactly(sock, size)) for size in sizes]


def _exactly(sock: socket.socket, count: int) -> bytearray:
    out = bytearray(count)
    view, at = memoryview(out), 0
    while at < count:
        got = sock.recv_into(view[at : at + _STEP])
        if not got:
            raise EOFError("the other side is gone")
        at += got
    return out
