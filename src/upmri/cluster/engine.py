"""Engines, which do calls of :func:`~upmri.cluster.perform.perform`: here, or in one process for each device."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol

from upmri.cluster.perform import FileTask, Outcome, Work, perform
from upmri.cluster.place import set_device
from upmri.core.parallel import cores

LOSSES = 3
"""Number of processes that a call may lose before it is given up."""
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Call:
    """A call of :func:`~upmri.cluster.perform.perform`: its arguments."""

    work: Work
    task: FileTask
    folder: str
    stamp: str
    overwrite: bool = False

    def __call__(self) -> Outcome:
        """Do it; threads of one process wait for each other, as each uses all its cores."""
        with _one_at_a_time:
            return perform(self.work, self.task, self.folder, self.stamp, self.overwrite)


class Engine(Protocol):
    """Does calls in some order, in this process or others."""

    def run(self, queue: deque[Call]) -> Iterator[tuple[Call, Outcome]]:
        """Do all calls, also those that are added meanwhile; yield each with its outcome."""


class Serial:
    """One call after another, in this process."""

    def run(self, queue: deque[Call]) -> Iterator[tuple[Call, Outcome]]:
        """Do all calls."""
        while queue:
            call = queue.popleft()
            yield call, call()


class OnDevices:
    """One process for each device of this machine.

    Parameters
    ----------
    devices
        Names of the devices, as ``cuda:0``.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices

    def run(self, queue: deque[Call]) -> Iterator[tuple[Call, Outcome]]:
        """Do all calls; those that were running when a process was killed are done again, by new processes.

        They are done one at a time, so that a call is given up only for processes that it ended itself.
        """
        losses: Counter[str] = Counter()
        again: deque[Call] = deque()
        while queue or again:
            flying: dict[Future[Outcome], Call] = {}
            try:
                yield from self._run(deque([again.popleft()]) if again else queue, flying)
            except BrokenProcessPool:
                for call in flying.values():
                    losses[call.task.name] += len(flying) == 1
                    if losses[call.task.name] > LOSSES:
                        yield call, lost(call)
                    else:
                        again.append(call)

    def _run(self, queue: deque[Call], flying: dict[Future[Outcome], Call]) -> Iterator[tuple[Call, Outcome]]:
        context = multiprocessing.get_context("spawn")
        names: Any = context.Queue()
        for name in self._devices:
            names.put(name)
        with ProcessPoolExecutor(len(self._devices), context, _begin, (names, len(self._devices))) as pool:
            while queue or flying:
                while queue and len(flying) < len(self._devices):
                    call = queue.popleft()
                    flying[pool.submit(call)] = call
                ended, _ = wait(flying, return_when=FIRST_COMPLETED)
                for future in ended:
                    outcome = future.result()
                    yield flying.pop(future), outcome


def lost(call: Call) -> Outcome:
    """Return the outcome of a call whose processes ended again and again."""
    line = f"{call.task.inputs[0]}: its process was ended {LOSSES + 1} times; is it too large for the memory?"
    return Outcome(call.task.name, "bad", line)


def _begin(names: Any, count: int) -> None:
    """Begin a process: it gets a device, and its share of the cores."""
    import torch

    from upmri.core import memory

    set_device(names.get())
    torch.set_num_threads(max(1, cores() // count))
    memory.keep_freed()
