"""Processes that prepare slices: signals are for the training alone, and they end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import torch

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def by_processes(count: int, calls: Iterable[Callable[[], Any]]) -> Iterator[dict[Future[Any], Callable[[], Any]]]:
    """Call functions by processes of one thread each; yield the futures of what they return, with the functions.

    At the end of the context, also by an error or Ctrl-C, calls that have not begun are cancelled, and the others
    awaited.
    """
    # An executor, not a pool: where a script lacks its `if __name__ == "__main__"`, a pool would hang.
    executor = ProcessPoolExecutor(count, _Spawn(), _begin)
    try:
        with _held_back():
            futures = {executor.submit(call): call for call in calls}
            # Wakes the executor's thread, which may have looked for its processes before the last one was there.
            executor.submit(int)
        yield futures
    finally:
        executor.shutdown(cancel_futures=True)


class _Process(SpawnProcess):
    # An executor ends its processes by this when one of them was lost; they ignore SIGTERM.
    terminate = SpawnProcess.kill


class _Spawn(SpawnContext):
    Process = _Process


@contextmanager
def _held_back() -> Iterator[None]:
    """Within this context no signal reaches this thread, nor the processes that it starts, which inherit that.

    A terminal, ``timeout`` and SLURM send signals to all processes of a program. One that ends a worker, which may
    still be importing, would take all slices from the training before it could save its state.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Prepare this process, which has just started."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_training, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_training() -> None:
    """End this process when the one that started it has ended, on any system: nobody needs its slices then."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
