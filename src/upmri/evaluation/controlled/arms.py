"""Settings of a controlled experiment: its arms, its endpoints, and everything that all arms share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from upmri.core.checks import at_least, fraction
from upmri.core.errors import InputError
from upmri.core.settings import build, read_mapping
from upmri.evaluation.benchmark.plan import BenchmarkConfig, Entry, Group
from upmri.methods.base import Objective
from upmri.methods.registry import find_method
from upmri.training.config import DataConfig, TrainConfig
from upmri.training.passes import steps_within
from upmri.training.search import GrowingGrid

SENSE = "sense"


@dataclass(frozen=True)
class Arm:
    """A training loss with its network.

    Parameters
    ----------
    name
        Name in tables and folders.
    method, objective
        Name of the method, and the settings of its objective.
    settings
        Settings of its reconstruction other than the defaults.
    """

    name: str
    method: str
    objective: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def built(self) -> Objective:
        """Return the objective."""
        kind = find_method(self.method).objective
        if kind is None:
            raise InputError(f"{self.method!r} has nothing to train", field="method")
        return build(kind, self.objective, f"arms.{self.name}.objective")


@dataclass(frozen=True)
class Endpoint:
    """A difference that is named before anything is computed: PSNR of one arm less that of another.

    Parameters
    ----------
    name
        What the difference shows.
    arm, less
        Names of the two arms.
    primary
        Whether it is one of the questions that the experiment was made for.
    """

    name: str
    arm: str
    less: str
    primary: bool = True


@dataclass(frozen=True)
class ControlledConfig:
    """A controlled experiment.

    Parameters
    ----------
    output
        Folder of all parts; processes that have the same one share the work.
    train, validation
        Slices for training, and slices whose held-out lines choose rates and weights.
    groups, accelerations
        Test scans, as in a benchmark; maps are ESPIRiT's.
    arms, endpoints
        What is compared.
    passes, search_passes
        U-Net passes of a training, and of each training of the search for a rate: slices times uses of a U-Net, with
        or without gradient, validation apart.
    rates
        Grid of learning rates, the same for all arms.
    seeds
        Seeds of the trainings; that of the search is another one.
    batch, optimiser, warmup_share, weight_decay, ema, clip, precision
        Settings of the training that all arms share: see :class:`upmri.training.TrainConfig`; the warm-up is a share of
        the steps.
    validations
        Number of validations in a training; the weights with the largest gain on held-out lines are kept.
    cache, workers
        Folder of the prepared slices, in ``output`` if not given, and number of processes that prepare them.
    """

    output: str
    train: DataConfig
    validation: DataConfig
    groups: tuple[Group, ...]
    arms: tuple[Arm, ...]
    endpoints: tuple[Endpoint, ...]
    accelerations: tuple[float, ...] = (4.0, 8.0)
    passes: int = 100_000
    search_passes: int = 20_000
    rates: GrowingGrid = field(default_factory=GrowingGrid)
    seeds: tuple[int, ...] = (0, 1)
    batch: int = 16
    optimiser: Literal["adamw", "muon"] = "adamw"
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    ema: float = 0.999
    clip: float = 1.0
    precision: Literal["fp32", "bf16"] = "bf16"
    validations: int = 5
    cache: str | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "passes", "search_passes", "batch", "validations", "workers")
        fraction(self, "warmup_share")
        names = [arm.name for arm in self.arms]
        for key, given in (("arms", names), ("seeds", list(self.seeds))):
            if not given or len(set(given)) < len(given):
                raise InputError(f"expected at least one, all different, got {given}", field=key)
        for name in names:
            if not name or Path(name).name != name:
                raise InputError(f"expected a name of a folder, got {name!r}", field="arms")
        for endpoint in self.endpoints:
            for side in (endpoint.arm, endpoint.less):
                if side not in names:
                    raise InputError(f"expected one of {', '.join(names)}, got {side!r}", field="endpoints")

    @property
    def folder(self) -> Path:
        """Folder of all parts."""
        return Path(self.output)

    def arm(self, name: str) -> Arm:
        """Return an arm by its name."""
        return next(arm for arm in self.arms if arm.name == name)

    def training(self, arm: Arm, *, passes: int, seed: int, output: Path, rate: float, device: str) -> TrainConfig:
        """Return the training of an arm with a budget of passes, a seed and a rate."""
        steps = steps_within(passes, arm.built(), self.batch)
        every = max(1, steps // self.validations)
        return TrainConfig(
            output=str(output),
            name=arm.name,
            method=arm.method,
            objective=arm.objective,
            train=self.train,
            validation=self.validation,
            steps=steps,
            batch=self.batch,
            optimiser=self.optimiser,
            rate=rate,
            warmup=max(1, round(self.warmup_share * steps)),
            weight_decay=self.weight_decay,
            clip=self.clip,
            ema=self.ema,
            keep="best",
            calibrate=False,
            precision=self.precision,
            seed=seed,
            log_every=every,
            validate_every=every,
            save_every=max(1, min(every, 50)),
            resident=True,
            workers=self.workers,
            cache=str(self.cache_folder),
            device=device,
        )

    @property
    def cache_folder(self) -> Path:
        """Folder of the prepared slices."""
        return Path(self.cache) if self.cache else self.folder / "cache"

    def weights(self, arm: Arm, seed: int) -> Path:
        """Return the path of the weights of a training."""
        return self.folder / "train" / f"{arm.name}-{seed}" / f"{arm.name}.safetensors"

    def entry_name(self, arm: Arm, seed: int) -> str:
        """Return the name of a trained arm in the benchmark."""
        return f"{arm.name}, seed {seed}"

    def benchmark(self) -> BenchmarkConfig:
        """Return the benchmark of all trained arms, and of SENSE."""
        trained = tuple(
            Entry(arm.method, {"model": str(self.weights(arm, seed)), **arm.settings}, self.entry_name(arm, seed))
            for arm in self.arms
            for seed in self.seeds
        )
        return BenchmarkConfig(
            str(self.folder / "test"), self.groups, (Entry(SENSE), *trained), self.accelerations, against=SENSE
        )


def read_plan(path: Path, changes: tuple[str, ...] = ()) -> ControlledConfig:
    """Read a YAML file, or a JSON file, for machines without a reader of YAML, with changes such as ``passes=1000``."""
    source = json.loads(path.read_text()) if path.suffix == ".json" else path
    return build(ControlledConfig, read_mapping(source, changes))
