"""Whose frame is next, and which frame gives way: rules without threads and without a clock.

The frames of a place that are reconstructed together count as one frame, a long one.

**Least used first.** Next is the address with the least time: the time of the workers that it has used, and that its
next frame is expected to take, which is the mean of the last frames by the same method, ``turn_seconds`` at most. Of
its streams it is the one that has used the least. So an address gains nothing from many streams, and slow frames wait
until the others have had as much. An address that begins is level with the least of those that were served in the last
minute: nobody saves up time.

**Long work apart.** Of n workers, ⌊n/2⌋ take long frames and the others, never fewer, short ones. A stream is long if
its settings say so, or once a frame of it was at work for more than ``turn_seconds`` while a short one waited: then it
gives way, and is done again by a worker for long frames. There it gives way once more, to other long ones, after ten
times as long. So no stream holds the workers of a kind, and each frame is finished in the end: it is begun three times
at most. One worker alone takes everything, and nothing gives way.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from upmri.server.assemble import Assembler, Frame
from upmri.server.limits import RefusedError
from upmri.server.order import Order
from upmri.server.together import Work

_LONGER = 10  # turns of a long frame, in those of a short one
_RECENT = 60.0  # seconds for which an address is not forgotten
_NEW = 0.2  # weight of a frame in the mean time of its method


class Stream(Protocol):
    """The part of a connection that gives frames to the workers and gets images."""

    number: int
    peer: str  # address of the client
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
class _Member:
    stream: Stream
    address: str
    long: bool
    has_given_way: bool = False  # to another long stream
    used: float = 0.0  # seconds, since the stream was level with the others of its address
    frames: deque[Work] = field(default_factory=deque)
    since: int = 0  # turn at which it began to wait
    seat: int | None = None  # worker that has a frame of it
    began: float = 0.0  # time at which the worker got the frame
    over: bool = False  # whether the stream has ended

    @property
    def active(self) -> bool:
        return bool(self.frames) or self.seat is not None


def long_seats(workers: int) -> range:
    """Return the numbers of the workers that take long frames."""
    return range(workers - workers // 2, workers)


class Turns:
    """The frames that wait, and the time that streams and addresses have used.

    Parameters
    ----------
    workers
        Number of workers.
    seconds
        Time after which a frame is long.
    """

    def __init__(self, workers: int, seconds: float) -> None:
        self._workers, self._seconds = workers, seconds
        self._long = long_seats(workers)
        self._members: dict[int, _Member] = {}
        self._used: dict[str, float] = {}  # by address
        self._expected: dict[str, float] = {}  # seconds of a frame, by method
        self._last: dict[str, float] = {}  # time at which an address began to wait or ended
        self._level = 0.0  # the least of the addresses that are served; it never decreases
        self._count = 0

    # --- frames -------------------------------------------------------------------------------------------------------

    def add(self, stream: Stream, frame: Work, now: float) -> None:
        """Let a frame wait, behind the others of its stream."""
        member = self._members.get(stream.number)
        if member is None:
            member = self._members[stream.number] = _Member(stream, stream.peer, stream.order.long)
        if not member.active:
            self._enter(member, now)
        member.frames.append(frame)

    def take(self, seat: int, now: float, all_kinds: bool = False) -> tuple[Stream, Work] | None:
        """Return the next frame for a worker, which has it from now on; None if there is none for it.

        Parameters
        ----------
        seat
            Number of the worker.
        now
            Time in seconds.
        all_kinds
            Whether to take short and long frames, because no worker for the others can be started.
        """
        kind, all_kinds = seat in self._long, all_kinds or not self._long
        ready = [one for one in self._waiting() if all_kinds or one.long == kind]
        if not ready:
            return None
        used, working = self._used_until(now)

        def key(one: _Member) -> tuple[float, int, float, int]:
            expected = self._expected.get(one.stream.order.method, 0.0)
            return used[one.address] + expected, working[one.address], one.used, one.since

        member = min(ready, key=key)
        member.seat, member.began = seat, now
        self._count += 1
        member.since = self._count
        return member.stream, member.frames.popleft()

    def end(self, number: int, now: float, again: Work | None = None, finished: bool = True) -> None:
        """Take note that a worker has no frame of a stream any more: it is finished, lost, or to be done ``again``."""
        member = self._members[number]
        seconds = now - member.began
        self._expect(member.stream.order.method, seconds, finished)
        member.seat, member.used = None, member.used + seconds
        if again is not None:
            member.frames.appendleft(again)
        self.charge(member.address, seconds, now)
        if member.over:
            del self._members[number]

    def charge(self, address: str, seconds: float, now: float) -> None:
        """Add to the time that an address has used, such as that of replacing a worker."""
        self._used[address] = self._used.get(address, self._level) + seconds
        self._last[address] = now
        self._raise_level(now)

    def leave(self, number: int) -> None:
        """Drop the frames of a stream that has ended; one that is at work is still to be ended."""
        member = self._members.get(number)
        if member is not None:
            member.over = True
            member.frames.clear()
            if member.seat is None:
                del self._members[number]

    def give_way(self, now: float) -> list[int]:
        """Return the streams whose frames must be taken from their workers now, because others of their kind wait."""
        late = []
        for kind in (False, True) if self._long else ():
            seats = [seat for seat in range(self._workers) if (seat in self._long) == kind]
            working = [one for one in self._members.values() if one.seat in seats]
            # A worker that is free, or being replaced, takes the frame that waits.
            if len(working) == len(seats) and any(one.long == kind for one in self._waiting()):
                seconds = self._seconds * (_LONGER if kind else 1)
                over = [one for one in working if now - one.began > seconds]
                late += [one for one in over if not (one.has_given_way if kind else one.long)]
        for one in late:
            one.has_given_way, one.long = one.long, True
        return [one.stream.number for one in late]

    # --- what is asked ------------------------------------------------------------------------------------------------

    def waiting(self, number: int | None = None) -> int:
        """Return the number of frames that wait, of one stream or of all."""
        if number is None:
            return sum(len(one.frames) for one in self._members.values())
        return len(self._members[number].frames) if number in self._members else 0

    def active(self, number: int) -> bool:
        """Whether a frame of a stream waits or is at work."""
        return number in self._members and self._members[number].active

    def _waiting(self) -> list[_Member]:
        return [one for one in self._members.values() if one.frames and one.seat is None and not one.stream.fault]

    # --- time that was used -------------------------------------------------------------------------------------------

    def _enter(self, member: _Member, now: float) -> None:
        """Make a stream that begins level with the least of its address, and its address with the least of all."""
        self._raise_level(now)
        self._used.setdefault(member.address, self._level)
        self._last[member.address] = now
        others = [one.used for one in self._members.values() if one.active and one.address == member.address]
        member.used = max(member.used, min(others, default=0.0))
        self._count += 1
        member.since = self._count

    def _raise_level(self, now: float) -> None:
        """Find the least of all addresses; forget those that were away for long, unless they used more than it."""
        active = {one.address for one in self._members.values() if one.active}
        served = active | {address for address, last in self._last.items() if now - last < _RECENT}
        self._level = max(self._level, min((self._used[address] for address in served), default=0.0))
        self._used = {key: used for key, used in self._used.items() if key in served or used > self._level}
        self._last = {key: last for key, last in self._last.items() if key in self._used}

    def _expect(self, method: str, seconds: float, finished: bool) -> None:
        """Update the mean; a frame that was not finished would have taken longer, and never makes it shorter."""
        before = self._expected.get(method, seconds)
        mean = before + _NEW * (seconds - before)
        self._expected[method] = min(mean if finished else max(mean, before), self._seconds)

    def _used_until(self, now: float) -> tuple[dict[str, float], Counter[str]]:
        """Return the seconds of all addresses, with those of frames at work, and the number of these frames."""
        used, working = dict(self._used), Counter[str]()
        for one in self._members.values():
            if one.seat is not None:
                used[one.address] += now - one.began
                working[one.address] += 1
        return used, working
