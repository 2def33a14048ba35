"""Parts that fail are replaced, and the next stream works."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from upmri.server import client, wire
from upmri.server.wire import Kind

GO = wire.config_file_message("sense")
GUARD = 240  # seconds after which a failing test stops to wait
RUN = [sys.executable, "-c", "from upmri.cli import main, serve; main()"]


@pytest.fixture
def held(server, peer, shepp_logan, messages):
    """A stream whose frame is at the worker, which is held there; and the worker's number."""
    pid = server.worker_pid
    os.kill(pid, signal.SIGSTOP)
    several = messages(shepp_logan("-m", "64", "-c", "4", "-n", "0.02", "-r", "3"))
    yield peer(server.to).send(GO, *several[:-1]), several[-1], pid
    if Path(f"/proc/{pid}").exists():
        os.kill(pid, signal.SIGCONT)


def wait_for_work(server):
    """Wait until the worker has the first frame, and another one waits behind it: for a moment the first one waits."""
    deadline = time.monotonic() + GUARD
    while not server.metric("frames_working") or not server.metric("frames_waiting"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_worker_is_killed_at_a_slice(server, held, check_other):
    stream, _, pid = held
    starts = server.metric("worker_starts_total")
    wait_for_work(server)
    os.kill(pid, signal.SIGKILL)
    [error] = stream.errors()
    assert "the worker died at this slice and is replaced; send the scan again" in error
    check_other(server)
    assert server.metric("worker_starts_total") == starts + 1
    assert server.event("worker_lost")["exit"] == -signal.SIGKILL
    assert server.get("/health")[0] == 200


def test_the_worker_is_killed_between_two_slices(server, peer, repeated, messages):
    """No stream fails: the server sends the next worker everything that it needs."""
    several = messages(repeated)
    cut = 2 + 3 * 34  # the header, the noise scan and three repetitions
    stream = peer(server.to).send(GO, *several[:cut])
    images = 0
    while images < 3:
        images += stream.next().kind == Kind.IMAGE
    assert stream.next().text.startswith("image 3")
    starts = sum(event["event"] == "worker_ready" for event in server.events())
    os.kill(server.worker_pid, signal.SIGKILL)
    server.event("worker_ready", count=starts + 1)
    found = stream.send(*several[cut:], wire.close_message()).rest()
    assert images + sum(message.kind == Kind.IMAGE for message in found) == 8
    assert not [message.text for message in found if message.text.startswith("ERROR")]


@pytest.mark.parametrize(
    "how",
    [
        "all sent",
        *(pytest.param(how, marks=pytest.mark.soak) for how in ("in the middle", "more than is read", "reset")),
    ],
)
def test_a_client_that_is_gone_does_not_keep_the_worker(server, held, shepp_logan, messages, check_other, how):
    """Its slice would take for ever: the worker is replaced, and the next client gets its images."""
    stream, last, pid = held
    starts, lost = server.metric("worker_starts_total"), [e for e in server.events() if e["event"] == "worker_lost"]
    if how != "in the middle":
        stream.send(last, wire.close_message())
    if how == "more than is read":  # so that the end of the connection stays behind bytes that nobody reads
        stream.socket.setblocking(False)
        with suppress(BlockingIOError):
            for message in 20 * messages(shepp_logan("-m", "128", "-c", "8", "-n", "0.02", "-r", "20")):
                stream.socket.send(message)
    elif how == "reset":
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for_work(server)
    stream.socket.close()
    check_other(server)
    assert not Path(f"/proc/{pid}").exists()
    assert server.metric("worker_starts_total") == starts + 1
    assert server.event("worker_lost", len(lost) + 1)["cancelled"] == 1


@pytest.mark.soak
def test_a_slow_job_does_not_delay_others(start, peer, small, messages, check_other):
    """Of two workers one draws very many images; the other one serves everybody else, and is not replaced."""
    server = start("--workers", "2", "--limit", "samples=100000")
    slow = wire.config_text_message('{"method": "upmri", "samples": 100000}')
    stream = peer(server.to).send(slow, *messages(small), wire.close_message())
    while not server.metric("frames_working"):
        time.sleep(0.01)
    for _ in range(3):
        check_other(server)
    assert server.metric("frames_working") == 1
    stream.socket.close()
    assert server.event("worker_lost")["cancelled"] == 1
    server.event("worker_ready", count=3)
    assert server.metric("workers_ready") == 2


def test_a_client_that_only_stops_to_send_gets_its_images(server, held):
    stream, last, pid = held
    stream.send(last, wire.close_message())
    stream.socket.shutdown(socket.SHUT_WR)
    message = stream.next()
    while not message.text.startswith(wire.WORKING):
        message = stream.next()
    os.kill(pid, signal.SIGCONT)
    found = stream.rest()
    assert sum(message.kind == Kind.IMAGE for message in found) == 3


@pytest.mark.soak
def test_time_limits(start, peer, shepp_logan, small, messages, check_other):
    """Of a worker that takes too long, of a client that does not read, and of streams that do not end."""
    limits = {"frame_seconds": 2, "idle_seconds": 1.5, "out_bytes": 10**6, "linger_seconds": 0.5, "drain_seconds": 0.5}
    server = start(*(word for name, value in limits.items() for word in ("--limit", f"{name}={value}")))
    pid = server.worker_pid
    os.kill(pid, signal.SIGSTOP)
    [error] = peer(server.to).send(GO, *messages(small), wire.close_message()).errors()
    assert "the worker took longer than 2 s" in error
    check_other(server)
    assert not Path(f"/proc/{pid}").exists()

    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.settimeout(GUARD)
    deaf.connect(server.to)
    config = wire.config_text_message('{"method": "zero-filled", "complex": true}')
    with deaf:
        with suppress(ConnectionError):
            for message in [config, *messages(shepp_logan("-m", "128", "-c", "1", "-n", "0.02", "-r", "60"))]:
                deaf.sendall(message)
        assert server.event("stream_end", code="gone")["images"] < 60
    check_other(server)

    stream = peer(server.to).send(GO, *messages(small)[:-1])
    begun = sum(event["event"] == "stream_begin" for event in server.events())
    server.event("stream_begin", count=begun)
    pid = server.worker_pid
    server.process.send_signal(signal.SIGTERM)
    [error] = stream.errors()
    assert "the server is stopping; send the scan again later" in error
    assert server.process.wait(GUARD) == 0
    assert not Path(f"/proc/{pid}").exists()


def test_the_client_is_killed_while_it_sends(server, shepp_logan, tmp_path, check_other, popen):
    path = shepp_logan("-m", "128", "-c", "8", "-n", "0.02", "-r", "20")
    before = sum(event["event"] == "stream_begin" for event in server.events())
    sender = popen(
        [*RUN, "stream", str(path), "--to", f"127.0.0.1:{server.port}", "-m", "sense", "-o", str(tmp_path / "x.npy")],
        stderr=subprocess.DEVNULL,
    )
    number = server.event("stream_begin", count=before + 1)["stream"]
    sender.kill()
    sender.wait()
    assert server.event("stream_end", stream=number)["code"] in ("cut", "gone", "done")
    check_other(server)
    assert not (tmp_path / "x.npy").exists()


def test_a_full_disk_for_the_log_and_a_server_that_was_killed(start, small):
    """/dev/full behaves like a full disk; and a worker ends when its server was killed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = start("--port", str(port), log=Path("/dev/full"))
    found, deadline = [], time.monotonic() + GUARD
    while len(found) < 2 and time.monotonic() < deadline:
        try:
            found.append(client.stream(small, ("127.0.0.1", port), {"method": "sense"}, max_bytes=2**30))
        except client.InputError as error:  # not listening yet
            assert error.field == "--to"
            assert server.process.poll() is None
            time.sleep(0.05)
    first, second = found
    assert (first.image - second.image).abs().max() == 0
    [worker] = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    server.process.kill()
    server.process.wait()
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{worker}").exists()


def test_sigterm_lets_a_stream_end(start, peer, small, messages, sense):
    server = start()
    several = messages(small)
    stream = peer(server.to).send(GO, *several[:-1])
    server.event("stream_begin")
    server.process.send_signal(signal.SIGTERM)
    server.event("draining", streams=1)
    assert server.get("/health")[0] == 503
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(server.to, 5)
    found = stream.send(several[-1], wire.close_message()).rest()
    assert [message.kind for message in found if message.kind != Kind.TEXT] == [Kind.IMAGE, Kind.CLOSE]
    assert server.process.wait(GUARD) == 0
    assert server.event("stopped")
    assert "Warning" not in server.errors.read_text()


def test_a_client_that_reads_late_gets_all_images(server, peer, repeated, messages):
    """A client that reads only after it has sent everything."""
    stream = peer(server.to)
    sending = threading.Thread(target=stream.send, args=(GO, *messages(repeated), wire.close_message()))
    sending.start()
    sending.join(GUARD)
    assert not sending.is_alive()
    found = stream.rest()
    assert sum(message.kind == Kind.IMAGE for message in found) == 8


def test_a_client_that_sends_faster_than_the_worker_works_has_to_wait(server, peer, shepp_logan, messages, check_other):
    several = messages(shepp_logan("-m", "128", "-c", "8", "-n", "0.02", "-r", "20"))  # 43 MB
    pid, before = server.worker_pid, server.memory()
    os.kill(pid, signal.SIGSTOP)
    stream = peer(server.to)

    def send():
        with suppress(OSError):  # of the end below
            stream.send(GO, *several, wire.close_message())

    sending = threading.Thread(target=send)
    sending.start()
    try:
        deadline = time.monotonic() + GUARD
        while server.metric("frames_waiting") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        sending.join(0.5)
        assert sending.is_alive()
        assert server.memory() < before + 25
        assert server.metric("frames_waiting") == 2
    finally:
        stream.socket.shutdown(socket.SHUT_RDWR)
        os.kill(pid, signal.SIGCONT)
        sending.join()
    server.quiet()
    check_other(server)
