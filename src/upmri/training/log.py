"""The log of a training run: one JSON object per line, and curves for TensorBoard on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.formats import atomic
from upmri.training.config import TrainConfig

_GAIN, _OLD = "held_out_gain", "held_out"


class TrainingLog:
    """``log.jsonl`` in the output folder.

    Parameters
    ----------
    folder
        Output folder of the run.
    step
        Step from which the run continues: lines of later steps, from an earlier attempt, are removed; all lines at 0.
    config
        Configuration, which has the switch for TensorBoard.
    active
        Whether this process writes; only one of several does.
    """

    def __init__(self, folder: Path, step: int, config: TrainConfig, *, active: bool) -> None:
        self._path = folder / "log.jsonl"
        self._active = active
        self._board: Any = None
        self.last_validation: dict[str, Any] | None = None
        if not active:
            return
        writer = _board_writer() if config.tensorboard else None
        lines = self._path.read_text(errors="replace").splitlines() if self._path.exists() else []
        entries = [entry for line in lines if (entry := _parse(line)) is not None and entry["step"] <= step > 0]
        with atomic.staged(self._path, overwrite=True) as stage:
            stage.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        self.last_validation = next((entry for entry in reversed(entries) if _GAIN in entry), None)
        if writer is not None:
            self._board = writer(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, **values: Any) -> None:
        """Add a line."""
        if not self._active:
            return
        entry = {"step": step, **values}
        if _GAIN in values:
            self.last_validation = entry
        with atomic.failures(self._path), self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)
            self._board.flush()


def _board_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("not installed; pip install 'upmri[train]'", field="tensorboard") from error
    return SummaryWriter


def _parse(line: str) -> dict[str, Any] | None:
    """Return an entry; None for a line that a kill cut short."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
        return None
    # Older versions wrote the error over that of SENSE in dB, which is the negative of the gain.
    return {_GAIN if key == _OLD else key: -value if key == _OLD else value for key, value in entry.items()}
