"""Adaptation: continue the training of a network on the lines of the scan that is reconstructed.

Some lines Η outside the calibration region are held out: they are neither input nor loss lines of any step. Every few
steps the network D, with averaged weights, predicts them from all other lines, Ω∖Η. Its gain over the network D₀ as it
was given is the :func:`~upmri.learning.preference.lead` in dB of the errors ‖A_Η D(y_Ω∖Η) − y_Η‖², which comes with a
standard error. The last weights are kept whose gain is above 0 and not below the largest gain by more than two standard
errors, and D₀ if there are none. So the result is never worse on lines that it did not learn from.

The largest gain alone would stop too early: it is that of few, noisy lines, and the PSNR of simulated scans of
validation people went on to rise where it had fallen a little (``benchmarks/results/adaptation.md``).
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from upmri.core.checks import at_least, one_of, positive
from upmri.learning.held_out import HeldOut
from upmri.learning.lines import spread_lines
from upmri.learning.low_rank_change import LowRankChange
from upmri.learning.preference import lead, unit_errors
from upmri.networks.precision import ShortPasses, for_inference, note_change, trains_in_16_bits
from upmri.physics.problem import Problem

Loss = Callable[[nn.Module, Problem], Tensor]
"""Training loss: a network and a problem ↦ loss of each slice, (slice,)."""
Predict = Callable[[nn.Module, Problem], Tensor]
"""Reconstruction by a network: images (slice, H, W) of a problem."""

# Fewest lines outside the calibration region of a slice that is adapted to: one of five is held out. With eleven, four
# simulated scans of validation people lost 0 to 0.3 dB.
_LINES = 12
# Largest norm of the gradient: a few splits have one that is many times as large as usual.
_CLIP = 1.0
# Standard errors by which a gain may be below the largest one.
_SURE = 2.0


@dataclass(frozen=True)
class AdaptationPlan:
    """How to adapt. ``benchmarks/adaptation.py`` compared these settings on simulated scans of validation people.

    Parameters
    ----------
    steps
        Most steps.
    rate, warmup
        Learning rate of Adam, and number of steps over which it rises to it: the first steps of Adam are noisy ones.
    batch
        Number of slices in a step: different ones, or splits of the same slice.
    weights, rank
        Weights that are trained: ``all``; the ``few`` that are no kernels of convolutions (norms, biases, λ); or
        ``low-rank``, these and changes of the kernels of this rank (:mod:`upmri.learning.low_rank_change`), or nearly:
        their moving average has a little more.
    average
        Decay of the moving average of the weights.
    every, patience
        Number of steps between two evaluations on held-out lines, and of evaluations in a row whose weights are not
        kept, after which adaptation stops.
    held_out
        One of how many lines outside the calibration region is held out.
    """

    steps: int = 90
    rate: float = 3e-3
    warmup: int = 10
    batch: int = 4
    weights: Literal["all", "few", "low-rank"] = "low-rank"
    rank: int = 4
    average: float = 0.9
    every: int = 5
    patience: int = 4
    held_out: int = 5

    @classmethod
    def for_device(cls, device: torch.device, steps: int) -> AdaptationPlan:
        """Return the usual settings: an accelerator takes four slices in hardly more time than one."""
        return cls(steps=steps, batch=1) if device.type == "cpu" else cls(steps=steps)

    def __post_init__(self) -> None:
        at_least(self, 1, "steps", "batch", "every", "patience", "warmup", "rank")
        one_of(self, weights=("all", "few", "low-rank"))
        at_least(self, 2, "held_out")
        positive(self, "rate")


@dataclass(frozen=True)
class Adapted:
    """Result of an adaptation.

    Attributes
    ----------
    network
        Network with the adapted weights, or the given one if there was no gain.
    steps
        Number of steps that led to its weights: 0 for the given one.
    taken
        Number of steps that were taken in all.
    gain
        Its gain on held-out lines over the given network in dB, 0 or more.
    slices
        Number of slices that it was adapted to.
    seconds
        Duration.
    gains, deviations
        Gain at every evaluation, and its standard error.
    """

    network: nn.Module
    steps: int
    taken: int
    gain: float
    slices: int
    seconds: float
    gains: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()

    @property
    def facts(self) -> dict[str, float | int]:
        """What it brought, for the settings of a result."""
        return {
            "steps": self.steps,
            "slices": self.slices,
            "seconds": round(self.seconds, 2),
            "gain": round(self.gain, 3),
        }


def adapt_to(
    problem: Problem,
    network: nn.Module,
    loss: Loss,
    predict: Predict,
    plan: AdaptationPlan,
    report: Callable[[float], None] = lambda _: None,
) -> Adapted:
    """Adapt a network to the slices of a problem, once for all of them.

    Parameters
    ----------
    problem
        Slices to adapt to, with a mask of lines or points.
    network
        Initial network, which is not changed. The copy is in the same mode, so that dropout is off in evaluation mode.
    loss
        Training loss.
    predict
        Reconstruction by the network.
    plan
        Settings.
    report
        Function that is called after every step, with the gain of the weights that are kept so far.
    """
    start = time.perf_counter()
    held_out, usable = spread_lines(problem, plan.held_out, _LINES)
    if not usable:
        warnings.warn(
            f"no slice has {_LINES} lines outside its calibration region, so that some could be held out; the weights "
            "are not adapted",
            stacklevel=2,
        )
        return Adapted(network, 0, 0, 0.0, 0, time.perf_counter() - start)
    problem, held_out = problem.take(usable, 0), held_out[usable]
    training = _Training(problem.restrict(problem.lines & ~held_out), network, loss, plan)
    test = _Test(problem, held_out, predict, plan.batch)
    before = test.errors(network)
    kept = _Kept(training.averaged)
    gains: list[float] = []
    deviations: list[float] = []
    step = 0
    while step < plan.steps:
        step += 1
        try:
            training.advance()
            if step % plan.every == 0 or step == plan.steps:
                gain, deviation = lead(test.errors(training.averaged), before)
                gains.append(gain if math.isfinite(gain) else -math.inf)
                deviations.append(deviation)
                kept.note(gains[-1], deviation, step)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # the weights are no numbers any more
            break
        report(kept.gain)
        if step - kept.step >= plan.patience * plan.every:
            break
    made = kept.network() if kept.step else network
    seconds = time.perf_counter() - start
    return Adapted(made, kept.step, step, kept.gain, len(usable), seconds, tuple(gains), tuple(deviations))


def is_kept(gain: float, deviation: float, largest: float) -> bool:
    """Whether weights with this gain are kept: it is above 0, and close to the largest one so far."""
    return gain > 0 and gain >= largest - _SURE * deviation


class _Training:
    """A copy of the network in training, and the moving average of its weights."""

    def __init__(self, problem: Problem, network: nn.Module, loss: Loss, plan: AdaptationPlan) -> None:
        self._problem, self._loss, self._plan = problem, loss, plan
        self._network = copy.deepcopy(network).requires_grad_(False)
        self.averaged = copy.deepcopy(self._network)
        self._weights: list[Tensor] = list(self._network.parameters())
        few = [weight for weight in self._weights if weight.ndim <= 1]
        kernels = [weight for weight in self._weights if weight.ndim > 1 and plan.weights != "few"]
        for weight in (*few, *kernels):
            weight.requires_grad_(True)
        self._change = LowRankChange(kernels, plan.rank) if plan.weights == "low-rank" else None
        self._trained = [*few, *(kernels if self._change is None else self._change.factors)]
        self._passes = ShortPasses(self._network) if trains_in_16_bits(problem.device) else None
        self._optimiser = torch.optim.Adam(self._trained, lr=plan.rate, foreach=True)
        self._step = 0

    @torch.enable_grad()
    def advance(self) -> None:
        """Take one step with the next slices, each with a new split of its lines."""
        first = self._step * self._plan.batch
        positions = range(first, first + self._plan.batch)
        batch = self._problem.take([self._slice(position) for position in positions], seeds=positions)
        self._optimiser.param_groups[0]["lr"] = self._plan.rate * min(1.0, (self._step + 1) / self._plan.warmup)
        if self._passes is not None:
            self._passes.refresh()
        self._loss(self._network if self._passes is None else self._passes.network, batch).mean().backward()
        if self._passes is not None:
            self._passes.hand_over()
        if self._change is not None:
            self._change.take_gradients()
        nn.utils.clip_grad_norm_(self._trained, _CLIP)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        if self._change is not None:
            self._change.write()
        self._step += 1
        with torch.no_grad():
            decay = min(self._plan.average, self._step / (self._step + 9))
            torch._foreach_lerp_(list(self.averaged.parameters()), self._weights, 1 - decay)
        note_change(self.averaged.parameters())

    def _slice(self, position: int) -> int:
        """Number of a slice: all in turn, every time in another order."""
        count = len(self._problem)
        turn, place = divmod(position, count)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(turn))
        return int(order[place])


class _Test:
    """The errors of a network on held-out lines, a few slices at a time: factors of all slices may not fit."""

    def __init__(self, problem: Problem, held_out: Tensor, predict: Predict, together: int) -> None:
        self._problem, self._held_out, self._predict = problem, held_out, predict
        self._groups = torch.arange(len(problem)).split(together)
        self._only = self._part(self._groups[0].tolist()) if len(self._groups) == 1 else None

    @torch.no_grad()
    def errors(self, network: nn.Module) -> Tensor:
        """‖A x − y‖² of each unit of the held-out lines, (unit,)."""
        found = []
        for group in self._groups:
            part = self._only or self._part(group.tolist())
            found.append(unit_errors(self._predict(for_inference(network), part.inputs), part.lines))
        return torch.cat(found)

    def _part(self, which: list[int]) -> HeldOut:
        return HeldOut.split(self._problem.take(which, 0), self._held_out[which])


class _Kept:
    """The last weights whose gain is above 0 and close to the largest one."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._weights = [weight.clone() for weight in network.parameters()]
        self._largest = self.gain = 0.0
        self.step = 0

    def note(self, gain: float, deviation: float, step: int) -> None:
        """Keep the weights as they are now, unless the gain is too small."""
        self._largest = max(self._largest, gain)
        if is_kept(gain, deviation, self._largest):
            torch._foreach_copy_(self._weights, list(self._network.parameters()))
            self.gain, self.step = gain, step

    def network(self) -> nn.Module:
        """Return the network with these weights."""
        with torch.no_grad():
            torch._foreach_copy_(list(self._network.parameters()), self._weights)
        note_change(self._network.parameters())
        return self._network
