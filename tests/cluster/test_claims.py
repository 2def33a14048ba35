"""Claims: one process at a time has a task, and a lost one is replaced once."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from upmri.cluster import claims
from upmri.formats import leftovers


@pytest.fixture(scope="module")
def ended():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left_behind(folder, name, process, *, machine=None, born="1", writing=False):
    """Write the claim of a process that was killed."""
    (folder / f"{name}.0").write_text(json.dumps([machine or leftovers.machine(), process, born]))
    if writing:
        (folder / f"{name}.0.writing").touch()


def test_of_two_one_has_it_and_later_the_other(tmp_path):
    with claims.claimed(tmp_path, "a/scan") as first:
        assert first is not None
        with claims.claimed(tmp_path, "a/scan") as second:
            assert second is None
    with claims.claimed(tmp_path, "a/scan") as third:
        assert third is not None
        assert not third.again
    assert not list((tmp_path / "a").iterdir())


@pytest.mark.parametrize("writing", [True, False])
def test_a_claim_of_an_ended_process_is_taken_over(tmp_path, ended, writing):
    left_behind(tmp_path, "scan", ended, writing=writing)
    with claims.claimed(tmp_path, "scan") as claim:
        assert claim.again is writing  # only then may the output be its own
    assert not list(tmp_path.iterdir())


def test_a_later_process_with_the_same_number_is_another(tmp_path):
    left_behind(tmp_path, "scan", os.getpid(), born="not the time when this process began")
    with claims.claimed(tmp_path, "scan") as claim:
        assert claim is not None


def test_a_claim_of_another_machine_is_lost_without_signs_of_life(tmp_path, ended):
    left_behind(tmp_path, "scan", ended, machine="elsewhere")
    with claims.claimed(tmp_path, "scan") as claim:
        assert claim is None
    old = time.time() - claims.LOST - 5
    os.utime(tmp_path / "scan.0", (old, old))
    with claims.claimed(tmp_path, "scan") as claim:
        assert claim is not None


def test_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT", 0.01)
    with claims.claimed(tmp_path, "scan"):
        os.utime(tmp_path / "scan.0", (1, 1))
        until = time.monotonic() + 60
        while (tmp_path / "scan.0").stat().st_mtime == 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert (tmp_path / "scan.0").stat().st_mtime > 1


def _race(folder: str, number: int, begin: float) -> list[str]:
    time.sleep(max(0.0, begin - time.time()))
    mine = []
    for index in range(40):
        name = f"scan{index}"
        with claims.claimed(Path(folder), name) as claim:
            if claim is not None and not Path(folder, f"{name}.done").exists():
                Path(folder, f"{name}.done").touch()
                mine.append(name)
    return mine


def test_several_processes_that_find_the_same_lost_claims(tmp_path, ended):
    for index in range(40):
        left_behind(tmp_path, f"scan{index}", ended)
    begin = time.time() + 2.0
    with multiprocessing.get_context("fork").Pool(3) as pool:
        parts = pool.starmap(_race, [(str(tmp_path), number, begin) for number in range(3)])
    done = [name for part in parts for name in part]
    assert sorted(done) == sorted(f"scan{index}" for index in range(40))  # each once
