"""What a training run is told: one YAML file, checked to the last key before anything is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from upmri.core.errors import InputError
from upmri.core.settings import build, read_mapping
from upmri.training.selection import Selection


@dataclass(frozen=True, kw_only=True)
class DataConfig(Selection):
    """Where slices come from: undersampled scans, or images of which scans are simulated.

    A simulated scan is the same in every epoch: its mask, maps, phase and noise depend on the image's name alone. So do
    the lines that are left of a fully sampled one.

    Parameters
    ----------
    scans, images, part, share, person, only, limit, coils, anatomy, lines, counting, acs
        Which slices: see :class:`upmri.training.selection.Selection`.
    undersample
        The scans are fully sampled: leave each slice some of its lines only, and keep what all gave as its reference.
    accelerations
        Every slice that is simulated or undersampled gets one of them.
    noise
        σ₀ of simulated scans lies between these bounds.
    varied
        Share of the images that are given another contrast and a gradient echo's phase, most of them fat too, before
        they are scanned, so that the prior serves more than the scans at hand.
    """

    undersample: bool = False
    accelerations: tuple[float, ...] = (4.0, 6.0, 8.0)
    noise: tuple[float, float] = (0.01, 0.01)
    varied: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.accelerations:
            raise InputError("accelerations: expected at least one")
        low, high = self.noise
        if not (0 < low <= high < math.inf or low == high == 0):
            raise InputError(f"noise: expected bounds 0 < low ≤ high, or 0 twice, got {low} and {high}")


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Parameters
    ----------
    output
        Folder for the weights, the checkpoint, the logs and, unless ``cache`` names another, the prepared slices.
    method, lesson
        What is trained, and the settings of its lesson.
    begin
        Weights to begin with, by name or file, instead of random ones: to go on learning from scans of one's own.
    train, validation
        The slices it learns from, and those that only judge.
    steps, batch, rate, schedule, warmup, weight_decay, clip, ema
        Steps in all; slices a step over all processes; AdamW's rate at its highest; ``cosine`` or ``constant`` after
        a linear rise over ``warmup`` steps; decay; largest norm of the gradient; how long the average remembers.
    precision
        Of the U-Net: ``fp32``, or ``bf16`` with weights kept in single precision.
    compile
        Have ``torch.compile`` translate the U-Net first, which takes a minute or so for each size of slices.
    flips
        Show slices flipped at random, together with their maps and masks.
    seed
        Of everything.
    log_every, validate_every, save_every
        In steps; validation also happens at the end.
    resident
        Keep all prepared slices on the device; otherwise they are read from the cache as they are needed.
    workers
        Processes that prepare slices.
    device, tensorboard
        Where, and whether to write TensorBoard's logs beside the JSON lines.
    name, about, licence
        Written into the weights: their name, what they were trained on, under which licence they are given.
    """

    output: str
    train: DataConfig
    validation: DataConfig | None = None
    method: str = "upmri"
    lesson: dict[str, Any] = field(default_factory=dict)
    begin: str | None = None
    steps: int = 10_000
    batch: int = 16
    rate: float = 5e-4
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0
    ema: float = 0.999
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    flips: bool = True
    seed: int = 0
    log_every: int = 20
    validate_every: int = 1000
    save_every: int = 500
    resident: bool = False
    workers: int = 1
    cache: str | None = None
    device: str = "auto"
    tensorboard: bool = False
    name: str = "weights"
    about: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        for key in ("steps", "batch", "log_every", "validate_every", "save_every", "workers"):
            if getattr(self, key) < 1:
                raise InputError(f"{key}: expected at least 1, got {getattr(self, key)}")
        for key in ("rate", "clip"):
            if not getattr(self, key) > 0:
                raise InputError(f"{key}: expected a number > 0, got {getattr(self, key)}")
        if not 0 <= self.ema < 1:
            raise InputError(f"ema: expected 0 ≤ ema < 1, got {self.ema}")
        if self.name in ("", "checkpoint") or Path(self.name).name != self.name:
            raise InputError(f"name: expected one for a file, other than 'checkpoint', got {self.name!r}")


def read_config(source: TrainConfig | Mapping[str, Any] | str | Path, changes: tuple[str, ...] = ()) -> TrainConfig:
    """Read a configuration from YAML, with changes such as ``train.coils=8`` made to it."""
    plain = asdict(source) if isinstance(source, TrainConfig) else source
    made: TrainConfig = build(TrainConfig, read_mapping(plain, changes), "")
    return made
