import os
import subprocess
import sys

import pytest

from upmri.core import memory

COUNT = """
import resource, numpy as np
from upmri.core import memory
if {keep}:
    assert memory.keep_freed()
for turn in range(20):
    np.ones(2**21)  # 16 MiB, freed at once
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_memory_that_was_freed_is_used_again():
    """The same size is allocated again and again: some hundred page faults each time, or hardly any."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    faults = {}
    for keep in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", COUNT.format(keep=keep)],
            capture_output=True,
            text=True,
            check=True,
            # Setting the threshold turns off glibc's own adaptation to large blocks.
            env=clean if keep else clean | {"MALLOC_MMAP_THRESHOLD_": "131072"},
        )
        faults[keep] = int(done.stdout)
    assert faults[True] < faults[False] / 10


def test_where_there_is_no_such_library_nothing_happens(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert memory.keep_freed() is False
