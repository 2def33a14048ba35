"""Work in threads."""

import os
import threading

import pytest

from upmri.core.parallel import cores, in_threads, started


def test_results_are_in_order():
    assert in_threads(lambda i: i * i, range(50)) == [i * i for i in range(50)]
    assert in_threads(str, []) == []


def test_one_item_needs_no_thread():
    assert in_threads(lambda _: threading.current_thread(), [0]) == [threading.main_thread()]
    assert threading.main_thread() not in in_threads(lambda _: threading.current_thread(), [0, 1])


def test_the_first_exception_is_raised():
    def work(i):
        if i:
            raise ValueError(str(i))

    with pytest.raises(ValueError, match="1"):
        in_threads(work, [0, 1, 2])


def test_work_begins_at_once_or_when_it_is_asked_for():
    begun = threading.Event()
    later = started(begun.set, now=False)
    assert not begun.is_set()
    later()
    assert begun.is_set()
    begun.clear()
    started(begun.set, now=True)
    assert begun.wait(10)


@pytest.mark.parametrize("now", [False, True])
def test_an_exception_comes_with_the_result(now):
    result = started(lambda: 1 / 0, now=now)
    with pytest.raises(ZeroDivisionError):
        result()


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1
