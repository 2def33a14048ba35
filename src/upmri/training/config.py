"""Settings of a training run: one YAML file, of which every key is checked before any data is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Literal

from upmri.core.checks import at_least, checked_seed, in_range, positive, whole
from upmri.core.errors import InputError
from upmri.core.settings import build, read_mapping
from upmri.training.selection import Selection

CACHE = "cache"
"""Name of the folder in that of a run for its prepared slices, where the configuration names no other."""


@dataclass(frozen=True, kw_only=True)
class DataConfig(Selection):
    """Slices to train with: undersampled scans, or scans simulated from images.

    A simulated scan is the same in every epoch: its mask, maps, phase and noise depend only on the name of the image
    file and on ``draw``. The same holds for the lines that are kept of a fully sampled scan.

    Parameters
    ----------
    scans, images, part, share, person, only, limit, side, coils, anatomy, lines, counting, acs
        Choice of slices and lines: see :class:`upmri.training.selection.Selection`.
    undersample
        Whether the scans are fully sampled, so that lines have to be removed. The image of all lines is the reference.
        Scans that lack lines between others are refused.
    accelerations
        Accelerations, one of which is drawn for every simulated or undersampled slice.
    noise
        Bounds (low, high) of σ₀ of simulated scans; (0, 0) for no noise.
    varied
        Share of the images that get another contrast and the phase of a gradient echo (most of them fat, too) before
        the simulation, so that the network suits other scans than those it is trained with.
    draw
        Another number gives the images with another contrast one that is new, with new phase, coils, lines and noise,
        as a person has scans with several sequences; for a training that goes on after it has learned its scans. Other
        images keep their one scan: redrawn lines would show their full k-space.
    redraw
        Number of steps after which these images get new scans again; 0 for the same ones in all steps. They are
        prepared during the steps before.
    refine_maps
        Weights of ``upmri``, by name or file, whose image of a slice refines the slice's coil maps; none by default.
    """

    undersample: bool = False
    accelerations: tuple[float, ...] = (4.0, 6.0, 8.0)
    noise: tuple[float, float] = (0.01, 0.01)
    varied: float = 0.0
    draw: int = 0
    redraw: int = 0
    refine_maps: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.accelerations and all(1 <= rate < math.inf for rate in self.accelerations)):
            raise InputError(
                f"expected at least one finite number ≥ 1, got {list(self.accelerations)}", field="accelerations"
            )
        low, high = self.noise
        if not (0 < low <= high < math.inf or low == high == 0):
            raise InputError(f"expected bounds 0 < low ≤ high, or 0 twice, got {low} and {high}", field="noise")
        in_range(self, varied=(0, 1))
        at_least(self, 0, "redraw")
        for key in ("draw", "redraw"):
            if getattr(self, key) and not (self.varied and self.images):
                raise InputError("only images that get another contrast (varied above 0) have other scans", field=key)


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Parameters
    ----------
    output
        Folder for the weights, the checkpoint, the logs and, unless ``cache`` names another, the prepared slices.
    method, objective
        Name of the method to train, and the settings of its objective: a mapping, or an instance of its dataclass.
    begin
        Weights to start from, by name or file: brain, for instance, with fewer than some hundred slices. Settings of
        the objective that are not given are theirs then. Without it, training starts from random weights.
    train, validation
        Slices for training, and slices that only measure its progress.
    steps, batch
        Number of steps, and of slices in a step, over all processes together.
    optimiser
        ``adamw``, or ``muon`` for the weights of convolutions and AdamW for all others
        (:class:`upmri.training.muon.Muon`).
    rate, schedule, warmup
        Largest learning rate; its course after a linear increase over ``warmup`` steps: ``cosine`` (down to
        0) or ``constant``.
    weight_decay, clip, ema
        Weight decay, largest norm of the gradient, and decay of the moving average of the weights.
    keep
        Averaged weights that are written: the ``last``, or those with the ``best`` gain on held-out lines of all
        validations, one before the first step included.
    keep_each
        Whether to write the averaged weights of each validation, too, as ``NAME-STEP.safetensors``. Means of several of
        them are often better than each.
    calibrate
        Whether to fit what the method knows of its errors on the validation scans at the end (``spread`` of ``upmri``).
    precision
        Number format inside the network: ``fp32``, or ``bf16`` with the weights kept in single precision.
    compile
        Whether to compile the network with ``torch.compile``, which takes about a minute for each slice size.
    flips
        Whether to flip slices at random, together with their maps and masks.
    seed
        Random seed for the initial weights, the order of slices, their division into lines, and dropout.
    log_every, validate_every, save_every
        Number of steps between two lines of the log, validations and checkpoints. The last step has all three.
    resident
        Whether to keep all prepared slices in the memory of the device. Otherwise they are read from the cache.
    workers
        Number of processes that prepare slices.
    cache
        Folder for the prepared slices; in ``output`` if not given.
    device
        Device to train on: ``auto``, ``cpu``, ``cuda``, ….
    tensorboard
        Whether to write logs for TensorBoard, too.
    name, about, licence
        Name of the weights, the data they were trained with, and their licence, written into the weights file.
    """

    output: str
    train: DataConfig
    validation: DataConfig | None = None
    method: str = "upmri"
    objective: Any = field(default_factory=dict)
    begin: str | None = None
    steps: int = 10_000
    batch: int = 16
    optimiser: Literal["adamw", "muon"] = "adamw"
    rate: float = 5e-4
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0
    ema: float = 0.999
    keep: Literal["last", "best"] = "last"
    keep_each: bool = False
    calibrate: bool = True
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
        whole(self, 1, "steps", "batch", "log_every", "validate_every", "save_every", "workers")
        at_least(self, 0, "warmup", "weight_decay")
        positive(self, "rate", "clip")
        checked_seed(self.seed)
        if not 0 <= self.ema < 1:
            raise InputError(f"expected 0 ≤ ema < 1, got {self.ema}", field="ema")
        if self.keep == "best" and self.validation is None:
            raise InputError("'best' needs scans for validation", field="keep")
        if self.keep_each and self.validation is None:
            raise InputError("needs scans for validation", field="keep_each")
        if self.validation is not None and self.validation.redraw:
            raise InputError("scans for validation stay the same", field="validation.redraw")
        if self.name in ("", "..", "checkpoint") or Path(self.name).name != self.name:
            raise InputError(f"expected a file name other than 'checkpoint', got {self.name!r}", field="name")
        instance = is_dataclass(self.objective) and not isinstance(self.objective, type)
        if not (instance or isinstance(self.objective, dict)):
            raise InputError(f"expected keys and values, got {self.objective!r}", field="objective")

    @property
    def cache_folder(self) -> Path:
        """Folder of the prepared slices."""
        return Path(self.cache) if self.cache else Path(self.output) / CACHE


def read_config(source: TrainConfig | Mapping[str, Any] | str | Path, changes: tuple[str, ...] = ()) -> TrainConfig:
    """Return the checked configuration of a YAML file or mapping, with changes such as ``train.coils=8``."""
    if isinstance(source, TrainConfig):
        if not changes:
            return source
        source = asdict(source) | {"objective": source.objective}  # which may be an instance
    return build(TrainConfig, read_mapping(source, changes))
