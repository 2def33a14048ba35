"""A benchmark by several processes: they compute, and one process alone writes the database."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from upmri.core.errors import InputError, as_input_error, first_of
from upmri.core.progress import bar
from upmri.evaluation.benchmark import cases
from upmri.evaluation.benchmark.plan import BenchmarkConfig
from upmri.evaluation.benchmark.run import Step, Variant, lacking, of_task, open_store, reconstruct_task
from upmri.evaluation.benchmark.store import Store


@dataclass(frozen=True)
class Job:
    """One scan, with its name in the database and the variants that it lacks; a call computes them."""

    task: cases.Task
    scan: str
    missing: tuple[Variant, ...]
    seed: int
    device: str
    keep: bool

    def __call__(self) -> list[Step]:
        """Reconstruct; return what stores the results."""
        return list(reconstruct_task(self.task, self.scan, self.missing, self.seed, self.device, keep=self.keep))


Run = Callable[[deque[Job]], Iterator[tuple[Job, list[Step] | BaseException]]]
"""Does jobs in some order; yields each with its results, or the error that it ended in."""


def spread_benchmark(
    config: BenchmarkConfig, folder: Path, run: Run, *, device: str = "auto", progress: bool = False
) -> Store:
    """Compute what a benchmark lacks by other processes, with the results of :mod:`~upmri.evaluation.benchmark.run`.

    Scans that cannot be used do not stop the others; the first of them is the error at the end.
    """
    store, wanted = open_store(config, folder)
    todo = cases.tasks(config)
    kept = cases.with_pictures(config, todo)
    errors: list[InputError] = []
    with ExitStack() as stack:
        named = [(task, store.enter(task.key, task.origin)) for task in todo]
        mine = [(task, scan) for task, scan in named if stack.enter_context(store.claim(scan))]
        jobs = deque(
            Job(task, scan, tuple(missing), config.seed, device, task.key in kept)
            for task, scan in mine
            if (missing := lacking(store, scan, wanted))
        )
        with bar("benchmark", len(jobs), shown=progress) as advance:
            for job, result in run(jobs):
                if isinstance(result, list):
                    for step in result:
                        step(store)
                else:
                    errors.append(of_task(as_input_error(result), job.task))
                advance()
    if errors:
        store.close()
        raise first_of(errors, "scans")
    return store
