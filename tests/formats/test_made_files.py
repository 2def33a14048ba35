"""Files that hypothesis makes and damages, of every format: each is read or refused in one line.

They are read in a process of its own, so that a signal, a hang or a flood of memory is seen. Those that are accepted
are read again in a second process, after other scans, and give the same arrays. `make test` tries 24 files of each
kind, `make soak` 250, which are 3,500. ``benchmarks/hostile_files.py`` does the same and writes the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the package with the generators is beside this file

pytest.importorskip("twixtools")
from hostile.process import KINDS, DiedError, ReadingProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits on memory, and where it is read, are Linux's")


@pytest.fixture(scope="module")
def processes() -> Iterator[tuple[ReadingProcess, ReadingProcess]]:
    pair = (ReadingProcess(), ReadingProcess())
    yield pair
    for one in pair:
        one.close()


@pytest.mark.parametrize("count", [24, pytest.param(250, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", KINDS)
def test_made_files_are_read_the_same_everywhere_or_refused(tmp_path, kind, count, processes):
    first, second = processes
    found = first.ask(do="make", kind=kind, count=count, folder=str(tmp_path))
    assert found["files"] == count
    assert 0 < found["refused"] < count  # generators that make only good files, or only bad ones, test nothing
    other_order = sorted(found["read"], reverse=True)
    again = second.ask(do="again", kind=kind, paths=other_order)
    assert again == found["read"]


def test_signals_hangs_floods_and_faults_are_seen(processes):
    """What is not seen could not be found."""
    first, second = processes
    for how, name in (("flood", "FloodedError"), ("fault", "LookupError")):
        with pytest.raises(AssertionError, match=name):
            first.ask(do="misbehave", how=how)
    for process, how in ((first, "hang"), (second, "signal")):
        with pytest.raises(DiedError) as error:
            process.ask(do="misbehave", how=how)
        assert error.value.hang == (how == "hang")
        assert error.value.hang or "SIGSEGV" in str(error.value)
