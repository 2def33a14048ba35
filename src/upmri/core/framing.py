"""Messages between two processes of one machine: JSON with its length in front, over a Unix socket.

JSON instead of pickle: what the other process sends is data and cannot become code.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
MOST_BYTES = 2**25  # of one message


def send_json(link: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    """Send a message, and with it open files."""
    data = json.dumps(message).encode()
    if files:
        socket.send_fds(link, [_LENGTH.pack(len(data))], files)
        link.sendall(data)
    else:
        link.sendall(_LENGTH.pack(len(data)) + data)


def receive_json(
    link: socket.socket, *, deadline: float | None = None, files: list[int] | None = None
) -> dict[str, Any]:
    """Receive a message.

    Parameters
    ----------
    link
        Socket of the other process.
    deadline
        Time of ``time.monotonic()`` up to which to wait; None waits for ever.
    files
        List to which open files are added that come with the message. Without it they are not accepted.

    Raises
    ------
    EOFError
        When the other side closed the socket.
    TimeoutError
        When the deadline passed.
    ValueError
        When what came is not a message.
    """
    prefix = b""
    if files is not None:
        prefix, received, _, _ = socket.recv_fds(link, _LENGTH.size, 4)
        files += received
    (length,) = _LENGTH.unpack(prefix + _receive_bytes(link, _LENGTH.size - len(prefix), deadline))
    if length > MOST_BYTES:
        raise ValueError(f"a message of {length} bytes")
    try:
        message = json.loads(_receive_bytes(link, length, deadline))
    except RecursionError as error:
        raise ValueError("a message that is nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message


def _receive_bytes(link: socket.socket, count: int, deadline: float | None) -> bytes:
    found = bytearray()
    while len(found) < count:
        if deadline is not None:
            link.settimeout(max(1e-3, deadline - time.monotonic()))
        part = link.recv(min(count - len(found), 2**20))
        if not part:
            raise EOFError("the other process is gone")
        found += part
    link.settimeout(None)
    return bytes(found)
