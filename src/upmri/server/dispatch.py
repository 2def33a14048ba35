"""Frames of all streams, given to the workers in turns; a worker that dies is replaced.

Each stream has a short queue of its own, and the queues are served one frame at a time, in turns. So a stream with many
slices delays a short one by one frame of each stream at most. No stream has two frames at work at once, so with two
workers a stream whose frame takes very long does not delay the others. A frame of a stream that has ended is cancelled:
after a short time to finish, the worker is killed and replaced.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from upmri.server.assemble import Assembler, Frame
from upmri.server.counters import Counters
from upmri.server.json_log import event
from upmri.server.limits import Limits, RefusedError
from upmri.server.link import Buffer
from upmri.server.order import Order
from upmri.server.process import WorkerProcess

_LOG = logging.getLogger(__name__)
_WATCH = 0.5  # seconds between checks that an idle worker is alive
_DIED = "the worker died at this slice and is replaced; send the scan again"
_GRACE = 0.4  # seconds to finish a frame nobody waits for; most do, and a new worker takes longer to start


class Stream(Protocol):
    """The part of a connection that the dispatcher uses."""

    number: int
    order: Order
    lines: Assembler | None
    model: str | None  # name of the weights, once they are chosen
    work_seconds: float  # time that workers spent on it

    @property
    def fault(self) -> RefusedError | None:
        """The reason why the stream is ended, if it is."""

    def deliver(self, frame: Frame, answer: dict[str, Any], arrays: list[memoryview]) -> None:
        """Send an image that the worker made from a frame."""

    def fail(self, error: RefusedError) -> None:
        """End the stream for a reason."""


@dataclass
class _Seat:
    """One worker, and what the dispatcher knows of it."""

    worker: WorkerProcess
    current: int | None = None  # stream whose frame is at work
    cancelled: bool = False  # whether the worker was killed because of the current frame
    known: set[int] = field(default_factory=set)  # streams whose header and noise the worker has
    gone: list[int] = field(default_factory=list)  # streams that the worker can forget


class Dispatcher:
    """Runs the workers and gives them frames.

    Parameters
    ----------
    workers
        Worker processes, not started yet.
    limits
        Limits of the server.
    counters
        Counters of the server.
    """

    def __init__(self, workers: Sequence[WorkerProcess], limits: Limits, counters: Counters) -> None:
        self._limits, self._counters = limits, counters
        self._seats = [_Seat(worker) for worker in workers]
        self._changed = threading.Condition()
        self._queues: dict[int, tuple[Stream, deque[Frame]]] = {}
        self._over = False
        self._threads = [
            threading.Thread(target=self._run, args=(seat,), name="dispatch", daemon=True) for seat in self._seats
        ]

    @property
    def ready(self) -> bool:
        """Whether a worker can take a frame."""
        return any(seat.worker.ready for seat in self._seats)

    def start(self) -> None:
        """Start the workers and wait until the first is ready; InputError if it cannot be."""
        self._seats[0].worker.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Kill the workers and end their threads."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for seat in self._seats:
            seat.worker.kill(for_good=True)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=10)

    def submit(self, stream: Stream, frame: Frame) -> None:
        """Queue a frame; wait while the queue of the stream is full, and raise its fault if it has one."""
        with self._changed:
            _, queue = self._queues.setdefault(stream.number, (stream, deque()))
            self._changed.wait_for(lambda: len(queue) < self._limits.ahead or stream.fault)
            if stream.fault:
                raise stream.fault
            self._queues.setdefault(stream.number, (stream, queue))  # it is dropped when it becomes empty
            queue.append(frame)
            self._count()
            self._changed.notify_all()

    def finish(self, stream: Stream) -> None:
        """Wait until all frames of a stream are done; raise the fault of the stream if it has one."""
        with self._changed:
            self._changed.wait_for(
                lambda: stream.fault or not (stream.number in self._queues or self._at_work(stream.number))
            )
            if stream.fault:
                raise stream.fault

    def forget(self, stream: Stream) -> None:
        """Drop the queue of a stream that has ended, and cancel its frame if the worker does not finish it soon."""
        with self._changed:
            self._queues.pop(stream.number, None)
            self._count()
            for seat in self._seats:
                seat.gone.append(stream.number)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._at_work(stream.number) or self._over, _GRACE)
            for seat in self._at_work(stream.number):
                seat.cancelled = True
                seat.worker.interrupt()

    def wake(self) -> None:
        """Make waiting threads check again whether their stream has a fault."""
        with self._changed:
            self._changed.notify_all()

    def _count(self) -> None:
        self._counters.put("frames_waiting", sum(len(queue) for _, queue in self._queues.values()))
        self._counters.put("frames_working", sum(seat.current is not None for seat in self._seats))

    def _at_work(self, number: int) -> list[_Seat]:
        return [seat for seat in self._seats if seat.current == number]

    # --- the threads, one for each worker -----------------------------------------------------------------------------

    def _run(self, seat: _Seat) -> None:
        if not seat.worker.alive:
            self._revive(seat)
        while (turn := self._next(seat)) is not None:
            stream, frame = turn
            lost = slow = False
            began = time.monotonic()
            try:
                self._work(seat, stream, frame)
            except (OSError, EOFError) as error:  # TimeoutError is one
                lost, slow = True, isinstance(error, TimeoutError)
                stream.fail(self._why(stream, time.monotonic() - began) if slow else RefusedError("worker", _DIED))
            except Exception as error:  # a fault of the program must not end this thread, which all streams need
                lost = True
                self._fault(stream, error)
            stream.work_seconds += time.monotonic() - began
            with self._changed:
                cancelled, seat.cancelled = seat.cancelled, False
                seat.current = None
                self._count()
                if stream.fault:  # forget() may have been called before the worker knew the stream
                    seat.gone.append(stream.number)
                self._changed.notify_all()
            if lost or cancelled:
                self._replace(seat, slow=slow, cancelled=cancelled)

    def _next(self, seat: _Seat) -> tuple[Stream, Frame] | None:
        """Wait for a frame, of the stream whose turn it is; meanwhile replace the worker if it dies."""
        while True:
            with self._changed:
                while not self._over:
                    # A seat without a worker takes a frame, and fails, only if no other seat has one.
                    others = any(one.worker.alive for one in self._seats if one is not seat)
                    if (seat.worker.alive or not others) and (turn := self._turn(seat)) is not None:
                        return turn
                    self._changed.wait(_WATCH)
                    if not seat.worker.alive:
                        break
                if self._over:
                    return None
            self._revive(seat)

    def _turn(self, seat: _Seat) -> tuple[Stream, Frame] | None:
        """Take the next frame of the first stream that has none at work, and put the stream behind the others."""
        for number, (stream, queue) in list(self._queues.items()):
            if not queue or stream.fault:
                del self._queues[number]
            elif not self._at_work(number):
                frame = queue.popleft()
                del self._queues[number]
                if queue:
                    self._queues[number] = (stream, queue)
                seat.current = number
                self._count()
                self._changed.notify_all()
                return stream, frame
        return None

    def _work(self, seat: _Seat, stream: Stream, frame: Frame) -> None:
        lines = stream.lines
        if lines is None or stream.fault:  # the stream has ended meanwhile
            return
        if not seat.worker.alive and not self._revive(seat):
            stream.fail(RefusedError("worker", "the worker cannot be started; see the log of the server"))
            return
        seconds = min(self._limits.frame_seconds, self._limits.work_seconds - stream.work_seconds)
        if seconds <= 0:
            stream.fail(self._why(stream, 0.0))
            return
        begins = stream.number not in seat.known
        with self._changed:
            forget, seat.gone = seat.gone, []
        job = {
            "stream": stream.number,
            "begins": begins,
            "forget": forget,
            "method": stream.order.method,
            "settings": stream.order.settings | ({"model": stream.model} if stream.model else {}),
            "fitted": stream.model is not None,
            "seed": stream.order.seed,
            "max_bytes": self._limits.held_bytes,
        }
        buffers: list[Sequence[Buffer]] = []
        if begins:
            buffers = [[lines.xml], [lines.noise.heads], lines.noise.bodies]
        for rows in (frame.calibration, frame.rows):
            buffers += [[rows.heads], rows.bodies]
        seat.known -= set(forget)
        seat.known.add(stream.number)
        for answer, arrays in seat.worker.ask(job, buffers, seconds):
            if "error" in answer:
                # After running out of memory the worker knows no stream any more.
                seat.known.clear()
                stream.fail(RefusedError(answer["code"], **answer["error"]))
            elif not stream.fault:
                self._counters.add("frame_seconds_total", answer["seconds"])
                try:
                    stream.deliver(frame, answer, arrays)
                except Exception as error:  # the other answers of the worker must still be received
                    self._fault(stream, error)

    def _why(self, stream: Stream, seconds: float) -> RefusedError:
        limits = self._limits
        if stream.work_seconds + seconds >= limits.work_seconds:
            message = f"the slices of this stream took longer than this server's limit of {limits.work_seconds:g} s"
            return RefusedError("limit:work_seconds", f"{message} (work_seconds)")
        message = (
            f"the worker took longer than {limits.frame_seconds:g} s at this slice (frame_seconds) and is replaced"
        )
        return RefusedError("worker", message)

    def _fault(self, stream: Stream, error: Exception) -> None:
        event(_LOG, "fault", kind=type(error).__name__, where="dispatch", stream=stream.number)
        stream.fail(RefusedError("fault", f"the server failed: {type(error).__name__} (a fault of the program)"))

    def _replace(self, seat: _Seat, slow: bool, cancelled: bool) -> None:
        if self._over:
            return
        code = seat.worker.kill()
        event(_LOG, "worker_lost", slow=int(slow), cancelled=int(cancelled), exit=code)
        self._revive(seat)

    def _revive(self, seat: _Seat) -> bool:
        seat.known.clear()
        return not self._over and seat.worker.restart()
