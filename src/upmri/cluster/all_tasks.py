"""All tasks by an engine: large ones in parts, those of other processes once more at the end."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from upmri.cluster.engine import Call, Engine
from upmri.cluster.perform import FileTask, Outcome, Work
from upmri.cluster.ranges import Parts
from upmri.cluster.records import Record, TaskRecords

_PAUSE = 2.0  # seconds between two looks at tasks that other processes have


@dataclass
class Report:
    """Numbers of tasks by their state, and the lines of those that went wrong, by name."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.counts[outcome.state] += 1
        if outcome.state in ("bad", "failed"):
            self.wrong[outcome.name] = outcome.line


def run_tasks(
    engine: Engine,
    work: Work,
    tasks: Sequence[FileTask],
    folder: Path,
    *,
    overwrite: bool = False,
    patient: bool = True,
    joiner: Work | None = None,
    ended: Callable[[Outcome], None] = lambda _: None,
) -> Report:
    """Do all tasks; return what became of them.

    Parameters
    ----------
    engine
        What does them.
    work, tasks
        What to do, and with what.
    folder
        Folder of the outputs.
    overwrite
        Whether outputs of other content are replaced.
    patient
        Whether tasks that other processes have are waited for: until they are finished, or free again.
    joiner
        Work that joins the parts of a task that was split.
    ended
        Function that is called with the outcome of each task.
    """
    stamp = work.stamp
    report, parts = Report(), Parts(folder, joiner)
    queue = deque(Call(work, task, str(folder), stamp, overwrite) for task in tasks)
    while queue:
        taken: list[Call] = []
        for call, outcome in engine.run(queue):
            more, result = parts.next_calls(call, outcome)
            queue.extendleft(reversed(more))
            if result is None:
                continue
            if result.state == "taken" and patient:
                taken.append(parts.original(call))
                continue
            if result.state == "bad" and TaskRecords(folder).read(result.name) is None:
                _record(folder, parts.original(call).task, result)
            report.add(result)
            ended(result)
        queue.extend(taken)
        if taken:
            time.sleep(_PAUSE)
    return report


def _record(folder: Path, task: FileTask, outcome: Outcome) -> None:
    """Record a task whose process could not."""
    TaskRecords(folder).write(Record(task.name, "bad", summary={"scan": task.inputs[0]}, line=outcome.line))
