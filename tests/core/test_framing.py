"""Messages over a socket, and what is none."""

import json
import os
import socket
import struct
import threading
import time

import pytest

from upmri.core.framing import MOST_BYTES, receive_json, send_json


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_a_message_comes_as_it_went(ends):
    message = {"text": "Größe\ud800", "number": 0.1, "long": "x" * 10**6, "list": [None, True, {"a": 1}]}
    sender = threading.Thread(target=send_json, args=(ends[0], message))
    sender.start()
    assert receive_json(ends[1]) == message
    sender.join()


def test_open_files_come_with_it(ends, tmp_path):
    path = tmp_path / "x"
    path.write_text("hello")
    with path.open() as file:
        send_json(ends[0], {"a": 1}, [file.fileno()])
    files = []
    assert receive_json(ends[1], files=files) == {"a": 1}
    with os.fdopen(files[0]) as file:
        assert file.read() == "hello"


@pytest.mark.parametrize(
    "data", [b"[1]", b"{", b"\xff\xff", b"[" * 10**5, json.dumps({"a": 1}).encode()[:-1] + b" ,}", b"9" * 5000]
)
def test_what_is_no_message(ends, data):
    ends[0].sendall(struct.pack("<I", len(data)) + data)
    with pytest.raises(ValueError, match="."):
        receive_json(ends[1])


def test_a_length_beyond_the_limit_takes_no_memory(ends):
    ends[0].sendall(struct.pack("<I", MOST_BYTES + 1))
    with pytest.raises(ValueError, match="bytes"):
        receive_json(ends[1])


def test_an_end_and_a_deadline(ends):
    with pytest.raises(TimeoutError):
        receive_json(ends[1], deadline=time.monotonic() + 0.05)
    ends[0].sendall(struct.pack("<I", 10) + b"half")
    ends[0].close()
    with pytest.raises(EOFError):
        receive_json(ends[1], deadline=time.monotonic() + 60)
