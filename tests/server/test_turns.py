"""Turns and fair shares, with times that are given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from upmri.server.assemble import Frame
from upmri.server.limits import RefusedError
from upmri.server.turns import Turns, long_seats

TURN = 10.0  # seconds


def stream(number, peer="a", long=False, method=None):
    """Return a stream; by default each address has a method of its own, so that no time is expected from another."""
    order = SimpleNamespace(long=long, method=method or peer)
    return SimpleNamespace(number=number, peer=peer, order=order, fault=None)


def frame(number=0):
    return Frame((0, 0, 0, 0, number), 0)


def served(turns, seat, now, seconds, **options):
    """Take a frame, finish it after some seconds, and return the number of its stream."""
    turn = turns.take(seat, now, **options)
    if turn is None:
        return None
    turns.end(turn[0].number, now + seconds)
    return turn[0].number


class Simulation:
    """Workers and clients in simulated time: each client sends its next frame when the last one is done.

    ``costs`` has, for each address, the seconds of a frame of each of its streams. A worker takes ``start`` seconds to
    be replaced.
    """

    def __init__(self, workers, costs, start=3.0, long=()):
        self.turns, self.start, self.step = Turns(workers, TURN), start, 0.125
        self.seats: list[tuple[int, float] | None] = [None] * workers  # stream at work and its end
        self.back = [0.0] * workers  # time from which a worker is there
        self.streams = {}
        for peer, several in costs.items():
            for seconds in several:
                number = len(self.streams) + 1
                self.streams[number] = (stream(number, peer, peer in long), seconds)
        self.done = dict.fromkeys(self.streams, 0)
        self.waits = dict.fromkeys(self.streams, 0.0)  # the longest time without a worker
        self.since = dict.fromkeys(self.streams, 0.0)
        self.moved = dict.fromkeys(self.streams, 0)

    def run(self, seconds):
        for one, _ in self.streams.values():
            self.turns.add(one, frame(), 0.0)
        for tick in range(int(seconds / self.step)):
            now = tick * self.step
            late = self.turns.give_way(now)
            for seat, work in enumerate(self.seats):
                if work is not None and (work[0] in late or now >= work[1]):
                    number, (one, _) = work[0], self.streams[work[0]]
                    again = number in late and now < work[1]
                    self.turns.end(number, now, frame() if again else None, finished=not again)
                    self.seats[seat], self.since[number] = None, now
                    if again:
                        self.back[seat] = now + self.start
                        self.turns.charge(one.peer, self.start, now)
                        self.moved[number] += 1
                    else:
                        self.done[number] += 1
                        self.turns.add(one, frame(), now)
            for seat, work in enumerate(self.seats):
                if work is None and now >= self.back[seat] and (turn := self.turns.take(seat, now)) is not None:
                    number = turn[0].number
                    self.seats[seat] = (number, now + self.streams[number][1])
                    self.waits[number] = max(self.waits[number], now - self.since[number])
        for number in self.streams:
            if all(work is None or work[0] != number for work in self.seats):
                self.waits[number] = max(self.waits[number], now - self.since[number])
        return self


def test_frames_of_a_stream_keep_their_order():
    turns, one = Turns(1, TURN), stream(1)
    for number in range(3):
        turns.add(one, frame(number), 0.0)
    assert (turns.waiting(), turns.waiting(1), turns.waiting(2)) == (3, 3, 0)
    keys = []
    for now in range(3):
        _, got = turns.take(0, now)
        assert turns.take(0, now) is None  # one at a time
        keys.append(got.key[-1])
        assert turns.active(1)
        turns.end(1, now + 0.5)
    assert keys == [0, 1, 2]
    assert not turns.active(1)


def test_an_address_gains_nothing_from_many_streams():
    turns = Turns(1, TURN)
    for number in range(1, 5):
        for _ in range(8):
            turns.add(stream(number, "many"), frame(), 0.0)
    for _ in range(8):
        turns.add(stream(9, "one"), frame(), 0.0)
    order = [served(turns, 0, now, 1.0) for now in range(16)]
    assert order.count(9) == 8
    assert sorted(order[::2]) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_the_one_that_used_least_is_next():
    turns = Turns(1, TURN)
    for _ in range(30):
        turns.add(stream(1, "slow"), frame(), 0.0)
        turns.add(stream(2, "fast"), frame(), 0.0)
    now, order = 0.0, []
    while now < 40:
        seconds = 5.0 if order.count(1) <= order.count(2) / 5 else 1.0
        number = served(turns, 0, now, seconds)
        order.append(number)
        now += seconds
    slow = sum(5.0 for number in order if number == 1)
    assert 0.4 < slow / now < 0.6


def test_slow_frames_wait_until_others_have_had_as_much():
    turns = Turns(1, TURN)
    turns.add(stream(1, "first", method="slow"), frame(), 0.0)
    assert served(turns, 0, 0.0, 5.0) == 1  # nothing is known of it
    for number, method in ((2, "slow"), (3, "fast"), (4, "fast")):
        for _ in range(12):
            turns.add(stream(number, str(number), method=method), frame(), 0.0)
    order = [served(turns, 0, 10.0 + now, 1.0) for now in range(13)]
    assert (order[:8].count(3), order[:8].count(4), order[8:10].count(2)) == (4, 4, 1)


def test_frames_that_are_not_finished_do_not_make_a_method_fast():
    turns = Turns(1, TURN)
    for seconds, finished, expected in [(4, True, 4), (1, False, 4), (9, False, 5), (5, True, 5), (999, True, TURN)]:
        turns.add(stream(1, method="one"), frame(), 0.0)
        turns.take(0, 0.0)
        turns.end(1, float(seconds), finished=finished)
        assert turns._expected["one"] == pytest.approx(expected)


@pytest.mark.parametrize("now", [0.0, 0.5])
def test_time_at_work_counts_before_it_is_over(now):
    turns = Turns(4, TURN)
    for number, peer in ((1, "many"), (2, "many"), (3, "one")):
        turns.add(stream(number, peer), frame(), 0.0)
    assert turns.take(0, 0.0)[0].number == 1
    assert turns.take(1, now)[0].number == 3  # though 2 came first


def test_replacing_a_worker_counts():
    turns = Turns(1, TURN)
    for _ in range(5):
        turns.add(stream(1, "kills"), frame(), 0.0)
        turns.add(stream(2, "other"), frame(), 0.0)
    assert served(turns, 0, 0.0, 0.5) == 1
    turns.charge("kills", 3.0, 0.5)
    assert [served(turns, 0, now, 1.0) for now in range(1, 6)] == [2, 2, 2, 1, 2]


def test_nobody_saves_up_time():
    turns = Turns(1, TURN)
    for _ in range(110):
        turns.add(stream(1, "early"), frame(), 0.0)
    for now in range(100):
        served(turns, 0, now, 1.0)
    for _ in range(10):
        turns.add(stream(2, "late"), frame(), 0.0)
    order = [served(turns, 0, 100 + now, 1.0) for now in range(6)]
    assert order.count(1) == 3


def test_a_debt_survives_the_end_of_a_stream_and_is_forgotten_when_others_have_used_as_much():
    turns = Turns(1, TURN)
    for _ in range(20):
        turns.add(stream(2, "other"), frame(), 0.0)
    turns.add(stream(1, "costly"), frame(), 0.0)
    assert served(turns, 0, 0.0, 1.0) == 2
    assert served(turns, 0, 1.0, 6.0) == 1
    turns.leave(1)
    turns.add(stream(3, "costly", method="other"), frame(), 7.0)  # the same client again, with a faster method
    assert [served(turns, 0, 7.0 + now, 1.0) for now in range(6)] == [2, 2, 2, 2, 2, 3]
    for now in range(14):
        served(turns, 0, 20.0 + now, 1.0)
    turns.add(stream(4, "new"), frame(), 1000.0)
    assert "costly" not in turns._used


def test_a_moment_without_frames_does_not_change_what_was_used():
    """A client that sends its next slice when it has the image of the last one."""
    turns, order = Turns(1, TURN), []
    for _ in range(3):
        turns.add(stream(1, "costly"), frame(), 0.0)
    turns.add(stream(2, "other", method="costly"), frame(), 0.0)
    assert served(turns, 0, 0.0, 8.0) == 1
    for now in range(8, 15):
        order.append(served(turns, 0, float(now), 1.0))
        turns.add(stream(2, "other", method="costly"), frame(), now + 1.0)
    assert order == [2] * 7


def test_streams_of_one_address_share_its_time():
    """As through a tunnel, where all clients have the address of this machine."""
    turns = Turns(1, TURN)
    for _ in range(20):
        turns.add(stream(1), frame(), 0.0)
        turns.add(stream(2), frame(), 0.0)
    now, order = 0.0, []
    for _ in range(12):
        number = served(turns, 0, now, 9.0 if not order else 1.0)
        now += 1
        order.append(number)
    assert order == [1] + [2] * 9 + [1, 2]


def test_streams_that_ended_get_nothing():
    turns, one = Turns(1, TURN), stream(1)
    turns.add(one, frame(), 0.0)
    one.fault = RefusedError("gone", "gone")
    assert turns.take(0, 0.0) is None
    turns.leave(1)
    assert (turns.waiting(), turns.active(1)) == (0, False)
    turns.leave(1)  # and once more does not matter
    two = stream(2)
    turns.add(two, frame(), 0.0)
    turns.take(0, 0.0)
    turns.leave(2)
    assert turns.active(2)  # until its worker is free
    turns.end(2, 1.0)
    assert not turns.active(2)


@pytest.mark.parametrize(("workers", "long"), [(1, []), (2, [1]), (3, [2]), (4, [2, 3]), (5, [3, 4])])
def test_at_least_half_of_the_workers_are_for_short_frames(workers, long):
    assert list(long_seats(workers)) == long


def test_long_frames_have_workers_of_their_own():
    turns = Turns(2, TURN)
    for number, long in ((1, True), (2, True), (3, False), (4, False)):
        turns.add(stream(number, str(number), long), frame(), 0.0)
    assert turns.take(1, 0.0)[0].number == 1
    assert turns.take(0, 0.0)[0].number == 3
    turns.end(1, 1.0)
    assert turns.take(1, 1.0)[0].number == 2
    turns.end(2, 2.0)
    assert turns.take(1, 2.0) is None
    assert turns.take(1, 2.0, all_kinds=True)[0].number == 4  # where no other worker can be started


def test_a_short_frame_gives_way_once_and_is_long():
    turns = Turns(2, TURN)
    turns.add(stream(1, "slow"), frame(7), 0.0)
    _, held = turns.take(0, 0.0)
    assert turns.give_way(1000.0) == []  # nobody waits
    turns.add(stream(2, "long", long=True), frame(), 0.0)
    assert turns.give_way(1000.0) == []  # a long one does not wait for this worker
    turns.add(stream(3, "third"), frame(), 0.0)
    assert turns.give_way(TURN) == []
    assert turns.give_way(TURN + 1) == [1]
    assert turns.give_way(TURN + 2) == []  # it does already
    turns.end(1, TURN + 2, held)
    assert turns.take(0, TURN + 2)[0].number == 3
    assert turns.take(0, TURN + 2) is None
    assert turns.take(1, TURN + 2)[0].number == 2  # it has used less
    turns.end(2, TURN + 3)
    assert turns.take(1, TURN + 3)[1] is held


def test_a_long_frame_gives_way_once_after_ten_times_as_long():
    turns = Turns(2, TURN)
    for number in (1, 2):
        turns.add(stream(number, str(number), long=True), frame(number), 0.0)
    _, first = turns.take(1, 0.0)
    turns.add(stream(3, "short"), frame(), 0.0)
    turns.take(0, 0.0)
    assert turns.give_way(10 * TURN) == []
    assert turns.give_way(10 * TURN + 1) == [1]
    turns.end(1, 101.0, first)
    assert turns.take(1, 101.0)[0].number == 2
    turns.end(2, 102.0)
    assert turns.take(1, 102.0)[1] is first
    turns.add(stream(4, "4", long=True), frame(), 0.0)
    assert turns.give_way(10_000.0) == []


def test_time_alone_does_not_make_a_stream_long():
    """Nobody waited: it may have been the machine."""
    turns, one = Turns(2, TURN), stream(1)
    turns.add(one, frame(), 0.0)
    assert served(turns, 0, 0.0, 10 * TURN) == 1
    turns.add(one, frame(), 0.0)
    assert turns.take(0, 1000.0)[0] is one


def test_one_worker_takes_everything_and_nothing_gives_way():
    turns = Turns(1, TURN)
    turns.add(stream(1, "1", long=True), frame(), 0.0)
    assert turns.take(0, 0.0)[0].number == 1
    turns.add(stream(2, "2"), frame(), 0.0)
    assert turns.give_way(1000.0) == []


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("declared", [False, True])
def test_nobody_waits_longer_than_for_one_turn_of_each_address(workers, declared):
    """Six hostile addresses with four endless streams each, and four with short slices."""
    hostile = {f"hostile {number}": [10_000.0] * 4 for number in range(6)}
    honest = {f"honest {number}": [0.5] for number in range(4)}
    made = Simulation(workers, hostile | honest, long=hostile if declared else ()).run(600)
    numbers = [number for number, (one, _) in made.streams.items() if one.peer in honest]
    short = workers - workers // 2
    # Every hostile address has a turn before an honest one has used as much; its other streams then have to wait.
    longest = 0 if declared else 6 * (TURN + made.start) / short + 1
    assert all(made.waits[number] <= longest + len(numbers) * 0.5 for number in numbers), made.waits
    assert max(made.moved.values()) <= (1 if declared else 2)
    shares = [made.done[number] for number in numbers]
    assert min(shares) > 0.7 * max(shares)
    assert 0.5 * sum(shares) > 0.9 * 600 * short - 6 * 4 * (TURN + made.start) * (not declared)


def test_long_streams_are_finished_in_the_end():
    made = Simulation(2, {"a": [25.0], "b": [150.0], "short": [0.5], "other": [0.5]}).run(1200)
    assert made.done[1] >= 5
    assert made.done[2] >= 2
    assert made.moved == {1: 1, 2: 2, 3: 0, 4: 0}
    assert max(made.waits[3], made.waits[4]) <= 2 * (TURN + made.start + 1)


def test_a_long_stream_does_not_keep_the_others_out_for_ever():
    made = Simulation(2, {"endless": [10_000.0], "long": [2.0]}, long=("endless", "long")).run(300)
    assert made.done[2] > 50
