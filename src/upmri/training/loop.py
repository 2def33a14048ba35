"""The training loop: any objective, one process or several, in single precision or with a U-Net in bfloat16."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.core.progress import bar
from upmri.formats import atomic
from upmri.methods.base import Objective
from upmri.methods.learned import Learned
from upmri.physics.problem import Problem
from upmri.training import checkpoint
from upmri.training.begin import first_network, trained_method, training_data
from upmri.training.config import TrainConfig, read_config
from upmri.training.data import AllSlices, Batches, ValidationData, seed_of
from upmri.training.description import training_card
from upmri.training.distributed import PassNetwork, Process
from upmri.training.interrupt import SignalWatch, TrainingInterrupted
from upmri.training.log import TrainingLog
from upmri.training.muon import Muon
from upmri.training.passes import PassCounter
from upmri.training.validation import validate
from upmri.weights.catalogue import find_weights
from upmri.weights.files import save_weights


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
        Whether to continue from the checkpoint in the output folder. On a CPU the result is that of an uninterrupted
        run, bit for bit; on a GPU it may differ by rounding. Without it a folder that has a checkpoint is refused, and
        with it one in which no training was begun. One that was interrupted before its first checkpoint begins again.
    progress
        Whether to show a bar with the remaining time.

    Raises
    ------
    TrainingInterrupted
        After Ctrl-C or SIGTERM: the step in progress was finished and the state saved, or there was nothing to save.
        Several processes that train together end at once; their last checkpoint is kept.

    Examples
    --------
    Two steps with eight small slices; a real run has thousands of both.

    >>> import torch, upmri
    >>> scan = upmri.simulate(torch.ones(8, 32, 32), coils=4, acceleration=1.5)
    >>> path = scan.save("scan.h5")
    >>> config = {
    ...     "output": "run", "steps": 2, "batch": 1, "device": "cpu",
    ...     "train": {"scans": ["scan.h5"]}, "objective": {"cascades": 1, "width": 4},
    ... }
    >>> weights = upmri.train(config)
    >>> upmri.reconstruct(scan[0], model=weights, device="cpu").image.shape
    torch.Size([1, 32, 32])
    """
    config = read_config(config)
    method, objective = trained_method(config)
    process = Process.find(config.device)
    if config.batch % process.world:
        raise InputError(f"{config.batch} slices cannot be shared by {process.world} processes", field="batch")
    folder = Path(config.output)
    checkpoint.check(folder, resume)
    if config.begin is not None:
        atomic.check_not_input(folder / f"{config.name}.safetensors", [find_weights(config.begin)])
    with (
        process.in_use(),
        checkpoint.run_lock(folder) if process.leads else nullcontext(),
        SignalWatch(folder=folder, active=process.world == 1, saved=checkpoint.saved_step(folder)) as watch,
    ):
        checkpoint.check(folder, resume)  # once more, now that no other training can change it
        network = first_network(config, objective, process)  # before the data, which may take long
        slices, validation = training_data(config, method, process, watch, progress)
        with closing(slices):
            run = _Run(config, method, objective, network, process, slices, validation)
            with bar("training", config.steps - run.step, shown=progress and process.leads) as advance:
                watch.saved = None
                while run.step < config.steps:
                    run.advance()
                    advance()
                    if watch.number is not None and run.step < config.steps:
                        run.save()
                        raise TrainingInterrupted(folder, run.step, watch.number)
                watch.saved = run.step
            return run.finish()


class _Run:
    """A network in training, with everything that a checkpoint must have."""

    def __init__(
        self,
        config: TrainConfig,
        method: type[Learned],
        objective: Objective,
        network: nn.Module,
        process: Process,
        slices: Batches,
        validation: ValidationData | None,
    ) -> None:
        if objective.supervised:
            slices.need_references()
        self.config, self.method, self.objective, self.network = config, method, objective, network
        self.process, self.slices, self.validation = process, slices, validation
        self.folder = Path(config.output)
        self.state_file = self.folder / checkpoint.STATE
        kinds = ("average", "best") if config.keep == "best" else ("average",)
        tensors = checkpoint.tensors_of(self.network)
        self.copies = {kind: {name: tensor.detach().clone() for name, tensor in tensors.items()} for kind in kinds}
        self.average = self.copies["average"]
        self.kept: dict[str, float] | None = None  # step and gain of the best weights, and the gain before training
        optimiser = Muon if config.optimiser == "muon" else torch.optim.AdamW
        self.optimiser = optimiser(self.network.parameters(), lr=config.rate, weight_decay=config.weight_decay)
        self.fingerprint = checkpoint.fingerprint(config, slices.names, objective)
        self.step, seconds, passes = 0, 0.0, 0
        self.recent: list[Tensor] = []  # loss and norm of the gradient in the steps since the last line of the log
        if self.state_file.exists():
            checkpoint.refuse_changes(
                self.state_file, checkpoint.read_facts(self.state_file)["config"], self.fingerprint
            )
            facts = checkpoint.load_state(self.state_file, self.network, self.copies, self.optimiser)
            self.step, seconds, passes = facts["step"], facts["seconds"], facts.get("passes", 0)
            self.recent = [torch.tensor(pair, device=process.device) for pair in facts.get("recent", ())]
            self.kept = facts.get("kept")
        self.passes = PassNetwork(self.network, process, half=config.precision == "bf16", compiled=config.compile)
        self.counter = PassCounter(self.passes.module, process.world)
        self.counter.total = passes
        self.start = time.perf_counter() - seconds
        self.log = TrainingLog(self.folder, self.step, config, active=process.leads)
        if config.keep == "best" and self.kept is None:
            self._validate()
            self.process.wait()  # not within a step, where waiting has a limit

    @property
    def seconds(self) -> float:
        """Duration so far, over all parts of the run."""
        return time.perf_counter() - self.start

    def advance(self) -> None:
        """Take one step, then log, validate and save if they are due."""
        config, done = self.config, self.step + 1
        rate = config.rate * _schedule(self.step, config)
        self.recent.append(self._update(rate))
        self.step = done
        last = done == config.steps
        saves = last or done % config.save_every == 0
        validates = self.validation is not None and (last or done % config.validate_every == 0)
        if done % config.log_every == 0 or saves or validates:
            self._report(rate)
        if validates:
            self._validate()
        if saves and self.process.leads:
            self.save()
        if saves or validates:
            self.process.wait()

    def _validate(self) -> None:
        """Measure the averaged weights, and keep them if they are the best."""
        if self.validation is None or not self.process.leads:
            return
        parts = (self.method, self.objective, self.network, self.average, self.validation)
        found = validate(*parts, self.config.batch)
        self.log.write(self.step, **found)
        if self.config.keep_each and self.step:
            self._write(f"{self.config.name}-{self.step}", self.average, self._card(None))
        if self.config.keep == "last":
            return
        gain = found["held_out_gain"]
        if self.kept is None or gain > self.kept["gain"]:
            self.kept = {"step": self.step, "gain": gain, "before": (self.kept or {"before": gain})["before"]}
            torch._foreach_copy_(list(self.copies["best"].values()), list(self.average.values()))

    def save(self) -> None:
        """Write a checkpoint, unless the run has diverged."""
        recent = torch.stack(self.recent).tolist() if self.recent else []
        for loss, norm in recent:
            self._check_finite(loss, norm)
        facts = {"step": self.step, "seconds": self.seconds, "config": self.fingerprint, "recent": recent}
        facts["passes"] = self.counter.total
        facts |= {} if self.kept is None else {"kept": self.kept}
        checkpoint.save_state(self.state_file, self.network, self.copies, self.optimiser, facts)

    def _update(self, rate: float) -> Tensor:
        """Update the weights by one step; return the loss and the norm of the gradient, still on the device."""
        config = self.config
        self.optimiser.param_groups[0]["lr"] = rate
        torch.manual_seed(seed_of(config.seed, "dropout", self.step, self.process.rank))
        problem = self._batch()
        self.passes.refresh()
        self.passes.module.train()
        try:
            loss = self.objective.loss(self.passes.module, problem).mean()
            loss.backward()
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]  # NaN in the weights
            raise self._diverged(self.step + 1, str(error)) from error
        self.passes.hand_over()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), config.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        _update_average(self.average, self.network, min(config.ema, (self.step + 1) / (self.step + 10)))
        return torch.stack([loss.detach(), norm.detach()])

    def _batch(self) -> Problem:
        """Return the batch of the next step. Where there is none, whatever the reason, no earlier step is lost."""
        config, process = self.config, self.process
        try:
            return self.slices.batch(
                self.step, config.batch, config.seed, flips=config.flips, rank=process.rank, world=process.world
            )
        except BaseException as error:
            if self.step and process.leads:
                self.save()
                if isinstance(error, Exception):
                    error.add_note(f"saved at step {self.step}; continue with --resume (resume=True)")
            raise

    def _report(self, rate: float) -> None:
        loss, norm = self.process.mean(torch.stack(self.recent).mean(0)).tolist()
        self.recent = []
        self._check_finite(loss, norm)
        seconds, passes = round(self.seconds, 2), self.counter.total
        self.log.write(self.step, loss=loss, gradient=norm, rate=rate, seconds=seconds, passes=passes)

    def _check_finite(self, loss: float, norm: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._diverged(self.step, f"the loss is {loss}, its gradient {norm}")

    def _diverged(self, step: int, why: str) -> DivergedError:
        saved = self.state_file.exists()
        state = f"the last good state is in {self.state_file}" if saved else "no earlier state was saved"
        return DivergedError(f"step {step}: {why}; {state}")

    def finish(self) -> Path:
        """Write the averaged weights with their card."""
        target = self._file(self.config.name)
        if self.process.leads:
            weights = self.copies[list(self.copies)[-1]]
            card = self._card(self.kept)
            if self.validation is not None and self.config.calibrate:
                self.network.load_state_dict(weights)
                with torch.no_grad():
                    card |= self.objective.calibrate(self.network.eval(), AllSlices(self.validation, self.config.batch))
            self._write(self.config.name, weights, card)
        self.process.wait()
        return target

    def _card(self, kept: dict[str, float] | None) -> dict[str, Any]:
        card = training_card(self.config, self.slices, self.seconds, self.log.last_validation, kept)
        card["training"]["passes"] = self.counter.total
        return card

    def _write(self, name: str, weights: dict[str, Tensor], card: dict[str, Any]) -> None:
        save_weights(self._file(name), weights, self.config.method, self.objective, card)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"


def _schedule(step: int, config: TrainConfig) -> float:
    rise = min(1.0, (step + 1) / max(1, config.warmup))
    if config.schedule == "constant":
        return rise
    return rise * 0.5 * (1 + math.cos(math.pi * step / config.steps))


@torch.no_grad()
def _update_average(average: dict[str, Tensor], network: nn.Module, decay: float) -> None:
    """Move the average towards the weights; buffers, which may be means themselves or numbers, are copied."""
    weights = dict(network.named_parameters())
    torch._foreach_lerp_([average[name] for name in weights], list(weights.values()), 1 - decay)
    for name, buffer in network.named_buffers():
        if name in average:
            average[name].copy_(buffer)
