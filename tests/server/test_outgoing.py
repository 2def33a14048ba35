import socket
import threading

import pytest

from upmri.server.counters import Counters
from upmri.server.outgoing import Outgoing

GUARD = 240  # seconds after which a failing test stops to wait


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with ours, theirs:
        yield ours, theirs


def make(sock, max_bytes=1000, seconds=GUARD, on_break=lambda _: None):
    return Outgoing(sock, max_bytes, seconds, Counters(), on_break)


def test_messages_go_in_their_order(pair):
    ours, theirs = pair
    out = make(ours)
    out.put(b"one", b"two")
    out.put(b"three")
    assert out.finish(GUARD)
    assert theirs.recv(100) == b"onetwothree"
    out.put(b"too late")
    out.close()
    ours.close()
    assert theirs.recv(100) == b""


def test_waiting_ends_once_the_client_reads(pair):
    ours, theirs = pair
    out = make(ours)
    out.put(bytes(10**6))
    enough = threading.Event()
    waiting = threading.Thread(target=lambda: (out.wait_for_space(), enough.set()))
    waiting.start()
    assert not enough.wait(0.2)
    left = 10**6
    while left:
        left -= len(theirs.recv(2**16))
    assert enough.wait(GUARD)
    waiting.join()
    assert out.finish(GUARD)
    out.close()


def test_a_client_that_does_not_read_is_given_up(pair):
    ours, _ = pair
    slow = []
    out = make(ours, seconds=0.2, on_break=slow.append)
    out.put(bytes(10**6))
    assert not out.finish(GUARD)
    out.close()
    assert (out.broken, slow) == (True, [True])
    out.wait_for_space()


def test_a_client_that_is_gone_is_noticed(pair):
    ours, theirs = pair
    slow = []
    theirs.close()
    out = make(ours, on_break=slow.append)
    out.put(b"hello")
    assert not out.finish(GUARD)
    out.close()
    assert slow == [False]
