"""Tasks: done once, skipped when finished with the same content, and errors as outcomes."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from upmri.cluster import claims
from upmri.cluster.perform import Done, FileTask, perform
from upmri.cluster.records import TaskRecords
from upmri.core.errors import InputError


@dataclass(frozen=True)
class Copy:
    """A work that copies a file in capital letters, and notes each call."""

    log: str
    fault: str = ""
    stamp: str = "copy"

    def __call__(self, task, *, overwrite):
        with Path(self.log).open("a") as log:
            log.write(f"{task.name}\n")
        text = Path(task.inputs[0]).read_text()
        if text.startswith("bad"):
            raise InputError("is bad", field="letters")
        if self.fault:
            raise {"memory": MemoryError(), "program": KeyError("x")}[self.fault]
        target = Path(task.output)
        if target.exists() and not overwrite:
            raise InputError("exists already", path=target)
        target.write_text(text.upper())
        return Done([target], {"scan": task.inputs[0], "out": task.output})


@pytest.fixture
def work(tmp_path):
    return Copy(str(tmp_path / "log"))


@pytest.fixture
def task(tmp_path):
    (tmp_path / "a.txt").write_text("apple")
    return FileTask("a", (str(tmp_path / "a.txt"),), str(tmp_path / "A.txt"))


def calls(work):
    return Path(work.log).read_text().split() if Path(work.log).exists() else []


def do(work, task, tmp_path, **options):
    return perform(work, task, str(tmp_path), work.stamp, **options)


def test_done_then_finished(work, task, tmp_path):
    assert do(work, task, tmp_path).state == "done"
    assert Path(task.output).read_text() == "APPLE"
    assert do(work, task, tmp_path).state == "finished"
    os.utime(tmp_path / "a.txt", (1, 1))  # another time, the same content
    assert do(work, task, tmp_path).state == "finished"
    assert calls(work) == ["a"]
    assert not list((tmp_path / ".upmri" / "claims").rglob("*.*"))


@pytest.mark.parametrize("what", ["input", "settings", "output"])
def test_other_content_is_done_again(work, task, tmp_path, what):
    do(work, task, tmp_path)
    if what == "input":
        (tmp_path / "a.txt").write_text("plums")  # of the same size
    elif what == "settings":
        work = replace(work, stamp="other")
    else:
        Path(task.output).unlink()
    outcome = do(work, task, tmp_path)
    if what != "output":  # the file that is there has other content: it stays, and so does its record
        assert outcome.state == "bad"
        assert "exists already" in outcome.line
        assert Path(task.output).read_text() == "APPLE"
        assert TaskRecords(tmp_path).read("a").state == "done"
        outcome = do(work, task, tmp_path, overwrite=True)
    assert outcome.state == "done"
    assert len(calls(work)) == 2


def test_a_file_of_another_program_stays(work, task, tmp_path):
    Path(task.output).write_text("mine")
    assert do(work, task, tmp_path).state == "bad"
    assert Path(task.output).read_text() == "mine"
    assert calls(work) == []


def test_taken(work, task, tmp_path):
    with claims.claimed(TaskRecords(tmp_path).claims, "a"):
        assert do(work, task, tmp_path).state == "taken"
    assert calls(work) == []


def test_an_output_of_a_process_that_was_killed_before_its_record_is_replaced(work, task, tmp_path, monkeypatch):
    folder = TaskRecords(tmp_path).claims
    folder.mkdir(parents=True)
    (folder / "a.0").write_text('["elsewhere", 1, "1"]')
    (folder / "a.0.writing").touch()
    os.utime(folder / "a.0", (1, 1))
    Path(task.output).write_text("torn")
    assert do(work, task, tmp_path).state == "done"
    assert Path(task.output).read_text() == "APPLE"


def test_errors_are_outcomes(work, task, tmp_path):
    Path(task.inputs[0]).write_text("bad apple")
    outcome = do(work, task, tmp_path)
    assert (outcome.state, outcome.line) == ("bad", f"{task.inputs[0]}: letters: is bad")
    assert TaskRecords(tmp_path).read("a").line == outcome.line
    Path(task.inputs[0]).write_text("apple")
    assert "memory" in do(replace(work, fault="memory"), task, tmp_path).line
    outcome = do(replace(work, fault="program"), task, tmp_path)
    assert outcome.state == "failed"
    assert "KeyError" in outcome.line
    assert "test_perform.py" in outcome.line
    assert do(work, task, tmp_path).state == "done"  # the next run does it


def test_a_missing_input(work, task, tmp_path):
    Path(task.inputs[0]).unlink()
    assert "cannot be read" in do(work, task, tmp_path).line


def test_a_full_disk_is_a_line(work, task, tmp_path, monkeypatch):
    def full(self, text):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(Path, "write_text", full)
        outcome = do(work, task, tmp_path)
    assert outcome.state in ("bad", "failed")
    assert "No space left" in outcome.line
    assert do(work, task, tmp_path).state == "done"


def test_a_torn_record_is_none(work, task, tmp_path):
    do(work, task, tmp_path)
    file = tmp_path / ".upmri" / "records" / "a.json"
    file.write_text(file.read_text()[:30])
    assert TaskRecords(tmp_path).read("a") is None
    assert list(TaskRecords(tmp_path)) == []
