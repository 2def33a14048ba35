"""Monitoring over HTTP; ``timeout`` below only keeps a failing test from hanging."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading

import pytest

from upmri.server import health
from upmri.server.counters import Counters
from upmri.server.health import HealthServer

GUARD = 240


@pytest.fixture
def state():
    return {"ready": True, "state": "ready"}


@pytest.fixture
def monitor(state):
    made = HealthServer(socket.create_server(("127.0.0.1", 0)), Counters(), lambda: state)
    yield made
    made.close()


def get(monitor, path, method="GET"):
    """The status, the type and the text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", monitor.server_address[1], timeout=GUARD)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def raw(monitor, request):
    """The answer to bytes."""
    with socket.create_connection(monitor.server_address, GUARD) as sock:
        sock.sendall(request)
        return sock.makefile("rb").read()


def test_metrics_are_those_of_the_counters(monitor):
    monitor.counters.add("images_total", 5)
    status, kind, text = get(monitor, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4")
    assert text == monitor.counters.prometheus()
    assert "upmri_images_total 5" in text.splitlines()


def test_health_follows_the_state(monitor, state):
    status, kind, text = get(monitor, "/health")
    assert (status, kind, json.loads(text)) == (200, "application/json", state)
    state["ready"] = False
    assert get(monitor, "/health")[0] == 503


def test_other_requests(monitor, capsys):
    assert get(monitor, "/elsewhere")[0] == 404
    assert get(monitor, "/health", "POST")[0] == 501
    assert raw(monitor, b"\xff" * 100 + b"\r\n").startswith(b"HTTP/1.0 400 ")
    assert capsys.readouterr() == ("", "")


def test_a_silent_connection_does_not_block_the_others(monitor, monkeypatch):
    monkeypatch.setattr(health, "_SECONDS", 10 * GUARD)  # nothing below waits for it
    with socket.create_connection(monitor.server_address, GUARD) as silent:
        silent.sendall(b"GET /hea")
        for _ in range(3):
            assert get(monitor, "/health")[0] == 200
        silent.sendall(b"lth HTTP/1.1\r\n\r\n")
        assert b"200" in silent.recv(1000)


def test_a_request_has_a_time_limit(monitor, monkeypatch):
    monkeypatch.setattr(health, "_SECONDS", 0.1)
    assert raw(monitor, b"GET /health HTTP/1.1\r\n") == b""  # the headers never end


def test_a_request_has_a_size_limit(monitor, monkeypatch):
    monkeypatch.setattr(health, "_SECONDS", 10 * GUARD)
    assert raw(monitor, b"X" * health._REQUEST_BYTES).startswith(b"HTTP/1.0 400 ")


def test_the_number_of_connections_is_limited(monitor, monkeypatch):
    monkeypatch.setattr(health, "_SECONDS", 10 * GUARD)
    several = [socket.create_connection(monitor.server_address, GUARD) for _ in range(health._CONNECTIONS)]
    with socket.create_connection(monitor.server_address, GUARD) as one_more:
        assert one_more.recv(100) == b""
    for one in several:
        one.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert b"200" in one.recv(1000)
        while one.recv(1000):
            pass
        one.close()
    assert get(monitor, "/health")[0] == 200


def test_a_fault_is_logged_by_its_kind_alone(monitor, caplog):
    def fail():
        raise ZeroDivisionError("Jane Doe")

    monitor.health = fail
    with caplog.at_level(logging.INFO, "upmri.server"), pytest.raises((OSError, http.client.HTTPException)):
        get(monitor, "/health")
    [record] = caplog.records
    assert (record.getMessage(), record.facts) == ("fault", {"kind": "ZeroDivisionError", "where": "health"})
    monitor.health = lambda: {"ready": True}
    assert get(monitor, "/health")[0] == 200


def test_a_thread_that_cannot_start_uses_up_no_connection(monitor, monkeypatch):
    def fail(*_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        for _ in range(2 * health._CONNECTIONS):
            assert raw(monitor, b"") == b""
    assert get(monitor, "/health")[0] == 200


def test_after_close_nobody_answers(state):
    made = HealthServer(socket.create_server(("127.0.0.1", 0)), Counters(), lambda: state)
    made.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(made.server_address, GUARD)
