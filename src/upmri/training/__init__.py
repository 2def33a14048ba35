"""Training: configuration, preparation of slices, the loop, checkpoints, logs and validation."""

from __future__ import annotations

from upmri.training.config import TrainConfig
from upmri.training.loop import train

__all__ = ["TrainConfig", "train"]
