"""The training steps of an adaptation: its settings, the weights that are trained, and their moving average."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from upmri.core.checks import at_least, one_of, positive
from upmri.learning.low_rank_change import LowRankChange
from upmri.networks.precision import ShortPasses, note_change, trains_in_16_bits
from upmri.physics.fourier import MIRRORS
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

Loss = Callable[[nn.Module, Problem], Tensor]
"""Training loss: a network and a problem ↦ loss of each slice, (slice,)."""

# Largest norm of the gradient: a few splits have one that is many times as large as usual.
_CLIP = 1.0


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
    mirrored
        Whether the slices of a step are mirrored at random, together with their maps and lines.
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
    held_out: int = 8
    mirrored: bool = True

    @classmethod
    def for_device(cls, device: torch.device, steps: int) -> AdaptationPlan:
        """Return the usual settings: an accelerator takes four slices in hardly more time than one.

        On a CPU an evaluation takes almost as long as a step, so there are a third as many.
        """
        return cls(steps=steps, batch=1, every=15, patience=2) if device.type == "cpu" else cls(steps=steps)

    def __post_init__(self) -> None:
        at_least(self, 1, "steps", "batch", "every", "patience", "warmup", "rank")
        one_of(self, weights=("all", "few", "low-rank"))
        at_least(self, 2, "held_out")
        positive(self, "rate")


class AdaptationTraining:
    """A copy of the network in training, and the moving average of its weights.

    Parameters
    ----------
    problem
        Slices with the lines to train on.
    network
        Initial network, which is not changed.
    loss
        Training loss.
    plan
        Settings.

    Attributes
    ----------
    averaged
        Network with the moving average of the weights.
    """

    def __init__(self, problem: Problem, network: nn.Module, loss: Loss, plan: AdaptationPlan) -> None:
        self._views, self._loss, self._plan = _views(problem, plan), loss, plan
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
        view = torch.randint(len(self._views), (), generator=torch.Generator().manual_seed(self._step))
        batch = self._views[view].take([self._slice(position) for position in positions], seeds=positions)
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
        count = len(self._views[0])
        turn, place = divmod(position, count)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(turn))
        return int(order[place])


def _views(problem: Problem, plan: AdaptationPlan) -> list[Problem]:
    """The problem and its mirror images; operators other than SENSE cannot be mirrored."""
    if not (plan.mirrored and isinstance(problem.operator, SenseOperator)):
        return [problem]
    return [problem.mirror(axes) for axes in MIRRORS]
