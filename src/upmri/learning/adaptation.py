"""Adaptation: continue the training of a network on the lines of the scan that is reconstructed.

Some lines Η outside the calibration region are held out: they are neither input nor loss lines of any step. Every few
steps the network D, with averaged weights, predicts them from all other lines, Ω∖Η. Its gain over the network D₀ as it
was given is the :func:`~upmri.learning.preference.lead` in dB of the errors ‖A_Η D(y_Ω∖Η) − y_Η‖², which comes with a
standard error. The last weights are kept whose gain is above 0 and not below the largest gain by more than two standard
errors, and D₀ if there are none.

These weights w may have gone too far. With x and x₀ the images of D and D₀ from Ω∖Η,

    α = Re⟨A_Η (x − x₀), y_Η − A_Η x₀⟩ / ‖A_Η (x − x₀)‖², within [0, 1],

is the share of the change that suits the held-out lines best, and the result has the weights w₀ + α (w − w₀), or w₀ if
they gain nothing. So the result is never worse on lines that it did not learn from.

The largest gain alone would stop too early: it is that of few, noisy lines, and the PSNR of simulated scans of
validation people went on to rise where it had fallen a little (``benchmarks/results/adaptation.md``).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from upmri.learning.adaptation_training import AdaptationPlan, AdaptationTraining, Loss
from upmri.learning.held_out import HeldOut
from upmri.learning.lines import spread_lines
from upmri.learning.preference import lead, unit_errors
from upmri.networks.precision import for_inference, note_change
from upmri.physics.problem import Problem

Predict = Callable[[nn.Module, Problem], Tensor]
"""Reconstruction by a network: images (slice, H, W) of a problem."""

# Fewest lines outside the calibration region of a slice that is adapted to: two of them are held out. With eleven, four
# simulated scans of validation people lost 0 to 0.3 dB.
_LINES = 12
# Standard errors by which a gain may be below the largest one.
_SURE = 2.0


@dataclass(frozen=True)
class Adapted:
    """Result of an adaptation.

    Attributes
    ----------
    network
        Network with the adapted weights, or the given one if there was no gain.
    steps
        Number of steps that led to its weights: 0 for the given one.
    gain
        Its gain on held-out lines over the given network in dB, 0 or more.
    share
        Share α of the change of the weights that it has.
    taken
        Number of steps that were taken in all.
    slices
        Number of slices that it was adapted to.
    seconds
        Duration.
    gains, deviations
        Gain at every evaluation, and its standard error.
    """

    network: nn.Module
    steps: int
    gain: float
    share: float
    taken: int
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
            "share": round(self.share, 3),
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
        return Adapted(network, 0, 0.0, 0.0, 0, 0, time.perf_counter() - start)
    problem, held_out = problem.take(usable, 0), held_out[usable]
    training = AdaptationTraining(problem.restrict(problem.lines & ~held_out), network, loss, plan)
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
    facts = (step, len(usable), time.perf_counter() - start, tuple(gains), tuple(deviations))
    if kept.step:
        made = kept.network()
        share = test.share(network, made)
        _interpolate(made, network, share)
        gain = lead(test.errors(made), before)[0]
        if gain > 0:
            return Adapted(made, kept.step, gain, share, *facts)
    return Adapted(network, 0, 0.0, 0.0, *facts)


def is_kept(gain: float, deviation: float, largest: float) -> bool:
    """Whether weights with this gain are kept: it is above 0, and close to the largest one so far."""
    return gain > 0 and gain >= largest - _SURE * deviation


def _interpolate(network: nn.Module, other: nn.Module, share: float) -> None:
    """Replace the weights w of a network by w₀ + α (w − w₀), with those of another one, w₀."""
    with torch.no_grad():
        torch._foreach_lerp_(list(network.parameters()), list(other.parameters()), 1 - share)
    note_change(network.parameters())


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

    @torch.no_grad()
    def share(self, before: nn.Module, after: nn.Module) -> float:
        """Share α of the change from one network's image to the other's that suits the held-out lines best."""
        above = below = 0.0
        for group in self._groups:
            part = self._only or self._part(group.tolist())
            first, last = (self._predict(for_inference(network), part.inputs) for network in (before, after))
            change, operator = last - first, part.lines.operator
            # ⟨A d, y − A x₀⟩ = ⟨d, A*y − N x₀⟩ and ‖A d‖² = ⟨d, N d⟩
            rest = part.lines.adjoint - operator.normal(first)
            above += (change.conj() * rest).real.sum().item()
            below += (change.conj() * operator.normal(change)).real.sum().item()
        return min(max(above / below, 0.0), 1.0) if below > 0 else 0.0

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
