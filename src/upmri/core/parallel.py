"""The same work for several items, in threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the work for each item, in order. It should be done by code that releases the interpreter, as torch's.

    The first exception in this order is raised.
    """
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), os.cpu_count() or 1)) as pool:
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
