"""UPMRI: a prior learnt from undersampled scans alone, and what it makes of a new one.

Not the published algorithm but its repair: see ``docs/upmri.md``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from upmri import weights
from upmri.core.errors import InputError
from upmri.flow.conditional import LAST, Mirrored, Predictor, read_out, sample
from upmri.flow.objective import Identity, Normal, no_filter, projected_loss
from upmri.flow.path import TimeLaw, interpolate
from upmri.learning.bootstrap import deviation, errors
from upmri.learning.held_out import HeldOut
from upmri.learning.lines import SplitLaw
from upmri.methods import at_hand
from upmri.methods.base import Estimate, Lesson, Method, Problem
from upmri.methods.learned import Learned
from upmri.methods.sense import default_damping
from upmri.networks.unrolled import Unrolled
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch

# Iterations of conjugate gradients that come near SENSE's error, to measure a loss by.
_ROUGH = 8
# Of the signal's energy: below this SENSE's error is rounding, as in a simulation without noise or gaps.
_LEAST = 1e-4
# Least and most of a ratio of energies that is believed, unknowns a sample where the factor's law is anchored, and the
# variance of their logarithm below which scans are much alike.
_RATIOS, _UNKNOWNS, _ALIKE = (0.04, 25.0), 2.0, 0.01
# In so many turns every line is put aside once, to see how weights fare. Fewer would leave a sparse scan too little.
_TURNS = 8
# Adam's rate and the splits a step, to adapt to one scan.
_ADAPT_RATE, _ADAPT_SPLITS = 1e-4, 2


@dataclass(frozen=True)
class UpmriLesson(Lesson):
    """Conditional flow matching, judged by lines that the network was not given.

    Of the lines Ω of a scan, redrawn every step, Θ is given, Ξ is told through the path alone, and Λ judges:

        x̂ = D(y_Θ∪Ξ, ·, 1), detached,    x_t = (1−t) x̂ + t x₁,    ‖A_Λ D(y_Θ, x_t, t) − y_Λ‖² → min,

    whose minimiser is the mean of x₀ given y_Θ and x_t, seen through A_Λ. The noise of Λ is in none of the inputs, so
    no divergence is due. The loss of a slice is what remains of SENSE's error on the same lines, times their share.

    Parameters
    ----------
    cascades, width, damping
        Of the network: how often its U-Net is used, channels of that one's first level, λ at the start.
    split
        How lines are divided.
    time, path_every
        One step in ``path_every`` is on the path, at times drawn from this law; the others are at t = 1, with Ξ = ∅.
    doubt
        Deviation of the logarithm of the σ₀ that the network is told: a scan's own is an estimate.
    supervised
        Be judged by the truth instead, given the same lines: the same loss with the identity for A_Λ, and x₀ for x̂.
    """

    cascades: int = 10
    width: int = 32
    damping: float = 0.02
    split: SplitLaw = field(default_factory=SplitLaw)
    time: TimeLaw = field(default_factory=lambda: TimeLaw(location=-3.0, scale=1.2))
    path_every: int = 4
    doubt: float = 0.4
    supervised: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.cascades <= 64:
            raise InputError(f"lesson.cascades: expected 1 to 64, got {self.cascades}")
        if not 1 <= self.width <= 256:
            raise InputError(f"lesson.width: expected 1 to 256, got {self.width}")

    def network(self) -> nn.Module:
        """The unrolled network."""
        return Unrolled(cascades=self.cascades, width=self.width, damping=self.damping)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """What remains of SENSE's error on Λ, (slice,)."""
        on_path = self.path_every > 0 and batch.step % self.path_every == 0
        given, told, judged = batch.divided(self.split)
        more = SenseOperator(batch.maps, given | told)
        theta = SenseOperator(batch.maps, given) if on_path else more
        adjoint = theta.adjoint(batch.kspace)
        judge, target, energy, share = self._judge(batch, judged)
        end = None
        if on_path:
            with torch.no_grad():
                end = self._end(network, more, batch)
        prediction = network(theta, adjoint, *self._point(batch, end), self._told(batch))
        error = projected_loss(prediction, judge, target, no_filter) + energy
        with torch.no_grad():
            # Roughly SENSE, by a few iterations: its factors would cost as much as the network's own.
            sense = theta.solve(adjoint, default_damping(batch.sigma), "cg", tolerance=0, iterations=_ROUGH)
            before = projected_loss(sense, judge, target, no_filter) + energy
        return share * error / torch.maximum(before, _LEAST * energy)

    def _end(self, network: nn.Module, more: SenseOperator, batch: Batch) -> Tensor:
        """Where the path begins: the truth, or what the network makes of more lines than it is given."""
        return batch.truth if self.supervised else read_out(network, more, more.adjoint(batch.kspace), batch.sigma)

    def _judge(self, batch: Batch, lines: Tensor) -> tuple[Normal, Tensor, Tensor, Tensor | float]:
        """Through what an image is seen, what should be seen there, the energy of that, and what it weighs."""
        if self.supervised:
            return Identity(), batch.truth, batch.truth.abs().square().sum((1, 2)), 1.0
        lam = SenseOperator(batch.maps, lines)
        energy = (batch.kspace * lines[:, None]).abs().square().sum((1, 2, 3))
        return lam, lam.adjoint(batch.kspace), energy, lines.sum((1, 2)) / batch.mask.sum((1, 2))

    def _point(self, batch: Batch, end: Tensor | None) -> tuple[Tensor, Tensor]:
        """x_t and t; 0 and 1 off the path."""
        if end is None:
            nothing = torch.zeros_like(batch.kspace[:, 0])
            return nothing, nothing.real.new_ones(len(batch))
        t = batch.times(self.time)
        return interpolate(end, batch.noise(), t), t

    def _told(self, batch: Batch) -> Tensor:
        """σ₀, more or less."""
        off = torch.cat([torch.randn(1, generator=generator) for generator in batch.generators])
        return batch.sigma * torch.exp(self.doubt * off).to(batch.sigma)

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:
        """The read-out."""
        return read_out(network, operator, operator.adjoint(kspace), sigma)

    def calibrate(self, network: nn.Module, batches: Iterable[Batch]) -> dict[str, Any]:
        """Fit the bootstrap's factor to true over foretold errors on held-out lines.

        It is c (u/2)^p, u the pixels of the support for each sampled position.
        """
        ratios, unknowns = [], []
        for batch in batches:
            true, foretold, given = torch.zeros_like(batch.sigma), torch.zeros_like(batch.sigma), []
            for test in HeldOut.in_turn(batch.maps, batch.mask, batch.kspace, batch.generators, _TURNS):
                image = read_out(network, test.operator, test.adjoint, batch.sigma)
                off = errors(partial(read_out, network), test.operator, image, batch.sigma, batch.generators[0], 1)
                foretold += test.judge.forward(off).abs().square().sum((0, 2, 3, 4))
                samples = batch.kspace.shape[1] * test.judge.mask.expand(-1, batch.kspace.shape[2], -1).sum((1, 2))
                true += test.error(image) - batch.sigma.square() * samples
                given.append(test.operator.unknowns)
            ratios.append((true / foretold).clamp(*_RATIOS).sqrt())
            unknowns.append(torch.stack(given).mean(0))
        y, x = torch.cat(ratios).log(), (torch.cat(unknowns) / _UNKNOWNS).log()
        exponent = (x - x.mean()) @ (y - y.mean()) / len(x) / (x.var(correction=0) + _ALIKE)
        factor = (y.mean() - exponent * x.mean()).exp()
        return {"spread": {"factor": round(factor.item(), 3), "exponent": round(exponent.item(), 3)}}


@dataclass(frozen=True)
class Upmri(Learned):
    """The mean of what the data allow under the prior, D(A*y, ·, 1), and on request how far it may be off.

    Parameters
    ----------
    model
        Name of weights at hand, or a file. When not given, those at hand that predict held-out lines of the scan's
        first slice best.
    samples
        More than one: also give so many images around it, and their deviation. By the bootstrap
        (:mod:`upmri.learning.bootstrap`), whose deviation is calibrated, unless ``steps`` is given.
    steps
        Draw the images along the flow instead, with so many evaluations each; their deviation is a spread and not
        calibrated, and much too small.
    start
        The time on the path from which they are drawn.
    adapt
        Steps of further training on the slice itself, on splits of its own lines, before it is reconstructed: for
        scans unlike those the prior was learnt from. Every slice begins with the weights as they are.

    mirrors
        Reconstruct the scan's three mirror images, too, and take the mean: four times the evaluations for some 0.2 dB.

    Attributes
    ----------
    held_out
        Found for each scan, not set: what the weights gain over SENSE on lines of its first slice that were held out,
        in dB. Below 0 the scan is unlike what they were learnt from.
    """

    name = "upmri"
    summary = "a prior learnt from undersampled scans by projected flow matching, repaired (see the docs)"
    needs = "undersampled scans"
    evaluations = 1
    lesson = UpmriLesson

    samples: int = 1
    steps: int | None = None
    start: float = 0.5
    adapt: int = 0
    mirrors: bool = False
    held_out: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.adapt < 0:
            raise InputError(f"adapt: expected 0 or more steps, got {self.adapt}")
        if self.samples < 1:
            raise InputError(f"samples: expected at least 1, got {self.samples}")
        if self.steps is not None and self.steps < 1:
            raise InputError(f"steps: expected at least 1, got {self.steps}")
        if self.steps is not None and self.samples == 1:
            raise InputError("steps: they are taken to draw images; ask for samples, too (the image needs none)")
        if not LAST < self.start <= 1:
            raise InputError(f"start: expected a time between {LAST} and 1, got {self.start}")

    def fit(self, problem: Problem) -> Method:
        """Settle which weights, and say how well they predict held-out lines of this scan."""
        candidates = [self.model] if self.model is not None else list(at_hand(self.name))
        if not candidates:
            raise InputError("model: no weights are at hand; give a file")
        gains = {name: held_out_gain(replace(self, model=name).load(problem), problem) for name in candidates}
        best = max(gains, key=gains.__getitem__)
        settled = replace(self, model=best)
        object.__setattr__(settled, "held_out", round(gains[best], 2))
        return settled

    def reconstruct(self, problem: Problem) -> Tensor:
        """The read-out."""
        return read_out(self._network(problem), problem.operator, problem.adjoint, problem.sigma)

    def estimate(self, problem: Problem) -> Estimate:
        """The read-out, and if wanted images around it with their deviation."""
        network, card = self._network(problem), self.load(problem).card
        mean = read_out(network, problem.operator, problem.adjoint, problem.sigma)
        if self.samples == 1:
            return Estimate(mean)
        if self.steps is not None:
            drawn = sample(
                network, problem.operator, mean, problem.adjoint, problem.sigma,
                count=self.samples, steps=self.steps, start=self.start, generator=problem.generator,
            )  # fmt: skip
            return Estimate(mean, drawn, drawn.abs().std(0))
        if "spread" not in card:
            raise InputError(
                f"samples: {self.model} was trained without validation scans, so its deviation was never calibrated; "
                "give steps for an uncalibrated spread"
            )
        again = partial(read_out, network)
        off = errors(again, problem.operator, mean, problem.sigma, problem.generator, self.samples)
        spread, unknowns = card["spread"], problem.operator.unknowns[:, None, None] / _UNKNOWNS
        drawn = mean - spread["factor"] * unknowns ** spread["exponent"] * off
        return Estimate(mean, drawn, deviation(drawn, mean))

    def _network(self, problem: Problem) -> Predictor:
        model = self.load(problem)
        network = adapted(model, problem, self.adapt) if self.adapt else model.network
        return Mirrored(network) if self.mirrors else network


def adapted(model: weights.Model, problem: Problem, steps: int) -> nn.Module:
    """Go on learning from one scan: a copy of the network after so many steps on splits of its lines."""
    assert isinstance(model.lesson, UpmriLesson)  # noqa: S101  `load` has seen to it
    lesson = replace(model.lesson, path_every=0, supervised=False)
    network = copy.deepcopy(model.network).requires_grad_(True)  # without dropout: there is one scan to be fitted
    optimiser = torch.optim.Adam(network.parameters(), lr=_ADAPT_RATE)
    count = _ADAPT_SPLITS * len(problem.sigma)
    with torch.enable_grad():
        for step in range(steps):
            batch = Batch(
                kspace=problem.kspace.repeat(_ADAPT_SPLITS, 1, 1, 1),
                maps=problem.operator.maps.repeat(_ADAPT_SPLITS, 1, 1, 1),
                mask=problem.operator.mask.repeat(_ADAPT_SPLITS, 1, 1),
                sigma=problem.sigma.repeat(_ADAPT_SPLITS),
                reference=None,
                seeds=tuple(range(count * step, count * (step + 1))),
            )
            optimiser.zero_grad()
            lesson.loss(network, batch).mean().backward()
            optimiser.step()
    return network.requires_grad_(False)


def held_out_gain(model: weights.Model, problem: Problem) -> float:
    """What the network gains over SENSE on lines that neither is given, in dB: an eighth of them at a time."""
    ours, sense = 0.0, 0.0
    generators = [torch.Generator().manual_seed(0) for _ in problem.scan.mask]
    operator = problem.operator
    for test in HeldOut.in_turn(operator.maps, operator.mask, problem.kspace, generators, _TURNS):
        image = read_out(model.network, test.operator, test.adjoint, problem.sigma)
        ours += test.error(image).sum().item()
        sense += test.error(test.operator.solve(test.adjoint, default_damping(problem.sigma))).sum().item()
    return 10 * math.log10(sense / ours)
