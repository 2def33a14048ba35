"""The worker process: started, killed, and not started again too soon."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from upmri import InputError
from upmri.server import link, process
from upmri.server.counters import Counters
from upmri.server.process import WorkerProcess

GUARD = 240  # seconds after which a failing test stops to wait


@pytest.fixture
def worker():
    made = WorkerProcess("cpu", "zero-filled", Counters())
    yield made
    made.kill(for_good=True)


def test_the_life_of_a_worker(worker, caplog):
    assert (worker.alive, worker.ready) == (False, False)
    with pytest.raises(EOFError):
        next(worker.ask({}, [], GUARD, GUARD))
    with caplog.at_level(logging.INFO, "upmri.server"):
        worker.start()
    assert (worker.alive, worker.ready) == (True, True)
    assert os.getpriority(os.PRIO_PROCESS, worker._process.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    assert worker._counters.get("worker_starts_total") == worker._counters.get("workers_ready") == 1
    assert caplog.records[-1].facts["pid"] == worker._process.pid
    job = {"stream": 1, "begins": False, "forget": [], "method": "sense", "settings": {}, "skip": 0, "max_bytes": 2**20}
    [(answer, arrays)] = worker.ask(job, [], GUARD, GUARD)  # a job without a frame
    assert (answer["code"], arrays) == ("fault", [])
    assert worker.kill() == -signal.SIGKILL
    assert (worker.alive, worker.ready, worker._counters.get("workers_ready")) == (False, False, 0)
    assert worker.kill() is None


def test_a_job_is_interrupted(worker):
    worker.interrupt()  # there is none
    worker.start()
    os.kill(worker._process.pid, signal.SIGSTOP)  # as if its job had no end
    timer = threading.Timer(0.1, worker.interrupt)
    timer.start()
    with pytest.raises((EOFError, ConnectionError)):
        next(worker.ask({}, [], GUARD, GUARD))
    timer.join()
    assert worker.restart()


def test_all_answers_together_have_a_time(worker):
    """As of a volume: each answer comes in time, but there are many."""
    ours, theirs = socket.socketpair()
    with theirs:
        worker._process, worker._socket = subprocess.Popen(["sleep", str(GUARD)]), ours
        for _ in range(3):
            link.send_message(theirs, {"last": False})
        answers = worker.ask({}, [], GUARD, 0.5)
        next(answers)
        time.sleep(0.6)
        with pytest.raises(TimeoutError):
            list(answers)


def test_a_worker_of_low_priority():
    made = WorkerProcess("cpu", "zero-filled", Counters(), True)
    try:
        made.start()
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, made._process.pid) == min(own + 10, 19)
    finally:
        made.kill(for_good=True)


def test_a_worker_that_cannot_start():
    worker = WorkerProcess("abacus", "zero-filled", Counters())
    with pytest.raises(InputError, match="'abacus'") as error:
        worker.start()
    assert error.value.field == "device"
    assert not worker.alive


def test_a_process_that_the_system_does_not_start(worker, monkeypatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(InputError, match="did not start"):
        worker.start()
    assert not worker.alive


def test_after_a_failed_start_there_is_a_pause(worker, monkeypatch, caplog):
    starts = []

    def fail():
        starts.append(1)
        raise InputError("no")

    monkeypatch.setattr(worker, "start", fail)
    monkeypatch.setattr(process, "_PAUSES", (0.0, 10 * GUARD, GUARD))
    with caplog.at_level(logging.INFO, "upmri.server"):
        assert [worker.restart() for _ in range(4)] == [False] * 4
    assert len(starts) == 2  # the first again at once, then not for a long time
    assert [record.facts for record in caplog.records] == [{"failures": 1}, {"failures": 2}]
    monkeypatch.setattr(worker, "_not_before", 0.0)
    monkeypatch.setattr(worker, "start", lambda: None)
    assert worker.restart()
    assert worker._failures == 0


def test_none_is_started_once_the_server_stops(worker):
    worker.kill(for_good=True)
    with pytest.raises(InputError, match="stopping"):
        worker.start()
