"""The training loop: any lesson, one process or several, in single precision or with a U-Net in bfloat16."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from upmri import methods, weights
from upmri.core.errors import InputError
from upmri.core.progress import bar
from upmri.core.settings import build
from upmri.methods.base import Lesson
from upmri.training import checkpoint
from upmri.training.config import TrainConfig, read_config
from upmri.training.data import Slices
from upmri.training.distributed import Place, Worker
from upmri.training.log import Log
from upmri.training.prepare import prepare
from upmri.training.validation import validate

# What may differ between the parts of a run.
_FREE = {"output", "cache", "workers", "resident", "device", "tensorboard", "log_every", "validate_every", "save_every"}


class DivergedError(RuntimeError):
    """Training went to NaN or infinity; the last good checkpoint was kept."""


def train(
    config: TrainConfig | Mapping[str, Any] | str | Path, *, resume: bool = False, progress: bool = False
) -> Path:
    """Train a method on undersampled scans; return the path of the weights.

    Parameters
    ----------
    config
        A YAML file, its content, or a :class:`TrainConfig`.
    resume
        Go on from the checkpoint in the output folder, to the same end as if nothing had happened. Without it a
        folder that holds a checkpoint is refused.
    progress
        Show a bar with the time left.
    """
    config = read_config(config)
    lesson = _lesson(config)
    place = Place.find(config.device)
    if config.batch % place.world:
        raise InputError(f"batch: {config.batch} slices cannot be shared by {place.world} processes")
    folder = Path(config.output)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "checkpoint.safetensors").exists() and not resume:
        raise InputError(f"{folder}: a run is there already; go on with --resume or choose another output folder")
    run = _Run(config, lesson, place, *_data(config, place, progress))
    with bar("training", config.steps - run.step, shown=progress and place.leads) as advance:
        while run.step < config.steps:
            run.advance()
            advance()
    return run.finish()


class _Run:
    """A network on its way, with everything that a checkpoint must hold."""

    def __init__(
        self, config: TrainConfig, lesson: Lesson, place: Place, slices: Slices, held_out: Slices | None
    ) -> None:
        if lesson.supervised:
            slices.need_truth()
        self.config, self.lesson, self.place, self.slices, self.held_out = config, lesson, place, slices, held_out
        self.folder = Path(config.output)
        self.kept = self.folder / "checkpoint.safetensors"
        self.network = _network(config, lesson, place)
        self.average = {name: p.detach().clone() for name, p in self.network.named_parameters()}
        self.optimiser = torch.optim.AdamW(self.network.parameters(), lr=config.rate, weight_decay=config.weight_decay)
        self.fingerprint = _fingerprint(config, slices)
        self.step, seconds = 0, 0.0
        if self.kept.exists():
            facts = checkpoint.load(self.kept, self.network, self.average, self.optimiser)
            if facts["config"] != self.fingerprint:
                raise InputError(
                    f"{self.kept}: the configuration or the data changed since; expected those the run began with"
                )
            self.step, seconds = facts["step"], facts["seconds"]
        self.worker = Worker(self.network, place, half=config.precision == "bf16", compiled=config.compile)
        self.start = time.perf_counter() - seconds
        self.log = Log(self.folder, self.step, config, active=place.leads)
        self.recent: list[Tensor] = []

    @property
    def seconds(self) -> float:
        """How long it took so far, all parts of the run together."""
        return time.perf_counter() - self.start

    def advance(self) -> None:
        """Take one step, and whatever is due after it."""
        config, done = self.config, self.step + 1
        rate = config.rate * _schedule(self.step, config)
        self.recent.append(self._learn(rate))
        self.step = done
        last = done == config.steps
        saves = last or done % config.save_every == 0
        validates = self.held_out is not None and (last or done % config.validate_every == 0)
        if done % config.log_every == 0 or saves or validates:
            self._report(rate)
        if validates and self.held_out is not None and self.place.leads:
            self.log.write(done, **validate(self.lesson, self.network, self.average, self.held_out, config.batch))
        if saves and self.place.leads:
            facts = {"step": done, "seconds": self.seconds, "config": self.fingerprint}
            checkpoint.save(self.kept, self.network, self.average, self.optimiser, facts)
        if saves or validates:
            self.place.wait()

    def _learn(self, rate: float) -> Tensor:
        """Move the weights; return the loss and the gradient's norm, still on the device."""
        config = self.config
        self.optimiser.param_groups[0]["lr"] = rate
        torch.manual_seed(config.seed + self.step)  # of dropout
        batch = self.slices.batch(
            self.step, config.batch, config.seed, flips=config.flips, rank=self.place.rank, world=self.place.world
        )
        self.worker.refresh()
        self.worker.module.train()
        try:
            loss = self.lesson.loss(self.worker.module, batch).mean()
            loss.backward()
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]  # what NaN weights come to
            raise self._diverged(self.step + 1, str(error)) from error
        self.worker.hand_over()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), config.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        _follow(self.average, self.network, min(config.ema, (self.step + 1) / (self.step + 10)))
        return torch.stack([loss.detach(), norm.detach()])

    def _report(self, rate: float) -> None:
        loss, norm = self.place.mean(torch.stack(self.recent).mean(0)).tolist()
        self.recent = []
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._diverged(self.step, f"the loss is {loss}, its gradient {norm}")
        self.log.write(self.step, loss=loss, gradient=norm, rate=rate, seconds=round(self.seconds, 2))

    def _diverged(self, step: int, why: str) -> DivergedError:
        state = f"the last good state is in {self.kept}" if self.kept.exists() else "there is no earlier state"
        return DivergedError(f"step {step}: {why}; {state}")

    def finish(self) -> Path:
        """Write the average's weights with their card."""
        target = self.folder / f"{self.config.name}.safetensors"
        if self.place.leads:
            card = self._card()
            if self.held_out is not None:
                self.network.load_state_dict(self.average)
                with torch.no_grad():
                    card |= self.lesson.calibrate(self.network.eval(), self.held_out.all(self.config.batch))
            weights.save(target, self.average, self.config.method, self.lesson, card)
        self.place.wait()
        return target

    def _card(self) -> dict[str, Any]:
        settings = asdict(self.config)
        told = ("steps", "batch", "rate", "schedule", "warmup", "weight_decay", "clip", "ema", "precision")
        data = {key: settings["train"][key] for key in ("accelerations", "noise", "anatomy", "varied", "part")}
        training = {key: settings[key] for key in (*told, "flips", "seed")}
        if self.config.begin is not None:
            earlier = weights.card(self.config.begin)
            training["begun with"] = {key: earlier.get(key) for key in ("name", "data", "training")}
        return {
            "name": self.config.name,
            "about": self.config.about,
            "licence": self.config.licence,
            "data": data
            | {
                "slices": len(self.slices),
                "coils": self.slices.coils,
                "simulated": bool(self.config.train.images),
            },
            "training": training | {"seconds": round(self.seconds), "validation": self.log.last_validation},
        }


def _lesson(config: TrainConfig) -> Lesson:
    method = methods.find(config.method)
    if method.weights_of is not None:
        raise InputError(f"method: {config.method!r} takes the weights of {method.weights_of!r}; train that")
    kind = method.lesson
    if kind is None:
        raise InputError(f"method: {config.method!r} has nothing to train")
    lesson: Lesson = build(kind, config.lesson, "lesson")
    return lesson


def _network(config: TrainConfig, lesson: Lesson, place: Place) -> nn.Module:
    torch.manual_seed(config.seed)
    network = lesson.network()
    if config.begin is not None:
        known = weights.load(config.begin)
        if known.method != config.method:  # whose network may have the same shape
            raise InputError(f"begin: {config.begin} holds weights of {known.method}, expected some of {config.method}")
        try:
            network.load_state_dict(known.network.state_dict())
        except RuntimeError as error:
            raise InputError(f"begin: {config.begin} holds another network than the lesson describes") from error
    network = network.to(place.device)
    torch.backends.cudnn.benchmark = place.device.type == "cuda"
    return network


def _data(config: TrainConfig, place: Place, progress: bool) -> tuple[Slices, Slices | None]:
    """Prepare slices: the process that leads does it, the others wait and find them done."""
    cache = Path(config.cache or Path(config.output) / "cache")
    found: list[Slices | None] = []
    for turn in (True, False):
        if place.leads == turn:
            for data in (config.train, config.validation):
                files = [] if data is None else prepare(data, cache, workers=config.workers, progress=progress)
                found.append(Slices(files, place.device, resident=config.resident) if files else None)
        place.wait()
    train_, validation = found
    assert train_ is not None  # noqa: S101  `prepare` refuses to find nothing
    if place.leads:
        train_.warn()
    return train_, validation


def _schedule(step: int, config: TrainConfig) -> float:
    rise = min(1.0, (step + 1) / max(1, config.warmup))
    if config.schedule == "constant":
        return rise
    return rise * 0.5 * (1 + math.cos(math.pi * step / config.steps))


@torch.no_grad()
def _follow(average: dict[str, Tensor], network: nn.Module, decay: float) -> None:
    torch._foreach_lerp_(list(average.values()), list(network.parameters()), 1 - decay)


def _fingerprint(config: TrainConfig, slices: Slices) -> str:
    """What must not change between the parts of a run."""
    facts = {key: value for key, value in asdict(config).items() if key not in _FREE}
    return json.dumps(facts | {"slices": hashlib.sha256(slices.names.encode()).hexdigest()}, sort_keys=True)
