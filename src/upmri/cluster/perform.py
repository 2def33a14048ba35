"""One task, once: skipped if it is finished, claimed, done, and recorded. Errors are outcomes, not exceptions."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from upmri.cluster import claims, content
from upmri.cluster.records import Record, State, TaskRecords
from upmri.core.errors import InputError


@dataclass(frozen=True)
class FileTask:
    """One output to make.

    Parameters
    ----------
    name
        Name, unique among the tasks of a folder; it may have subfolders.
    inputs
        Files that the output depends on; the first one is named in messages.
    output
        File to write.
    slices
        Slices of the input to read, as in ``3:7``, for a part of a large scan; None for all.
    arguments
        Further arguments of this task alone.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    slices: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What a task wrote, and its row of the table."""

    files: Sequence[Path]
    summary: dict[str, Any]


class Split(Exception):  # noqa: N818 - not an error
    """Raised by a work whose task is too large for one call: do these ranges of slices instead, and join them."""

    def __init__(self, ranges: list[str]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class Work(Protocol):
    """What is done with each task. Instances are sent to other processes, so they hold plain values only."""

    @property
    def stamp(self) -> str:
        """Hash of all settings and weights that outputs depend on."""

    def __call__(self, task: FileTask, *, overwrite: bool) -> Done:
        """Do a task: write its output whole or not at all; wrong input is an :class:`InputError`."""


@dataclass(frozen=True)
class Outcome:
    """What became of a task in one call of :func:`perform`; small, as it travels to the client.

    Parameters
    ----------
    name
        Name of the task.
    state
        That of its record; or ``finished`` before, ``taken`` by another process, or to be ``split``.
    line
        What was wrong.
    ranges
        Ranges of slices of a task that is to be split.
    facts
        Part of the summary that later tasks need.
    """

    name: str
    state: State | Literal["finished", "taken", "split"]
    line: str = ""
    ranges: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def perform(work: Work, task: FileTask, folder: str, stamp: str, overwrite: bool = False) -> Outcome:
    """Do a task, if it is not finished and no other process has it.

    Parameters
    ----------
    work
        What to do.
    task
        With what.
    folder
        Folder of the outputs, with the claims and records of all processes.
    stamp
        Hash of settings and weights.
    overwrite
        Whether an output of other content is replaced.
    """
    records = TaskRecords(Path(folder))
    try:
        if record := records.finished(task.name, stamp, task.inputs):
            return _outcome(record, "finished")
        with claims.claimed(records.claims, task.name) as claim:
            if claim is None:
                return Outcome(task.name, "taken")
            if record := records.finished(task.name, stamp, task.inputs):  # while this process took the claim
                return _outcome(record, "finished")
            if os.path.lexists(task.output) and not overwrite and not claim.again:
                # Not recorded: the record of what is there stays.
                line = f"{task.output}: exists already, from other input or settings; use --overwrite"
                return Outcome(task.name, "bad", line)
            claim.begin()
            return _do(work, task, records, stamp, overwrite or claim.again)
    except InputError as error:
        return _recorded(records, _wrong(task, "bad", str(error.within(path=task.inputs[0]))))


def _do(work: Work, task: FileTask, records: TaskRecords, stamp: str, overwrite: bool) -> Outcome:
    try:
        known = content.states(task.inputs)
        done = work(task, overwrite=overwrite)
    except Split as split:
        return Outcome(task.name, "split", ranges=tuple(split.ranges))
    except MemoryError:
        return _recorded(records, _wrong(task, "bad", f"{task.inputs[0]}: too large for the memory"))
    except InputError:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno}, an error in upmri itself)"
        return _recorded(records, _wrong(task, "failed", f"{task.inputs[0]}: {text}"))
    files = records.sizes(list(done.files))
    return _recorded(records, Record(task.name, "done", stamp, known, files, done.summary))


def _wrong(task: FileTask, state: State, line: str) -> Record:
    return Record(task.name, state, summary={"scan": task.inputs[0]}, line=line)


def _recorded(records: TaskRecords, record: Record) -> Outcome:
    try:
        records.write(record)
    except InputError as error:  # a full disk: the next run does the task again
        return Outcome(record.name, "bad", line=record.line or str(error))
    return _outcome(record, record.state)


def _outcome(record: Record, state: Any) -> Outcome:
    settings = record.summary.get("settings", {})
    facts = {"model": settings["model"]} if "model" in settings else {}
    return Outcome(record.name, state, record.line, facts=facts)
