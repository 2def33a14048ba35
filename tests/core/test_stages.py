"""Seconds of stages."""

import pytest

from upmri.core import stages
from upmri.core.stages import measured, stage


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that the tests turn."""
    now = [0.0]
    monkeypatch.setattr(stages, "_now", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def test_stages_add_up_and_inner_ones_are_not_counted_twice(clock):
    seconds = {}
    with measured(seconds):
        for _ in range(2):
            with stage("outer"):
                clock(1)
                with stage("inner"):
                    clock(10)
                    with stage("outer"):
                        clock(100)
                clock(1000)
        clock(10000)
        with stage("later"):
            pass
    assert seconds == {"outer": 2 * 1101, "inner": 20, "later": 0}
    assert list(seconds) == ["outer", "inner", "later"]


def test_without_a_request_nothing_is_measured(clock):
    seconds = {}
    with measured(seconds):
        pass
    with stage("work"):
        clock(1)
    assert seconds == {}


def test_a_stage_that_fails_is_counted(clock):
    seconds = {}
    with measured(seconds), pytest.raises(ValueError, match="no"), stage("work"):
        clock(3)
        raise ValueError("no")
    assert seconds == {"work": 3}
