import socket
import threading

import pytest

from upmri.server import link


def both(content, buffers):
    """Send a message over a socket whose buffers are smaller, and return what arrives."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with ours, theirs:
        sender = threading.Thread(target=link.send_message, args=(ours, content, buffers))
        sender.start()
        found = link.receive_message(theirs)
        sender.join()
    return found


@pytest.mark.parametrize("sizes", [[], [0], [1], [5, 0, 7], [10**6, 3], [3] * 2000, [70000] * 20])
def test_what_is_sent_arrives(sizes):
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    content, [whole, other] = both({"x": [1, "ü"]}, [parts, [b"end"]])
    assert content == {"x": [1, "ü"]}
    assert bytes(whole) == b"".join(parts)
    assert bytes(other) == b"end"


def test_the_other_side_is_gone():
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"\x10\x00\x00\x00{")
        theirs.close()
        with pytest.raises(EOFError):
            link.receive_message(ours)
