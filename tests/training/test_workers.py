"""Processes that prepare slices: what signals do to them, and how they end."""

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from upmri.training.workers import by_processes

GUARD = 120  # seconds after which a failing test stops to wait; a start may take long on a busy machine


def wait_for(test):
    deadline = time.monotonic() + GUARD
    while not test():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(process):
    """Whether a process runs: not one that has ended and waits for its parent to notice."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def signalled(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)
    return numbers


def begun(file):
    """Write the number of this process, work for long, and write that this one was not ended."""
    file.with_suffix(".part").write_text(str(os.getpid()))
    file.with_suffix(".part").rename(file)
    time.sleep(2 * GUARD)
    file.with_suffix(".done").touch()


def noted(file, seconds):
    file.touch()
    time.sleep(seconds)


def test_workers_leave_signals_to_the_training():
    """From their first moment on, in which they only import."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    with by_processes(1, [partial(signalled, *numbers)]) as futures:
        (worker,) = multiprocessing.active_children()
        for number in numbers:
            os.kill(worker.pid, number)
        assert [future.result(GUARD) for future in futures] == [numbers]


def test_calls_that_have_not_begun_are_cancelled(tmp_path):
    files = [tmp_path / str(i) for i in range(20)]
    with pytest.raises(KeyboardInterrupt), by_processes(1, [partial(noted, file, 0.5) for file in files]):
        wait_for(lambda: any(tmp_path.iterdir()))
        raise KeyboardInterrupt
    assert 1 <= len(list(tmp_path.iterdir())) < len(files)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_workers_end_with_the_training_and_with_one_another(tmp_path, popen):
    """Also when it is killed; and none waits for one that was lost."""
    code = f"""
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_workers import begun
from upmri.training.workers import by_processes
if __name__ == "__main__":
    with by_processes(2, [partial(begun, Path(file)) for file in sys.argv[1:]]):
        pass
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    files = [tmp_path / name for name in "ab"]
    training = popen([sys.executable, script, *files])
    own = [tmp_path / name for name in "cd"]
    with pytest.raises(BrokenProcessPool), by_processes(2, [partial(begun, file) for file in own]) as calls:
        wait_for(lambda: all(file.exists() for file in own))
        os.kill(int(own[0].read_text()), signal.SIGKILL)
        for future in calls:
            future.result(GUARD)
    assert not any(runs(int(file.read_text())) for file in own)
    assert not list(tmp_path.glob("*.done"))
    wait_for(lambda: all(file.exists() for file in files))
    workers = [int(file.read_text()) for file in files]
    assert all(runs(worker) for worker in workers)
    training.kill()
    wait_for(lambda: not any(runs(worker) for worker in workers))
