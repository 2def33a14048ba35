"""The process that forks, seen from outside: no child outlives the program, and a batch goes on after a crash."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

OPEN = """
import sys, time
from upmri import formats
source = formats.open_source(sys.argv[1])
server = source._session._server._process.pid
print(server, source._session._child, flush=True)
time.sleep(600)
"""


@pytest.fixture
def environment(package):
    path = os.pathsep.join([str(package), *filter(None, sys.path)])
    return os.environ | {"PYTHONPATH": path, "UPMRI_TRUSTED": "0", "OMP_NUM_THREADS": "1"}


def ended(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_a_program_that_is_ended_leaves_nothing(hostile, environment, number, popen):
    path = hostile("nothing")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    program = popen([sys.executable, "-c", OPEN, path], env=environment, **pipes)
    numbers = [int(word) for word in program.stdout.readline().split()]
    assert len(numbers) == 2
    assert not any(ended(one) for one in numbers)
    program.send_signal(number)
    program.wait(240)
    for _ in range(6000):
        if all(ended(one) for one in numbers):
            return
        time.sleep(0.01)
    pytest.fail("a process still runs")


def test_a_batch_goes_on_after_a_crash(hostile, environment, tmp_path, fresh):
    for name in ("a.npy", "c.npy"):
        np.save(tmp_path / name, np.ones((2, 2, 16, 16), np.complex64))
    scans = [tmp_path / "a.npy", hostile("segv", name="b.bad"), tmp_path / "c.npy"]
    words = ["recon", *scans, "-m", "zero-filled", "-q", "-o", tmp_path / "out"]
    done = fresh("from upmri.cli import main; main()", *words, env=environment)
    assert done.returncode == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.nii.gz", "c.nii.gz"]
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"upmri: {scans[1]}: the file made its reader stop: a crash (SIGSEGV)")
