"""Work of other processes, such as the simulation of scans, while this one does something else with what they made."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

import torch

Job = TypeVar("Job")
Made = TypeVar("Made")

AHEAD = 3  # results for each process that may wait


def in_processes(function: Callable[[Job], Made], jobs: Iterable[Job], workers: int) -> Iterator[Made]:
    """Results of a function in the order of its jobs, made by ``workers`` processes of one thread each.

    One worker is a process, too: sums over several threads round in another way, so results would depend on the number.
    """
    waiting: deque[Future[bytes]] = deque()
    with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for job in jobs:
            waiting.append(pool.submit(_made, function, job))
            if len(waiting) > AHEAD * workers:
                yield pickle.loads(waiting.popleft().result())
        while waiting:
            yield pickle.loads(waiting.popleft().result())


def _made(function: Callable[[Any], Any], job: Any) -> bytes:
    """Return a result as bytes: as a tensor it would take a file descriptor and shared memory while it waits."""
    return pickle.dumps(function(job), protocol=5)
