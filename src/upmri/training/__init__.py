"""From many undersampled scans to weights: the data, the loop, and what a run leaves behind."""

from __future__ import annotations

from upmri.training.config import TrainConfig
from upmri.training.loop import train

__all__ = ["TrainConfig", "train"]
