"""Killed processes leave nothing behind for long, and nobody else's files are touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from upmri.formats import atomic, leftovers

HANG = """
import sys, time
from pathlib import Path
from upmri.formats import atomic
with atomic.staged(Path(sys.argv[1]), overwrite=True) as stage:
    stage.write_text("half")
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def ended():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def named(folder, process, machine=None, prefix=""):
    path = folder / f".upmri-{prefix}{machine or leftovers.machine()}-{process}-abcd_123"
    path.mkdir(parents=True)
    (path / "half").write_text("half")
    return path


def age(path, days):
    os.utime(path, (time.time() - 24 * 3600 * days,) * 2)


def write(path):
    leftovers.remove.cache_clear()  # as in a new process
    with atomic.staged(path, overwrite=True) as stage:
        stage.write_text("new")


def test_a_killed_process_leaves_nothing_after_the_next_write(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HANG, tmp_path / "a"], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        (stage,) = tmp_path.iterdir()
        assert f"-{process.pid}-" in stage.name
        write(tmp_path / "b")
        assert stage.is_dir()  # its process still writes
        process.kill()
    write(tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_only_own_names_of_processes_that_have_ended_are_removed(tmp_path, ended):
    gone = named(tmp_path, ended)
    kept = [
        named(tmp_path, os.getpid()),
        named(tmp_path, ended, machine="0" * 8),
        tmp_path / ".upmri-notes",
        tmp_path / f".upmri-{leftovers.machine()}-{ended}-abcd_123.txt",
        tmp_path / ".upmri-abcd_123",
        tmp_path / f"{gone.name[1:]}",
    ]
    for path in kept[2:]:
        path.mkdir()
    write(tmp_path / "a")
    assert not gone.exists()
    assert all(path.is_dir() for path in kept)


def test_after_a_day_a_process_no_longer_matters(tmp_path, ended):
    gone = [named(tmp_path, ended, machine="0" * 8), tmp_path / ".upmri-abcd_123", named(tmp_path, os.getppid())]
    gone[1].mkdir()
    kept = tmp_path / ".upmri-notes"
    kept.mkdir()
    for path in (*gone, kept):
        age(path, 1.1)
    write(tmp_path / "a")
    assert not any(path.exists() for path in gone)
    assert kept.is_dir()


def test_links_and_files_are_not_followed(tmp_path, ended):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "a").write_text("a")
    link = tmp_path / f".upmri-{leftovers.machine()}-{ended}-abcd_123"
    link.symlink_to(precious)
    file = tmp_path / f".upmri-{leftovers.machine()}-{ended}-abcd_124"
    file.write_text("file")
    write(tmp_path / "b")
    assert (precious / "a").read_text() == "a"
    assert link.is_symlink()
    assert file.is_file()


@pytest.mark.parametrize("replaced", [True, False])
def test_a_folder_that_was_being_replaced_is_put_back(tmp_path, ended, replaced):
    """Its process was killed before the new one had the name, or after."""
    kept = named(tmp_path, ended, prefix="kept-")
    (kept / "half").unlink()
    (kept / "series.dcm").mkdir()
    (kept / "series.dcm" / "1.dcm").write_text("old")
    if replaced:
        (tmp_path / "series.dcm").mkdir()
        (tmp_path / "series.dcm" / "1.dcm").write_text("new")
    write(tmp_path / "a")
    assert not kept.exists()
    assert (tmp_path / "series.dcm" / "1.dcm").read_text() == ("new" if replaced else "old")


def test_a_folder_is_searched_once(tmp_path, monkeypatch):
    searched, iterdir = [], Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: searched.append(folder) or iterdir(folder))
    leftovers.remove.cache_clear()
    for name in "abc":
        with atomic.staged(tmp_path / name, overwrite=False) as stage:
            stage.write_text("new")
    assert searched.count(tmp_path) == 1
