"""What the program sees of a child that crashes, hangs, floods, warns or lies."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from upmri import InputError, formats, load
from upmri.core import fork_server
from upmri.formats.child import session
from upmri.formats.child.session import ChildSession


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.npy"
    np.save(path, np.ones((2, 3, 8, 6), np.complex64))
    return path


def gone(number):
    """Whether a process has ended; waits for it."""
    for _ in range(6000):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("segv", "SIGSEGV"),
        ("leave", "its process ended"),
        ("read_late_crash", "SIGSEGV"),
        ("long_message", "a message of 2147483648 bytes"),
        ("no_message", "its answer is"),
    ],
)
def test_what_stops_a_reader_is_one_line_about_its_file(hostile, good, action, words):
    path = hostile(action)
    with pytest.raises(InputError) as error:
        load(path)
    assert error.value.path == str(path)
    assert words in error.value.message
    assert "the file made its reader stop" in error.value.message
    assert len(str(error.value).splitlines()) == 1
    assert len(load(good)) == 2  # the next file has a child of its own


def test_a_file_that_shrinks_while_it_is_read(hostile):
    """SIGBUS: the file is mapped into memory, and the page that is touched does not exist any more."""
    path = hostile("read_map")
    with formats.open_source(path) as source:
        assert len(source.read()) == 3
        os.truncate(path, 100)
        with pytest.raises(InputError, match="shorter while it was read.*SIGBUS"):
            source.read()
        with pytest.raises(InputError, match="reader stopped"):
            source.read()


@pytest.mark.parametrize("action", ["hang", "busy"])
def test_a_reader_that_hangs_is_ended(hostile, monkeypatch, action):
    monkeypatch.setattr(session, "SECONDS", 1.0)
    with pytest.raises(InputError, match="made its reader stop"):
        load(hostile(action))


@pytest.mark.parametrize("action", ["flood", "flood_torch"])
def test_a_flood_of_memory_is_refused(hostile, action):
    with pytest.raises(InputError, match="too large for the memory"):
        load(hostile(action), max_bytes=2**20)


def test_warnings_and_errors_come_as_they_are(hostile):
    with pytest.warns(RuntimeWarning, match=r"^odd header$"):
        load(hostile("warn"))
    path = hostile("wrong")
    with pytest.raises(InputError) as error:
        load(path)
    assert (error.value.message, error.value.field, error.value.path) == (
        "expected something else", "part", str(path)
    )  # fmt: skip


def test_a_mistake_in_a_reader_is_not_a_damaged_file(hostile):
    with pytest.raises(RuntimeError, match="TypeError: a mistake") as error:
        load(hostile("bug"))
    assert "in bug" in "".join(error.value.__notes__)


def test_an_interruption_leaves_no_child(hostile, monkeypatch):
    numbers = []
    fork = fork_server.fork

    def timed(room):
        made = fork(room)
        numbers.append(made[2])
        signal.setitimer(signal.ITIMER_REAL, 0.5)  # from now on, however long the start took
        return made

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fork_server, "fork", timed)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            load(hostile("hang"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(numbers) == 1
    assert gone(numbers[0])


def test_a_source_that_is_forgotten_leaves_no_child(good):
    made = ChildSession(good, 2**20)
    number = made._child
    del made
    for _ in range(100):
        load(good)  # its process then collects those that ended
        if not Path(f"/proc/{number}").exists():
            return
    pytest.fail("the child still runs")


def test_an_answer_that_nobody_took_is_not_taken_for_another(hostile):
    with formats.open_source(hostile("nothing")) as source:
        first = next(source.each())  # slice 1 is requested ahead
        last = source.read(2)
    assert (first.kspace.real.unique().item(), last.kspace.real.unique().item()) == (1, 3)


def test_threads_have_children_of_their_own(tmp_path):
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", np.full((4, 2, 8, 6), number + 1, np.complex64))
    found = {}

    def read(number):
        with formats.open_source(tmp_path / f"{number}.npy") as source:
            found[number] = [scan.kspace.real.unique().item() for scan in source.each()]

    threads = [threading.Thread(target=read, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number + 1] * 4 for number in range(6)}


def test_one_source_in_several_threads(hostile):
    found = []
    with formats.open_source(hostile("nothing")) as source:

        def read(index):
            for _ in range(20):
                found.append((index, source.read(index).kspace.real.unique().item()))

        threads = [threading.Thread(target=read, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 60
    assert all(value == index + 1 for index, value in found)
