"""Messages between the server and its worker: a JSON object and some buffers, over a socket that both trust.

length of the JSON as u32, JSON {…, "buffers": [bytes of each]}, buffers
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


def send_message(sock: socket.socket, content: dict[str, Any], buffers: Sequence[Sequence[Buffer]] = ()) -> None:
    """Send a message; each of its buffers may consist of several parts, which are not copied into one first."""
    sizes = [sum(len(part) for part in parts) for parts in buffers]
    text = json.dumps(content | {"buffers": sizes}).encode()
    sock.sendall(_PREFIX.pack(len(text)) + text)
    parts = [memoryview(part) for parts in buffers for part in parts if len(part)]
    at = 0
    while at < len(parts):
        taken = sock.sendmsg(parts[at : at + _VECTORS])
        while taken:  # the bytes that were sent may end within a part
            whole = min(taken, len(parts[at]))
            parts[at], taken = parts[at][whole:], taken - whole
            at += not len(parts[at])


def receive_message(sock: socket.socket) -> tuple[dict[str, Any], list[memoryview]]:
    """Wait for a message and return its JSON object and its buffers; EOFError if the connection was closed."""
    (length,) = _PREFIX.unpack(_exactly(sock, _PREFIX.size))
    content = json.loads(bytes(_exactly(sock, length)))
    sizes = content.pop("buffers")
    return content, [memoryview(_exactly(sock, size)) for size in sizes]


def _exactly(sock: socket.socket, count: int) -> bytearray:
    out = bytearray(count)
    view, at = memoryview(out), 0
    while at < count:
        got = sock.recv_into(view[at : at + _STEP])
        if not got:
            raise EOFError("the connection was closed")
        at += got
    return out
