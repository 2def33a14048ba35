"""The training loop: any lesson, one process or several, in single precision or with a U-Net in bfloat16."""

from __future__ import annotations

import copy
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from upmri import methods, weights
from upmri.errors import InputError
from upmri.methods.base import Lesson
from upmri.progress import bar
from upmri.training import checkpoint
from upmri.training.config import TrainConfig, build, read_config
from upmri.training.data import Slices, prepare
from upmri.training.log import Log
from upmri.training.validation import validate

# How long the others wait for what one process does alone, such as preparing the slices.
_PATIENCE = timedelta(days=7)


class DivergedError(RuntimeError):
    """Training went to NaN or infinity; the last good checkpoint was kept."""


@dataclass(frozen=True)
class Place:
    """One process among those that train together, as ``torchrun`` tells it."""

    rank: int
    world: int
    device: torch.device
    group: dist.ProcessGroup | None = None  # to wait in: any device, and longer than for a gradient

    @classmethod
    def find(cls, device: str) -> Self:
        """Join the others, where there are any."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        where = methods.pick_device(device)
        if where.type == "cuda":
            where = torch.device("cuda", (where.index or 0) if world == 1 else local)
            torch.cuda.set_device(where)
        if world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
        group = dist.new_group(backend="gloo", timeout=_PATIENCE) if world > 1 else None
        return cls(int(os.environ.get("RANK", "0")), world, where, group)

    @property
    def leads(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all have come so far."""
        if self.world > 1:
            dist.barrier(self.group)


class Worker:
    """The network that does the passes: the one whose weights are kept, or its copy with the U-Net in bfloat16."""

    def __init__(self, network: nn.Module, place: Place, *, half: bool) -> None:
        self._kept: list[Tensor] = list(network.parameters())
        working = network
        if half:
            working = copy.deepcopy(network)
            for name, child in working.named_children():
                setattr(working, name, child.to(torch.bfloat16))
        self._working: list[Tensor] = list(working.parameters())
        self.module: nn.Module = working
        if place.world > 1:
            self.module = nn.parallel.DistributedDataParallel(working)
        self._copied = half

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights that are kept."""
        if self._copied:
            torch._foreach_copy_(self._working, self._kept)

    @torch.no_grad()
    def hand_over(self) -> None:
        """Give the gradients to the weights that are kept."""
        if self._copied:
            for kept, working in zip(self._kept, self._working, strict=True):
                assert working.grad is not None  # noqa: S101
                kept.grad = torch.empty_like(kept).copy_(working.grad)
                working.grad = None


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
    kind = methods.find(config.method).lesson
    if kind is None:
        raise InputError(f"method: {config.method!r} has nothing to train")
    lesson: Lesson = build(kind, config.lesson, "lesson")
    place = Place.find(config.device)
    if config.batch % place.world:
        raise InputError(f"batch: {config.batch} slices cannot be shared by {place.world} processes")
    folder = Path(config.output)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "checkpoint.safetensors"
    if kept.exists() and not resume:
        raise InputError(f"{kept}: a run is there already; go on with --resume or choose another output folder")

    slices, held_out = _data(config, place, progress)
    torch.manual_seed(config.seed)
    network = lesson.network().to(place.device)
    if place.device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        if config.precision == "bf16":  # forward mode, which wants single precision, does not know this layout
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimiser = torch.optim.AdamW(network.parameters(), lr=config.rate, weight_decay=config.weight_decay)
    fingerprint = _fingerprint(config)
    facts: dict[str, Any] = {"step": 0, "seconds": 0.0}
    if kept.exists():
        facts = checkpoint.load(kept, network, average, optimiser)
        if facts["config"] != fingerprint:
            raise InputError(f"{kept}: the configuration has changed since; expected the one the run began with")
    worker = Worker(network, place, half=config.precision == "bf16")
    start, log = time.perf_counter() - facts["seconds"], Log(folder, facts["step"], config, active=place.leads)

    recent: list[Tensor] = []
    with bar("training", config.steps - facts["step"], shown=progress and place.leads) as advance:
        for step in range(facts["step"], config.steps):
            rate = config.rate * _schedule(step, config)
            optimiser.param_groups[0]["lr"] = rate
            torch.manual_seed(config.seed + step)  # of dropout
            batch = slices.batch(
                step, config.batch, config.seed, flips=config.flips, rank=place.rank, world=place.world
            )
            worker.refresh()
            worker.module.train()
            try:
                loss = lesson.loss(worker.module, batch).mean()
                loss.backward()
            except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]  # what NaN weights come to
                raise _diverged(step + 1, str(error), kept) from error
            worker.hand_over()
            norm = nn.utils.clip_grad_norm_(network.parameters(), config.clip)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            _follow(average, network, min(config.ema, (step + 1) / (step + 10)))
            recent.append(torch.stack([loss.detach(), norm.detach()]))
            done = step + 1
            advance()
            last = done == config.steps
            saves = last or done % config.save_every == 0
            validates = held_out is not None and (last or done % config.validate_every == 0)
            if done % config.log_every == 0 or saves or validates:
                values = torch.stack(recent).mean(0)
                recent = []
                if place.world > 1:
                    dist.all_reduce(values, dist.ReduceOp.AVG if place.device.type == "cuda" else dist.ReduceOp.SUM)
                    values = values if place.device.type == "cuda" else values / place.world
                loss_now, norm_now = values.tolist()
                if not (math.isfinite(loss_now) and math.isfinite(norm_now)):
                    raise _diverged(done, f"the loss is {loss_now}, its gradient {norm_now}", kept)
                seconds = time.perf_counter() - start
                log.write(done, loss=loss_now, gradient=norm_now, rate=rate, seconds=round(seconds, 2))
            if validates and held_out is not None and place.leads:
                log.write(done, **validate(lesson, network, average, held_out, config.batch))
            if saves and place.leads:
                facts = {"step": done, "seconds": time.perf_counter() - start, "config": fingerprint}
                checkpoint.save(kept, network, average, optimiser, facts)
            if saves or validates:
                place.wait()
    target = folder / f"{config.name}.safetensors"
    if place.leads:
        card = _card(config, slices, facts, log)
        if held_out is not None:
            network.load_state_dict(average)
            with torch.no_grad():
                card |= lesson.calibrate(network.eval(), held_out.all(config.batch))
        weights.save(target, average, config.method, lesson, card)
    place.wait()
    return target


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


def _diverged(step: int, why: str, kept: Path) -> DivergedError:
    state = f"the last good state is in {kept}" if kept.exists() else "there is no earlier state"
    return DivergedError(f"step {step}: {why}; {state}")


def _schedule(step: int, config: TrainConfig) -> float:
    rise = min(1.0, (step + 1) / max(1, config.warmup))
    if config.schedule == "constant":
        return rise
    return rise * 0.5 * (1 + math.cos(math.pi * step / config.steps))


@torch.no_grad()
def _follow(average: dict[str, Tensor], network: nn.Module, decay: float) -> None:
    torch._foreach_lerp_(list(average.values()), list(network.parameters()), 1 - decay)


def _fingerprint(config: TrainConfig) -> str:
    """What must not change between the parts of a run."""
    free = {
        "output",
        "cache",
        "workers",
        "resident",
        "device",
        "tensorboard",
        "log_every",
        "validate_every",
        "save_every",
    }
    return json.dumps({key: value for key, value in asdict(config).items() if key not in free}, sort_keys=True)


def _card(config: TrainConfig, slices: Slices, facts: dict[str, Any], log: Log) -> dict[str, Any]:
    settings = asdict(config)
    told = ("steps", "batch", "rate", "schedule", "warmup", "weight_decay", "clip", "ema", "precision", "flips", "seed")
    data = {key: settings["train"][key] for key in ("accelerations", "coils", "noise", "anatomy", "part")}
    return {
        "name": config.name,
        "about": config.about,
        "licence": config.licence,
        "data": data | {"slices": len(slices), "simulated": bool(config.train.images)},
        "training": {key: settings[key] for key in told}
        | {"seconds": round(facts["seconds"]), "validation": log.last_validation},
    }
