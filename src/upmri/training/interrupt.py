"""Ctrl-C and SIGTERM during a training: the step in progress is finished, then the run is saved."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds in which further signals are the same one: `timeout` sends it to the process, then to its whole group.
_SAME = 0.5


class TrainingInterrupted(KeyboardInterrupt):
    """A signal ended the training; its state is saved.

    Parameters
    ----------
    folder
        Output folder of the run.
    step
        Step of the saved state; 0 where there is none yet, so that the run begins again when it is resumed.
    number
        Number of the signal: SIGINT (Ctrl-C) or SIGTERM.
    """

    def __init__(self, folder: Path, step: int, number: int) -> None:
        saved = f"saved at step {step}" if step else "before a step was saved"
        super().__init__(f"{folder}: interrupted, {saved}; continue with --resume (resume=True)")
        self.folder, self.step, self.number = folder, step, number


class SignalWatch:
    """Within this context, a SIGINT or SIGTERM ends a training with :class:`TrainingInterrupted`.

    It does so at once while there is nothing to save. Otherwise the first one is only noted in ``number``, for the end
    of the step, and the second one is a ``KeyboardInterrupt``.

    Parameters
    ----------
    folder
        Output folder of the run.
    active
        Whether to watch. Several processes that train together do not: signals reach them in different steps, and a
        process that stops alone leaves the others waiting for it.
    saved
        Step of the saved state while that is complete, which is before the first step and after the last. Otherwise
        None.

    Attributes
    ----------
    saved
        The same, to be changed.
    number
        Number of the signal that was noted.
    """

    def __init__(self, *, folder: Path, active: bool, saved: int | None = None) -> None:
        # Python allows handlers of signals only in the main thread.
        self._active = active and threading.current_thread() is threading.main_thread()
        self._folder = folder
        self._before: dict[signal.Signals, Any] = {}
        self._last = float("-inf")
        self.saved = saved
        self.number: int | None = None

    def __enter__(self) -> Self:
        if self._active:
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        now = time.monotonic()
        if now - self._last < _SAME:
            return
        self._last = now
        if self.saved is not None:
            raise TrainingInterrupted(self._folder, self.saved, number)
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
