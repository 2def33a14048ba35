"""The listening process, run in this one, with a dispatcher that has no worker."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
import urllib.request

import pytest

from upmri import InputError
from upmri.server import wire
from upmri.server.counters import Counters
from upmri.server.limits import Limits
from upmri.server.listen import Server, is_local
from upmri.server.order import Order
from upmri.server.places import Places
from upmri.server.shared import Shared
from upmri.server.wire import ERROR, Incoming, Kind

GUARD = 240  # seconds after which a failing test stops to wait


class FakeDispatcher:
    """Starts and stops, and knows no frame."""

    ready = True

    def __init__(self):
        self.started, self.stopped = threading.Event(), False

    def start(self):
        self.started.set()

    def stop(self):
        self.stopped = True

    def watch(self):
        pass

    def forget(self, stream, late=False):
        pass

    def wake(self, stream):
        pass


def shared(**limits) -> Shared:
    limit = Limits(linger_seconds=0.5, **limits)
    return Shared(limit, Order(method="sense"), ("sense",), FakeDispatcher(), Counters(), Places(limit))


def serve(server: Server, around: Shared, use) -> None:
    """Serve in this thread, with ``use()`` in another, after which SIGTERM comes."""
    failures = []

    def run():
        try:
            assert around.dispatcher.started.wait(GUARD)
            use()
        except BaseException as error:
            failures.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    server.serve()
    thread.join()
    if failures:
        raise failures[0]


def answers(sock: socket.socket) -> list[wire.Message]:
    sock.settimeout(GUARD)
    incoming, found = Incoming(sock.recv, Limits()), []
    while not found or found[-1].kind != Kind.CLOSE:
        found.append(incoming.message())
    return found


@pytest.fixture(autouse=True)
def _no_systemd(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)


def test_clients_are_served_until_a_signal(caplog):
    around = shared()
    server = Server("127.0.0.1", 0, around, health_port=0)

    def use():
        with socket.create_connection(server.address, GUARD) as sock:
            sock.sendall(wire.config_file_message("os.system"))
            error, _ = answers(sock)
            assert error.text.startswith(f"{ERROR}method: 'os.system' is not one of sense")
        port = server._monitor.server_address[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=GUARD) as answer:
            assert answer.status == 200

    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with caplog.at_level(logging.INFO, "upmri.server"):
        serve(server, around, use)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert around.dispatcher.stopped
    assert around.counters.get("streams_total") == 1
    assert around.counters.get("streams_refused_total", "config") == 1
    names = [record.getMessage() for record in caplog.records]
    assert sorted(names) == ["draining", "listening", "stopped", "stream_begin", "stream_end"]
    assert (names[0], names[-1]) == ("listening", "stopped")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(server.address, GUARD)


def test_one_client_too_many_gets_an_error(make_xml):
    around = shared(clients=1, drain_seconds=0.1)
    begin = wire.config_file_message("sense") + wire.header_message(make_xml())
    server = Server("127.0.0.1", 0, around)
    first = []

    def use():
        first.append(socket.create_connection(server.address, GUARD))
        first[0].sendall(begin)
        while not around.places._served:
            time.sleep(0.01)
        with socket.create_connection(server.address, GUARD) as second:
            second.sendall(begin)
            assert answers(second)[0].text.startswith(f"{ERROR}the server is busy with 1 clients")

    serve(server, around, use)
    with first[0] as sock:  # it was open at the signal, and did not end in time
        assert answers(sock)[0].text.startswith(f"{ERROR}the server is stopping")
    assert around.counters.get("streams_refused_total", "limit:clients") == 1
    assert around.counters.get("streams_refused_total", "stopping") == 1


def test_clients_that_send_nothing_keep_nobody_out(make_xml):
    around = shared(drain_seconds=0.1)
    server = Server("127.0.0.1", 0, around)
    begin = wire.config_file_message("sense") + wire.header_message(make_xml())
    silent = []

    def use():
        silent.extend(socket.create_connection(server.address, GUARD) for _ in range(8))
        with socket.create_connection(server.address, GUARD) as honest:
            honest.sendall(begin + wire.close_message())
            assert "without a readout" in answers(honest)[0].text  # it was served
        for one in silent[:4]:
            assert "sent no header" in answers(one)[0].text

    serve(server, around, use)
    for one in silent:
        one.close()
    assert around.counters.get("streams_refused_total", "limit:per_address") == 5
    assert around.counters.get("streams_refused_total", "limit:clients") == 0


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_is_informed(monkeypatch, tmp_path, kind):
    name = f"upmri-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify") if kind == "path" else f"\0{name}")
        systemd.settimeout(GUARD)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify") if kind == "path" else f"@{name}")
        around = shared()
        serve(Server("127.0.0.1", 0, around), around, lambda: None)
        assert [systemd.recv(100), systemd.recv(100)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize(("given", "expected"), [(None, "127.0.0.2"), ("127.0.0.1", "127.0.0.1")])
def test_the_address_of_the_health_port(given, expected):
    around = shared()
    server = Server("127.0.0.2", 0, around, 0, given)
    assert server.address[0] == "127.0.0.2"
    assert server._monitor.server_address[0] == expected
    serve(server, around, lambda: None)


def test_ports_that_cannot_be_used():
    for port in (-1, 70000):
        with pytest.raises(InputError) as error:
            Server("127.0.0.1", port, shared())
        assert error.value.field == "--port"
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as free:
        taken, port = other.getsockname()[1], free.getsockname()[1]
        free.close()
        with pytest.raises(InputError) as error:
            Server("127.0.0.1", taken, shared())
        assert error.value.field == "--port"
        with pytest.raises(InputError) as error:
            Server("127.0.0.1", port, shared(), health_port=taken)
        assert error.value.field == "--health-port"
        socket.create_server(("127.0.0.1", port)).close()  # which was not kept


def test_local_addresses():
    assert all(map(is_local, ("127.0.0.1", "::1", "localhost")))
    assert not any(map(is_local, ("0.0.0.0", "::", "10.0.0.1", "scanner")))
