"""Damaged streams: whatever is in them, the server answers or closes the connection, and continues.

A refusal is an answer that begins with ERROR. An error of UPMRI itself ends a stream with the code "fault" or "failed"
in the log of the server; no damaged stream may do that.
"""

from __future__ import annotations

import random
import socket

import pytest

from upmri.server import wire
from upmri.server.wire import EndedError, Kind

QUICK, MANY = 40, 1000


def mutate(parts: list[bytes], draw: random.Random) -> bytes:
    """Return a stream with some of its messages, bytes or lengths other than they were."""
    parts = list(parts)
    for _ in range(draw.randint(1, 3)):
        at = draw.choice([number for number, one in enumerate(parts) if one])
        part, kind = bytearray(parts[at]), draw.randrange(9)
        if kind == 0:  # bits, mostly of a header
            for _ in range(draw.randint(1, 8)):
                part[draw.randrange(min(len(part), 400))] ^= 1 << draw.randrange(8)
        elif kind == 1:  # a number of two or four bytes, at one of its ends
            where, size = draw.randrange(min(len(part), 350)), draw.choice([2, 4])
            part[where : where + size] = draw.choice([bytes(size), b"\xff" * size, b"\x00" * (size - 1) + b"\x80"])
        elif kind == 2:
            del part[draw.randrange(len(part)) :]
        elif kind == 3:
            part[draw.randrange(len(part)) : 0] = draw.randbytes(draw.randint(1, 40))
        elif kind == 4:
            part = bytearray()
        elif kind == 5:
            part = part * draw.randint(2, 5)
        elif kind == 6:
            other = draw.randrange(len(parts))
            parts[other], part = bytes(part), bytearray(parts[other])
        elif kind == 7 and len(part) > 400:  # samples: NaN, infinity, huge
            value = draw.choice([b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f"])
            where = 342 + 4 * draw.randrange((len(part) - 342) // 4)
            part[where : where + 4] = value
        else:
            part[:] = draw.randbytes(len(part))
        parts[at] = bytes(part)
    return b"".join(parts)


def answers(peer, stream: bytes) -> list[wire.Message]:
    """Send a stream, and read to the end, which must come."""
    found = []
    peer.socket.settimeout(30)
    try:
        peer.send(stream)
        peer.socket.shutdown(socket.SHUT_WR)
        while True:
            found.append(peer.next())
    except (EndedError, ConnectionError):
        return found
    finally:
        peer.socket.close()


@pytest.mark.parametrize(
    ("first", "count"), [(0, QUICK), pytest.param(QUICK, MANY, marks=pytest.mark.soak)], ids=["some", "many"]
)
def test_mutated_streams(server, peer, small, repeated, messages, check_other, first, count):
    streams = [
        [wire.config_text_message('{"method": "sense"}'), *messages(small), wire.close_message()],
        [wire.config_file_message("zero-filled"), *messages(repeated)[:80], wire.close_message()],
    ]
    check_other(server)  # a worker that an earlier test has killed is replaced now
    known, before, images, refused = len(server.events()), server.memory(), 0, 0
    for number in range(first, first + count):
        draw = random.Random(number)
        found = answers(peer(server.to), mutate(draw.choice(streams), draw))
        images += any(message.kind == Kind.IMAGE for message in found)
        refused += any(message.text.startswith("ERROR: ") for message in found)
        assert server.process.poll() is None, number
        if number % 50 == 0:
            check_other(server)
    check_other(server)
    # A worker is replaced only where a client was gone before its slice was ready, which a busy machine brings about.
    lost = [event for event in server.events()[known:] if event["event"] == "worker_lost"]
    assert not [event for event in lost if not event["cancelled"]]
    assert server.memory() < before + 150
    assert not [event for event in server.events() if event["event"] == "fault"]
    assert not [event for event in server.events() if event.get("code") in ("fault", "failed")]
    # Some do no harm, most are refused.
    assert images > 0.03 * count
    assert refused > 0.5 * count
