"""Frames of all streams, given to the workers in turns; a worker that dies is replaced.

No stream has two frames at work at once. Whose frame is next is decided by :mod:`upmri.server.turns`. A frame of a
stream that has ended is cancelled: after a short time to finish, the worker is killed and replaced. So is the worker of
a frame that must give way to others; another worker does the frame again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from upmri.server.counters import Counters
from upmri.server.json_log import event
from upmri.server.limits import Limits, RefusedError
from upmri.server.link import Buffer
from upmri.server.process import WorkerProcess
from upmri.server.together import Work, distinct_parts
from upmri.server.turns import Stream, Turns, long_seats

_LOG = logging.getLogger(__name__)
_WATCH = 0.5  # seconds between checks that an idle worker is alive
_DIED = "the worker died at this slice and is replaced; send the scan again"
# Seconds to finish a frame that nobody waits for; most do, and a new worker takes longer to start. Less where it took
# a while to find out that the client is gone: after a second its frame must be cancelled.
_GRACE, _SHORT_GRACE = 0.8, 0.4


@dataclass
class _Seat:
    """One worker, and what the dispatcher knows of it."""

    number: int
    worker: WorkerProcess
    current: int | None = None  # stream whose frame is at work
    cancelled: bool = False  # whether the worker was killed because nobody waits for the current frame
    moved: bool = False  # whether it was killed because the current frame gives way to others
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
        self._seats = [_Seat(number, worker) for number, worker in enumerate(workers)]
        self._long = long_seats(len(workers))
        self._turns = Turns(len(workers), limits.turn_seconds)
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # for the threads of the workers
        # For the thread of each stream: with many streams, waking all of them at every change takes much time.
        self._own: dict[int, threading.Condition] = defaultdict(lambda: threading.Condition(lock))
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

    def submit(self, stream: Stream, frame: Work) -> None:
        """Queue work; wait while the queue of the stream is full, and raise the fault of the stream if it has one."""
        with self._changed:
            own = self._own[stream.number]
            own.wait_for(lambda: self._turns.waiting(stream.number) < self._limits.ahead or stream.fault)
            if stream.fault:
                raise stream.fault
            self._turns.add(stream, frame, time.monotonic())
            self._count()
            self._changed.notify_all()

    def finish(self, stream: Stream) -> None:
        """Wait until all frames of a stream are done; raise the fault of the stream if it has one."""
        with self._changed:
            self._own[stream.number].wait_for(lambda: stream.fault or not self._turns.active(stream.number))
            if stream.fault:
                raise stream.fault

    def forget(self, stream: Stream, late: bool = False) -> None:
        """Drop the queue of a stream that has ended, and cancel its frame if the worker does not finish it soon.

        Parameters
        ----------
        stream
            The stream.
        late
            Whether the client may have been gone for a while.
        """
        with self._changed:
            self._turns.leave(stream.number)
            self._count()
            for seat in self._seats:
                seat.gone.append(stream.number)
            seconds = _SHORT_GRACE if late else _GRACE
            self._own[stream.number].wait_for(lambda: not self._at_work(stream.number) or self._over, seconds)
            del self._own[stream.number]
            for seat in self._at_work(stream.number):
                seat.cancelled = True
                seat.worker.interrupt()

    def wake(self, stream: Stream) -> None:
        """Make the thread of a stream that waits check again whether the stream has a fault."""
        with self._changed:
            self._tell(stream.number)

    def _tell(self, number: int) -> None:
        if number in self._own:  # it is not, if nobody has waited
            self._own[number].notify_all()

    def watch(self) -> None:
        """Take frames that have to give way from their workers; called often."""
        with self._changed:
            for number in self._turns.give_way(time.monotonic()):
                for seat in self._at_work(number):
                    seat.moved = True
                    seat.worker.interrupt()

    def _count(self) -> None:
        self._counters.put("frames_waiting", self._turns.waiting())
        self._counters.put("frames_working", sum(seat.current is not None for seat in self._seats))

    def _at_work(self, number: int) -> list[_Seat]:
        return [seat for seat in self._seats if seat.current == number]

    # --- the threads, one for each worker -----------------------------------------------------------------------------

    def _run(self, seat: _Seat) -> None:
        if not seat.worker.alive:
            self._revive(seat)
        while (turn := self._next(seat)) is not None:
            stream, frame = turn
            lost = slow = again = False
            began = time.monotonic()
            try:
                self._work(seat, stream, frame)
            except (OSError, EOFError) as error:  # TimeoutError is one
                lost, slow = True, isinstance(error, TimeoutError)
                again = seat.moved and not slow
                if not again:
                    seconds = time.monotonic() - began
                    stream.fail(self._why(stream, seconds) if slow else RefusedError("worker", _DIED))
            except Exception as error:  # a fault of the program must not end this thread, which all streams need
                lost = True
                self._fault(stream, error)
            ended = time.monotonic()
            stream.work_seconds += ended - began
            with self._changed:
                cancelled, moved = seat.cancelled, seat.moved
                seat.cancelled, seat.moved, seat.current = False, False, None
                retry = frame if again and not stream.fault else None
                self._turns.end(stream.number, ended, retry, finished=not (lost or cancelled or stream.fault))
                self._count()
                if stream.fault:  # forget() may have been called before the worker knew the stream
                    seat.gone.append(stream.number)
                self._tell(stream.number)
                self._changed.notify_all()
            if lost or cancelled or moved:
                self._replace(seat, slow=slow, cancelled=cancelled, moved=moved)
                with self._changed:
                    now = time.monotonic()
                    self._turns.charge(stream.peer, now - ended, now)
            del turn, stream, frame, retry  # readouts that would be in memory until the next turn

    def _next(self, seat: _Seat) -> tuple[Stream, Work] | None:
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

    def _turn(self, seat: _Seat) -> tuple[Stream, Work] | None:
        """Take the next frame for a seat; also of the other kind, if none of the workers for it can be started."""
        others = [one.worker for one in self._seats if (one.number in self._long) != (seat.number in self._long)]
        turn = self._turns.take(seat.number, time.monotonic(), all_kinds=all(worker.failed for worker in others))
        if turn is not None:
            seat.current = turn[0].number
            self._count()
            self._tell(seat.current)
        return turn

    def _work(self, seat: _Seat, stream: Stream, frame: Work) -> None:
        lines = stream.lines
        if lines is None or stream.fault:  # the stream has ended meanwhile
            return
        if not seat.worker.alive and not self._revive(seat):
            stream.fail(RefusedError("worker", "the worker cannot be started; see the log of the server"))
            return
        left = self._limits.work_seconds - stream.work_seconds
        if left <= 0:
            stream.fail(self._why(stream, 0.0))
            return
        begins = stream.number not in seat.known
        with self._changed:
            forget, seat.gone = seat.gone, []
        readouts, parts = distinct_parts(frame.frames)
        job = {
            "stream": stream.number,
            "begins": begins,
            "forget": forget,
            "parts": parts,
            "skip": frame.made,
            "method": stream.order.method,
            "settings": stream.order.settings | ({"model": stream.model} if stream.model else {}),
            "seed": stream.order.seed,
            "max_bytes": self._limits.held_bytes,
        }
        buffers: list[Sequence[Buffer]] = []
        if begins:
            buffers = [[lines.xml], [lines.noise.heads], lines.noise.bodies]
        for rows in readouts:
            buffers += [[rows.heads], rows.bodies]
        seat.known -= set(forget)
        seat.known.add(stream.number)
        for answer, arrays in seat.worker.ask(job, buffers, self._limits.frame_seconds, left):
            if "error" in answer:
                # After running out of memory the worker knows no stream any more.
                seat.known.clear()
                stream.fail(RefusedError(answer["code"], **answer["error"]))
            elif not stream.fault:
                frame.made += 1
                self._counters.add("frame_seconds_total", answer["seconds"])
                try:
                    stream.deliver(frame.frames[answer["frame"]], answer, arrays)
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

    def _replace(self, seat: _Seat, slow: bool, cancelled: bool, moved: bool) -> None:
        if self._over:
            return
        code = seat.worker.kill()
        event(_LOG, "worker_lost", slow=int(slow), cancelled=int(cancelled), moved=int(moved), exit=code)
        self._revive(seat)

    def _revive(self, seat: _Seat) -> bool:
        seat.known.clear()
        return not self._over and seat.worker.restart()
