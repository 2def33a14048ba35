"""Turns, waiting and faults, with a worker that does nothing but answer."""

from __future__ import annotations

import threading
import time
import weakref
from types import SimpleNamespace

import pytest

from upmri.server.assemble import Frame, Rows
from upmri.server.counters import Counters
from upmri.server.dispatch import Dispatcher
from upmri.server.limits import Limits, RefusedError
from upmri.server.order import Order
from upmri.server.together import Place

GUARD = 240  # seconds after which a failing test stops to wait


class Fake:
    """A worker that answers when the test allows it."""

    alive = ready = True
    failed = False

    def __init__(self):
        self.jobs, self.go, self.answer, self.restarts = [], threading.Semaphore(0), None, 0
        self.seconds, self.moves, self.parts = [], 0, 1
        self.taken = threading.Semaphore(0)

    def start(self):
        pass

    def restart(self):
        self.restarts += 1
        return True

    def kill(self, **_):
        self.go.release()
        return -9

    def interrupt(self):
        self.moves += 1
        self.answer = EOFError()
        self.go.release()

    def ask(self, job, buffers, seconds, in_all):
        self.jobs.append((job, buffers))
        self.seconds.append(min(seconds, in_all))
        self.taken.release()
        for _ in range(self.parts):
            self.go.acquire()
            if isinstance(self.answer, Exception):
                error, self.answer = self.answer, None
                raise error
            yield self.answer or {"frame": 0, "settings": {}, "seconds": 0.0, "last": True}, []


class Client:
    """A stream that counts."""

    def __init__(self, number, peer="127.0.0.1", **settings):
        self.peer, self.work_seconds = peer, 0.0
        self.number, self.order, self.model, self.fault = number, Order(method="sense", **settings), None, None
        self.lines = SimpleNamespace(xml=b"<x/>", noise=Rows())
        self.got, self.done = [], threading.Semaphore(0)

    def deliver(self, frame, *_):
        self.got.append(frame.key)
        self.done.release()

    def fail(self, error):
        self.fault = error
        self.done.release()


@pytest.fixture
def setting():
    worker = Fake()
    dispatcher = Dispatcher([worker], Limits(ahead=2), Counters())
    dispatcher.start()
    yield dispatcher, worker
    dispatcher.stop()


@pytest.fixture
def two():
    """A worker for short frames and one for long ones."""
    workers = [Fake(), Fake()]
    dispatcher = Dispatcher(workers, Limits(ahead=2), Counters())
    dispatcher.start()
    yield dispatcher, workers
    dispatcher.stop()


def frame(number):
    return Frame((0, 0, 0, 0, number), 0)


def test_streams_take_turns(setting):
    dispatcher, worker = setting
    long, short = Client(1), Client(2)
    for number in range(3):
        dispatcher.submit(long, frame(number))
        if number == 0:
            assert worker.taken.acquire(timeout=GUARD)
    for number in range(2):
        dispatcher.submit(short, frame(number))
    for _ in range(5):
        worker.go.release()
    dispatcher.finish(long)
    dispatcher.finish(short)
    order = [job["stream"] for job, _ in worker.jobs]
    assert (order[:2], sorted(order)) == ([1, 2], [1, 1, 1, 2, 2])
    assert (len(long.got), len(short.got)) == (3, 2)


def test_a_stream_waits_when_its_queue_is_full(setting):
    dispatcher, worker = setting
    stream = Client(1)
    for number in range(3):
        dispatcher.submit(stream, frame(number))
        if number == 0:
            assert worker.taken.acquire(timeout=GUARD)
    more = threading.Thread(target=dispatcher.submit, args=(stream, frame(3)))
    more.start()
    more.join(0.2)
    assert more.is_alive()
    worker.go.release()
    more.join(GUARD)
    assert not more.is_alive()
    for _ in range(3):
        worker.go.release()
    dispatcher.finish(stream)
    assert [key[-1] for key in stream.got] == [0, 1, 2, 3]


def test_a_slow_frame_does_not_delay_other_streams():
    """Of three workers two take short frames."""
    workers = [Fake(), Fake(), Fake()]
    dispatcher = Dispatcher(workers, Limits(ahead=2), Counters())
    dispatcher.start()
    slow, fast = Client(1), Client(2)
    dispatcher.submit(slow, frame(0))
    dispatcher.submit(slow, frame(1))  # waits for the first one, though a worker is free
    while not any(worker.jobs for worker in workers):
        time.sleep(0.001)
    [busy] = [worker for worker in workers if worker.jobs]
    [free] = [worker for worker in workers[:2] if worker is not busy]
    for number in range(3):
        free.go.release()
        dispatcher.submit(fast, frame(number))
    dispatcher.finish(fast)
    assert (len(fast.got), slow.got) == (3, [])
    assert [job["stream"] for job, _ in free.jobs] == [2, 2, 2]
    busy.go.release()
    for worker in workers[:2]:  # whichever takes the second
        worker.go.release()
    dispatcher.finish(slow)
    assert [key[-1] for key in slow.got] == [0, 1]
    dispatcher.stop()


def test_a_frame_gives_way_and_is_done_again(two, monkeypatch, caplog):
    dispatcher, (short, long) = two
    slow, other = Client(1, "127.0.0.1"), Client(2, "127.0.0.2")
    dispatcher.submit(slow, frame(1))
    assert short.taken.acquire(timeout=GUARD)
    dispatcher.submit(other, frame(2))
    dispatcher.watch()
    assert not short.moves
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    with caplog.at_level("INFO", "upmri.server"):
        dispatcher.watch()
        assert short.taken.acquire(timeout=GUARD)
    assert (short.moves, long.moves, short.restarts) == (1, 0, 1)
    assert [record.facts["moved"] for record in caplog.records] == [1]
    for worker in (short, long):
        worker.go.release()
    dispatcher.finish(other)
    dispatcher.finish(slow)
    assert [[job["stream"] for job, _ in worker.jobs] for worker in (short, long)] == [[1, 2], [1]]
    assert (slow.got, other.got) == ([(0, 0, 0, 0, 1)], [(0, 0, 0, 0, 2)])
    assert (slow.fault, other.fault) == (None, None)


def test_images_of_a_volume_are_made_once(two, monkeypatch):
    """The worker that continues leaves out those that were made."""
    dispatcher, (short, long) = two
    volume, other = Client(1, "127.0.0.1"), Client(2, "127.0.0.2")
    short.parts = 2
    dispatcher.submit(volume, frame(0))
    assert short.taken.acquire(timeout=GUARD)
    short.go.release()
    assert volume.done.acquire(timeout=GUARD)  # the first of two
    dispatcher.submit(other, frame(0))
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    dispatcher.watch()
    for worker in (short, short, long):
        worker.go.release()
    for stream in (volume, other):
        dispatcher.finish(stream)
    assert [job["skip"] for worker in (short, long) for job, _ in worker.jobs if job["stream"] == 1] == [0, 1]
    assert (len(volume.got), volume.fault) == (2, None)


def test_frames_of_a_place_are_one_job(setting):
    """Readouts that they share are sent once, and each image is that of its frame."""
    dispatcher, worker = setting
    stream, shared = Client(1), Rows(bytearray(b"head"), [b"calibration"])
    frames = [Frame((number, 0, 0, 0, 5), 0, Rows(bodies=[bytes([number])]), shared) for number in range(2)]
    worker.parts, worker.answer = 2, {"frame": 1, "settings": {}, "seconds": 0.0, "last": True}
    dispatcher.submit(stream, place := Place(frames))
    for _ in range(2):
        worker.go.release()
    dispatcher.finish(stream)
    [(job, buffers)] = worker.jobs
    assert job["parts"] == [[0, 1, 2], [0, 3, 4]]
    assert [b"".join(one) for one in buffers[3:]] == [
        b"head",
        b"calibration",
        b"",
        b"",
        b"",
        b"\0",
        b"",
        b"",
        b"",
        b"\1",
    ]
    assert stream.got == [(1, 0, 0, 0, 5)] * 2
    assert place.made == 2


def test_work_that_is_done_is_not_kept_in_memory(setting):
    """A worker that waits for its next work needs no readouts of the last."""
    dispatcher, worker = setting
    stream, place = Client(1), Place([frame(0)])
    alive = weakref.ref(place)
    dispatcher.submit(stream, place)
    del place
    worker.go.release()
    dispatcher.finish(stream)
    deadline = time.monotonic() + GUARD
    while alive() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert alive() is None


def test_long_settings_have_a_worker_of_their_own(two):
    dispatcher, (short, long) = two
    costly, fast = Client(1, "127.0.0.1", samples=8), Client(2, "127.0.0.2")
    dispatcher.submit(costly, frame(0))
    assert long.taken.acquire(timeout=GUARD)
    dispatcher.submit(fast, frame(0))
    assert short.taken.acquire(timeout=GUARD)
    for worker in (short, long):
        worker.go.release()
    dispatcher.finish(costly)
    dispatcher.finish(fast)


@pytest.mark.parametrize("settings", [{}, {"samples": 8}])
@pytest.mark.parametrize("broken", [0, 1])
def test_a_worker_that_cannot_start_leaves_the_frames_to_the_other(two, settings, broken):
    dispatcher, workers = two
    workers[broken].alive, workers[broken].failed, workers[broken].restart = False, True, lambda: False
    stream = Client(1, **settings)
    for number in range(3):
        workers[1 - broken].go.release()
        dispatcher.submit(stream, frame(number))
    dispatcher.finish(stream)
    assert (len(stream.got), len(workers[broken].jobs)) == (3, 0)


def test_noise_is_sent_once_to_every_worker(setting):
    dispatcher, worker = setting
    stream = Client(1)
    for number in range(4):
        if number == 2:
            worker.answer = EOFError()
            other = Client(2)
            dispatcher.submit(other, frame(0))
            worker.go.release()
            assert other.done.acquire(timeout=GUARD)
            assert other.fault.code == "worker"
            assert "died at this slice" in str(other.fault)
            dispatcher.forget(other)
        dispatcher.submit(stream, frame(number))
        worker.go.release()
        assert stream.done.acquire(timeout=GUARD)
    begins = [job["begins"] for job, _ in worker.jobs if job["stream"] == 1]
    assert begins == [True, False, True, False]
    assert worker.restarts == 1
    assert stream.fault is None


@pytest.mark.parametrize("error", [TimeoutError(), EOFError(), BrokenPipeError()])
def test_only_the_stream_at_work_fails_with_the_worker(setting, error):
    dispatcher, worker = setting
    first, second = Client(1), Client(2)
    dispatcher.submit(first, frame(0))
    assert worker.taken.acquire(timeout=GUARD)
    dispatcher.submit(second, frame(0))
    worker.answer = error
    worker.go.release()
    assert first.done.acquire(timeout=GUARD)
    assert first.fault.code == "worker"
    worker.go.release()
    dispatcher.finish(second)
    assert second.got == [(0, 0, 0, 0, 0)]
    with pytest.raises(RefusedError):
        dispatcher.finish(first)


def test_the_seconds_of_a_stream_are_limited(setting):
    dispatcher, worker = setting
    stream = Client(1)
    stream.work_seconds = 3599.0  # of 3600
    dispatcher.submit(stream, frame(0))
    worker.go.release()
    dispatcher.finish(stream)
    assert 0 < worker.seconds[0] <= 1
    stream.work_seconds = 3600.0
    stream.done.acquire()
    dispatcher.submit(stream, frame(1))
    assert stream.done.acquire(timeout=GUARD)
    assert stream.fault.code == "limit:work_seconds"
    assert "work_seconds" in str(stream.fault)
    assert len(worker.jobs) == 1


def test_a_slice_that_uses_the_rest_of_the_seconds(setting):
    dispatcher, worker = setting
    stream = Client(1)
    stream.work_seconds = 3600 - 1e-6
    worker.answer = TimeoutError()
    dispatcher.submit(stream, frame(0))
    worker.go.release()
    assert stream.done.acquire(timeout=GUARD)
    assert stream.fault.code == "limit:work_seconds"


def test_an_error_of_the_worker_reaches_the_stream(setting):
    dispatcher, worker = setting
    stream = Client(1)
    worker.answer = {"error": {"message": "NaN", "field": "kspace", "path": None}, "code": "data", "last": True}
    dispatcher.submit(stream, frame(0))
    worker.go.release()
    assert stream.done.acquire(timeout=GUARD)
    assert (stream.fault.code, stream.fault.field, str(stream.fault)) == ("data", "kspace", "kspace: NaN")
    assert worker.restarts == 0


def test_a_fault_of_the_program_does_not_end_the_thread(setting):
    dispatcher, worker = setting
    broken, fine = Client(1), Client(2)
    broken.deliver = None
    for stream in (broken, fine):
        dispatcher.submit(stream, frame(0))
        worker.go.release()
        assert stream.done.acquire(timeout=GUARD)
    assert broken.fault.code == "fault"
    assert worker.restarts == 0
    assert fine.got


def test_the_frame_of_a_stream_that_has_ended_is_cancelled(setting, caplog):
    dispatcher, worker = setting
    gone, other = Client(1), Client(2)
    dispatcher.submit(gone, frame(0))
    assert worker.taken.acquire(timeout=GUARD)
    dispatcher.submit(other, frame(0))
    gone.fault = RefusedError("gone", "gone")
    with caplog.at_level("INFO", "upmri.server"):
        dispatcher.forget(gone)
        assert worker.taken.acquire(timeout=GUARD)  # without any answer to the first frame
    worker.go.release()
    dispatcher.finish(other)
    assert [(job["stream"], job["begins"]) for job, _ in worker.jobs] == [(1, True), (2, True)]
    assert (other.got, worker.restarts, gone.got) == ([(0, 0, 0, 0, 0)], 1, [])
    assert [record.facts["cancelled"] for record in caplog.records] == [1]


def test_a_frame_that_is_finished_soon_is_not_cancelled(setting):
    dispatcher, worker = setting
    gone = Client(1)
    dispatcher.submit(gone, frame(0))
    assert worker.taken.acquire(timeout=GUARD)
    gone.fault = RefusedError("gone", "gone")
    worker.go.release()
    dispatcher.forget(gone)
    dispatcher.submit(other := Client(2), frame(0))
    worker.go.release()
    dispatcher.finish(other)
    assert worker.restarts == 0


def test_frames_of_a_stream_that_has_ended_are_dropped(setting):
    dispatcher, worker = setting
    first, gone = Client(1), Client(2)
    dispatcher.submit(first, frame(0))
    assert worker.taken.acquire(timeout=GUARD)
    dispatcher.submit(gone, frame(0))
    gone.fault = RefusedError("gone", "gone")
    dispatcher.forget(gone)
    worker.go.release()
    dispatcher.finish(first)
    dispatcher.submit(first, frame(1))
    worker.go.release()
    assert first.done.acquire(timeout=GUARD)
    dispatcher.finish(first)
    assert [job["stream"] for job, _ in worker.jobs] == [1, 1]
    assert worker.jobs[1][0]["forget"] == [2]
