"""Large tasks in parts: the first range of slices, then all others with what the first one chose, then they are joined.

Parts are outputs in a hidden folder with claims and records of their own, so that a second run does what is missing.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from upmri.cluster.engine import Call
from upmri.cluster.perform import Outcome, Work
from upmri.cluster.records import TaskRecords


@dataclass
class _Whole:
    call: Call
    waiting: list[Call]  # all ranges but the first
    files: list[str]
    left: set[str]
    given_up: bool = False


class Parts:
    """The tasks that are being done in parts.

    Parameters
    ----------
    folder
        Folder of the outputs.
    joiner
        Work that joins parts; its task has their files as ``arguments["parts"]``.
    """

    def __init__(self, folder: Path, joiner: Work | None) -> None:
        self._folder = TaskRecords(folder).parts
        self._joiner = joiner
        self._wholes: dict[str, _Whole] = {}
        self._owners: dict[str, str] = {}  # of each part

    def original(self, call: Call) -> Call:
        """Return the call whose part or join a call is, or the call itself."""
        found = self._wholes.get(self._owners.get(call.task.name, call.task.name))
        return call if found is None else found.call

    def next_calls(self, call: Call, outcome: Outcome) -> tuple[list[Call], Outcome | None]:
        """Return the calls that follow from an outcome, and the outcome of the whole task once that is known."""
        name = call.task.name
        if outcome.state == "split":
            return self._split(call, outcome.ranges), None
        if name not in self._owners:
            if outcome.state in ("done", "finished") and name in self._wholes:
                self._forget(name)
            return [], outcome
        whole = self._wholes.get(self._owners[name])
        if whole is None or whole.given_up:
            return [], None
        if outcome.state == "taken":
            whole.given_up = True  # another client does the same scan in parts
            return [], replace(outcome, name=whole.call.task.name)
        if outcome.state not in ("done", "finished"):  # a part alone cannot be done: the scan as a whole decides
            whole.given_up = True
            return [replace(whole.call, task=replace(whole.call.task, arguments={"whole": True}))], None
        whole.left.discard(name)
        if whole.waiting:
            others = [replace(part, task=replace(part.task, arguments=dict(outcome.facts))) for part in whole.waiting]
            whole.waiting = []
            return others, None
        if whole.left or self._joiner is None:
            return [], None
        join = replace(whole.call.task, arguments={"parts": whole.files})
        return [replace(whole.call, work=self._joiner, task=join)], None

    def _split(self, call: Call, ranges: tuple[str, ...]) -> list[Call]:
        name = call.task.name
        tasks = [
            replace(call.task, name=f"{name}@{number}", output=str(self._folder / name / f"{number}.h5"), slices=text)
            for number, text in enumerate(ranges)
        ]
        first, *others = (replace(call, task=task, folder=str(self._folder), overwrite=True) for task in tasks)
        self._wholes[name] = _Whole(call, others, [task.output for task in tasks], {task.name for task in tasks})
        self._owners |= {task.name: name for task in tasks}
        return [first]

    def _forget(self, name: str) -> None:
        """Remove the parts of a task that is done."""
        whole = self._wholes.pop(name)
        shutil.rmtree(self._folder / name, ignore_errors=True)
        for number in range(len(whole.files)):
            TaskRecords(self._folder).forget(f"{name}@{number}")
            self._owners.pop(f"{name}@{number}")
