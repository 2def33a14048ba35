"""Slices of which those with another contrast are simulated anew every so many steps, beside the training."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from upmri.physics.problem import Problem
from upmri.training.config import TrainConfig
from upmri.training.data import PreparedSlices
from upmri.training.distributed import Process
from upmri.training.interrupt import SignalWatch, TrainingInterrupted
from upmri.training.prepare import prepare
from upmri.training.workers import by_processes

# Name of the folder in that of the run for later draws, each in one of its own.
_FOLDER = "redrawn"
# Seconds between two looks at signals while a draw is awaited.
_PAUSE = 0.1


class RedrawnSlices:
    """Prepared slices with new scans every ``train.redraw`` steps, as :class:`~upmri.training.data.PreparedSlices`.

    The scans of a draw are prepared during the steps of the draw before, and deleted after their own; those of the
    first draw stay in the cache. A run that was interrupted has the same scans in each step.

    Parameters
    ----------
    config, process
        Configuration of the run, and this process. The first process prepares scans, the others wait and read them.
    first
        Prepared slices of the first draw, of which ``names`` are the names.
    watch
        Watch over signals: one that it has noted ends the wait for a draw.
    """

    def __init__(self, config: TrainConfig, process: Process, first: Sequence[Path], watch: SignalWatch) -> None:
        self._config, self._process, self._watch = config, process, watch
        self._known = {file.name: file for file in first}
        self._folder = Path(config.output) / _FOLDER
        self._slices = slices = PreparedSlices(first, process.device, resident=config.resident)
        self.coils, self.names, self._length = slices.coils, slices.names, len(slices)
        self._draw = 0
        self._next: Future[PreparedSlices] | None = None
        self._thread, self._stopped = ThreadPoolExecutor(1), Event()

    def __len__(self) -> int:
        return self._length

    def warn(self) -> None:
        """Nothing to warn of: every draw has other lines."""

    def need_references(self) -> None:
        """Refuse scans without references, which may stand beside the images."""
        self._slices.need_references()

    def batch(self, step: int, size: int, seed: int, *, flips: bool, rank: int = 0, world: int = 1) -> Problem:
        """Return this process's share of the batch of a step.

        Raises
        ------
        TrainingInterrupted
            A signal came while the scans of this step were prepared.
        """
        draw, last = (number // self._config.train.redraw for number in (step, self._config.steps - 1))
        if draw != self._draw:
            self._change(draw, step)
        if self._process.leads and self._next is None and draw < last:
            self._next = self._thread.submit(self._make, draw + 1)
        return self._slices.batch(step, size, seed, flips=flips, rank=rank, world=world)

    def close(self) -> None:
        """Prepare no more scans, and delete those of later draws."""
        self._stopped.set()
        self._thread.shutdown()
        if self._process.leads:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _change(self, draw: int, step: int) -> None:
        """Go on to the scans of a later draw, which begins with this step or before it."""
        if self._process.leads:
            coming = self._next or self._thread.submit(self._make, draw)
            while wait([coming], _PAUSE).not_done:
                if self._watch.number is not None:
                    raise TrainingInterrupted(Path(self._config.output), step, self._watch.number)
            self._slices, self._next = coming.result(), None
        self._process.wait()
        if self._process.leads:  # no process reads the earlier ones any more
            shutil.rmtree(self._folder / str(self._draw), ignore_errors=True)
        else:
            self._slices = self._make(draw)
        self._process.wait()  # not within a step, where waiting has a limit
        self._draw = draw

    def _make(self, draw: int) -> PreparedSlices:
        data = replace(self._config.train, draw=self._config.train.draw + draw)
        files = prepare(data, self._folder / str(draw), known=self._known, run=self._beside)
        return PreparedSlices(files, self._process.device, resident=self._config.resident)

    def _beside(self, todo: deque[Callable[[], Any]]) -> Iterator[tuple[Any, Any]]:
        """Call functions by processes beside the training, until :meth:`close`."""
        with by_processes(self._config.workers, todo) as calls:
            for future in as_completed(calls):
                if self._stopped.is_set():
                    raise CancelledError
                yield calls[future], future.exception() or future.result()
