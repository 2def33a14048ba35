"""The same work for several items, in threads, and the number of cores for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Return the number of cores that this process may use: fewer than the machine has, in a container or a job."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the work for each item, in order. It should be done by code that releases the interpreter, as torch's.

    The first exception in this order is raised.
    """
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), cores())) as pool:
        return list(pool.map(work, items))


def started(work: Callable[[], Result], *, now: bool) -> Callable[[], Result]:
    """Return a function that returns the work's result, and its exception where it has one.

    With ``now`` a thread begins at once, for a CPU that would otherwise wait for an accelerator.
    """
    if not now:
        return work
    pool = ThreadPoolExecutor(1)
    result = pool.submit(work)
    pool.shutdown(wait=False)
    return result.result
