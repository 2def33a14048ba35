"""What a training run is told: one YAML file, checked to the last key before anything is read."""

from __future__ import annotations

import copy
import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from upmri.errors import InputError
from upmri.physics.geometry import Anatomy

# YAML 1.1 takes 5e-4 for text, as it has no point; here it is a number.
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")


@dataclass(frozen=True)
class DataConfig:
    """Where slices come from: undersampled scans, or images of which scans are simulated.

    A simulated scan is the same in every epoch: its mask, maps, phase and noise depend on the image's name alone.

    Parameters
    ----------
    scans
        Files of any supported format, or folders of them.
    images
        Files of images (.npz with ``image``, .npy, NIfTI), or folders of them.
    part
        Take of an image folder only the files that ``splits.json`` beside it lists under this part.
    coils, accelerations, noise, anatomy
        Of simulated scans; every image gets one of the accelerations, and a σ₀ between two bounds.
    varied
        Share of the images that are given another contrast and a gradient echo's phase, most of them fat too, before
        they are scanned, so that the prior serves more than the scans at hand.
    limit
        Slices at the most, evenly spread over all.
    """

    scans: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    part: str | None = None
    coils: int = 16
    accelerations: tuple[float, ...] = (4.0, 6.0, 8.0)
    noise: tuple[float, float] = (0.01, 0.01)
    anatomy: Anatomy = "head"
    varied: float = 0.0
    limit: int | None = None

    def __post_init__(self) -> None:
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
    """Read a configuration from YAML, with changes such as ``train.coils=8`` made to it.

    A file may name another as its ``base``, beside which it lies: what it says itself replaces, key by key at the top
    level, what is said there.
    """
    if isinstance(source, TrainConfig):
        mapping: Any = dataclasses.asdict(source)
    elif isinstance(source, Mapping):
        mapping = copy.deepcopy(dict(source))
    else:
        mapping = _read(Path(source))
    for change in changes:
        _set(mapping, change)
    return typing.cast(TrainConfig, build(TrainConfig, mapping, ""))


def build(kind: Any, value: Any, where: str) -> Any:
    """Make a value of a type from what JSON and YAML know; whatever does not fit is an :class:`InputError`."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else build(next(k for k in inner if k is not types.NoneType), value, where)
    if origin is tuple and isinstance(value, list | tuple):
        each = [inner[0]] * len(value) if len(inner) == 2 and inner[1] is ... else list(inner)
        if len(each) == len(value):
            return tuple(build(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(each, value, strict=True)))
    elif (origin is Literal and value in inner) or (origin is dict and isinstance(value, dict)):
        return value
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif kind is not float and isinstance(kind, type) and type(value) is kind:
        return value
    wanted = " or ".join(map(repr, inner)) if origin is Literal else str(kind if inner else kind.__name__)
    raise InputError(f"{where}: expected {wanted}, got {value!r}")


def _build_dataclass(kind: Any, value: Any, where: str) -> Any:
    if isinstance(value, kind):
        return value
    if not isinstance(value, dict):
        raise InputError(f"{where or 'configuration'}: expected keys and values, got {value!r}")
    hints = typing.get_type_hints(kind)
    known = [f.name for f in dataclasses.fields(kind)]
    prefix = f"{where}." if where else ""
    strange = sorted(set(map(str, value)) - set(known))
    if strange:
        raise InputError(f"{prefix}{strange[0]}: not known here; expected some of {', '.join(known)}")
    missing = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is f.default_factory is dataclasses.MISSING and f.name not in value
    ]
    if missing:
        raise InputError(f"{prefix}{missing[0]}: missing")
    items = {key: build(hints[key], item, f"{prefix}{key}") for key, item in value.items()}
    try:
        return kind(**items)
    except InputError as error:  # what it says of itself, with where it is
        raise InputError(f"{prefix}{str(error).removeprefix(prefix)}") from error


def _read(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """What a file says, over what the file says that it names as its ``base``."""
    try:
        mapping = _yaml(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not YAML: {error}") from error
    if not isinstance(mapping, dict):
        raise InputError(f"{path}: expected keys and values")
    base = mapping.pop("base", None)
    if base is None:
        return mapping
    if not isinstance(base, str):
        raise InputError(f"{path}: base: expected a file, got {base!r}")
    if path in above:
        raise InputError(f"{path}: base: is based on itself")
    return _read(path.parent / base, (*above, path)) | mapping


def _set(mapping: Any, change: str) -> None:
    key, sign, text = change.partition("=")
    if not sign:
        raise InputError(f"--set {change}: expected key=value")
    *path, last = key.strip().split(".")
    for part in path:
        mapping = mapping.setdefault(part, {})
        if not isinstance(mapping, dict):
            raise InputError(f"--set {change}: {part} has no keys of its own")
    try:
        mapping[last] = _yaml(text)
    except ValueError as error:
        raise InputError(f"--set {change}: not YAML: {error}") from error


def _yaml(text: str) -> Any:
    """What YAML says, plain values only: no tag makes an object. All that is wrong with it is a ValueError."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
    try:
        return Loader(text).get_single_data()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error
