import socket
import threading

import pytest

from upmri.server.counters import Metrics
from upmri.server.outgoing import Outgoing


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with ours, theirs:
        yield ours, theirs


def make(sock, most=1000, patience=10.0, on_break=lambda _: None):
    return Outgoing(sock, most, patience, Metrics(), on_break)


def test_messages_go_in_their_order(pair):
    ours, theirs = pair
    out = make(ours)
    out.put(b"one", b"two")
    out.put(b"three")
    assert out.finish(10)
    assert theirs.recv(100) == b"onetwothree"
    out.put(b"too late")
    out.close()
    ours.close()
    assert theirs.recv(100) == b""


def test_there_is_room_once_the_client_reads(pair):
    ours, theirs = pair
    out = make(ours)
    out.put(bytes(10**6))
    roomy = threading.Event()
    waiting = threading.Thread(target=lambda: (out.room(), roomy.set()))
    waiting.start()
    assert not roomy.wait(0.2)
    left = 10**6
    while left:
        left -= len(theirs.recv(2**16))
    assert roomy.wait(10)
    waiting.join()
    assert out.finish(10)
    out.close()


def test_a_client_that_does_not_read_is_given_up(pair):
    ours, _ = pair
    told = []
    out = make(ours, patience=0.2, on_break=told.append)
    out.put(bytes(10**6))
    assert not out.finish(10)
    out.close()
    assert (out.broken, told) == (True, [True])
    out.room()


def test_a_client_that_is_gone_is_noticed(pair):
    ours, theirs = pair
    told = []
    theirs.close()
    out = make(ours, on_break=told.append)
    out.put(b"hello")
    assert not out.finish(10)
    out.close()
    assert told == [False]
