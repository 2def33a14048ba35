"""Ctrl-C and SIGTERM during a training: the step in progress is finished, then the run is saved."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class TrainingInterrupted(KeyboardInterrupt):
    """A signal ended the training; its state is saved.

    Parameters
    ----------
    folder
        Output folder of the run.
    step
        Step of the saved state.
    number
        Number of the signal: SIGINT (Ctrl-C) or SIGTERM.
    """

    def __init__(self, folder: Path, step: int, number: int) -> None:
        super().__init__(f"{folder}: interrupted, saved at step {step}; continue with --resume (resume=True)")
        self.folder, self.step, self.number = folder, step, number


class SignalWatch:
    """Within this context, the first SIGINT or SIGTERM is only noted in ``number``; the second one interrupts at once.

    Parameters
    ----------
    active
        Whether to watch. Several processes that train together do not: signals reach them in different steps, and a
        process that stops alone leaves the others waiting for it.
    """

    def __init__(self, *, active: bool) -> None:
        # Python allows handlers of signals only in the main thread.
        self._active = active and threading.current_thread() is threading.main_thread()
        self._before: dict[signal.Signals, Any] = {}
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
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
