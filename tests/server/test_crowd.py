"""Honest clients while hostile ones work: every image is the one that is made without them, byte by byte."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location(
    "hostile_clients", Path(__file__).parents[2] / "benchmarks" / "hostile_clients.py"
)
crowd = importlib.util.module_from_spec(_spec)
sys.modules["hostile_clients"] = crowd
_spec.loader.exec_module(crowd)

GUARD = 240  # seconds after which a failing test stops to wait
LIMITS = ("--limit", "clients=64", "--limit", "per_address=4", "--limit", "linger_seconds=1")


def check(server, path, messages, honest: int, kinds, rounds: int) -> None:
    """Compare the images of honest clients, in several rounds, with those of one alone."""
    several = crowd.scan_messages(path)
    assert several == messages(path)
    expected = crowd.exchange(server.to, "127.0.1.1", crowd.SENSE, several)
    assert len(expected) > 1
    stop = threading.Event()
    with ThreadPoolExecutor(honest + 1) as pool:
        hostile = pool.submit(crowd.attack, server.to, several, kinds, stop)
        try:

            def run(number: int) -> list:
                source = f"127.0.1.{number + 1}"
                return [crowd.exchange(server.to, source, crowd.SENSE, several) for _ in range(rounds)]

            found = list(pool.map(run, range(honest)))
        finally:
            stop.set()
        tries = hostile.result()
    assert all(images == expected for several in found for images in several)
    assert set(tries) == {kind.__name__ for kind in kinds}
    server.quiet()
    assert crowd.exchange(server.to, "127.0.1.1", crowd.SENSE, several) == expected
    assert not [event for event in server.events() if event["event"] == "fault"]
    assert server.process.poll() is None


@pytest.mark.soak
def test_four_honest_and_four_hostile_clients(tmp_path, open_server, shepp_logan, messages):
    kinds = (crowd.gone, crowd.garbage, crowd.many, crowd.costly_gone)
    with open_server(tmp_path, *LIMITS, "--workers", "2") as server:
        check(server, shepp_logan("-m", "32", "-c", "4", "-n", "0.02", "-r", "4"), messages, 4, kinds, rounds=2)


@pytest.mark.soak
def test_twenty_honest_and_twenty_hostile_clients(tmp_path, open_server, shepp_logan, messages):
    with open_server(tmp_path, *LIMITS, "--workers", "3") as server:
        scan = shepp_logan("-m", "64", "-c", "8", "-n", "0.02", "-r", "4")
        check(server, scan, messages, 20, crowd.KINDS * 2, rounds=3)


@pytest.mark.soak
def test_slow_streams_do_not_occupy_all_workers(tmp_path, open_server, small, messages):
    """They hold both workers for short slices, are found by their time, and are done again later."""
    with open_server(tmp_path, "--workers", "3", "--limit", "turn_seconds=1") as server:
        several = messages(small)
        expected = crowd.exchange(server.to, "127.0.1.1", crowd.SENSE, several)
        server.event("worker_ready", count=3)
        pids = [event["pid"] for event in server.events() if event["event"] == "worker_ready"]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        with ThreadPoolExecutor(2) as pool:
            sources = ("127.0.2.1", "127.0.2.2")
            slow = [pool.submit(crowd.exchange, server.to, source, crowd.SENSE, several) for source in sources]
            until = time.monotonic() + GUARD
            while server.metric("frames_working") < 2 and time.monotonic() < until:
                time.sleep(0.01)
            assert crowd.exchange(server.to, "127.0.1.1", crowd.SENSE, several) == expected
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            assert [one.result(GUARD) for one in slow] == [expected] * 2
        lost = [event for event in server.events() if event["event"] == "worker_lost"]
        assert lost
        assert all((event["moved"], event["cancelled"], event["slow"]) == (1, 0, 0) for event in lost)
