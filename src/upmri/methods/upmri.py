"""UPMRI: an image prior learned from undersampled scans alone.

It is a repair of the published algorithm: see ``docs/upmri.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from upmri.core.checks import at_least, in_range, one_of
from upmri.core.errors import InputError
from upmri.flow.conditional import LAST, Mirrored, Predictor, posterior_mean, sample
from upmri.flow.objective import no_filter, projected_loss
from upmri.flow.path import TimeLaw, interpolate
from upmri.learning.adaptation import AdaptationPlan, Adapted, adapt_to
from upmri.learning.bootstrap import deviation, draw_errors
from upmri.learning.conformal import CONFIDENCES
from upmri.learning.fit_bounds import fit_bounds
from upmri.learning.held_out_bounds import Calibration, bound_slices
from upmri.learning.lines import LineSplit
from upmri.learning.partition import energy
from upmri.learning.spread import fit_spread, scale_errors
from upmri.learning.training_noise import path_noise
from upmri.methods.backbones import UNROLLED
from upmri.methods.base import Estimate, Objective
from upmri.methods.learned import Learned
from upmri.methods.supervised import full_image
from upmri.networks.precision import for_inference
from upmri.networks.unrolled import Unrolled
from upmri.networks.varnet import VarNet
from upmri.physics.operator import IdentityOperator, Operator
from upmri.physics.partial_fourier import REGULARISED, constrain
from upmri.physics.problem import Problem
from upmri.physics.refine_maps import refine_maps
from upmri.physics.sense import sense_damping

# Conjugate gradient iterations for the SENSE image that scales the loss: close enough to its error.
_ROUGH = 8
# Smallest error that scales the loss, relative to the energy of the signal: below it is rounding, as in a simulation
# without noise.
_LEAST = 1e-4
_NOT_CALIBRATED = ("adapt", "mirrors", "refine_maps")  # with them the errors are others than those of the bounds
# Split where weights are adapted: more input lines than in training, since the image has all of them as input.
ADAPTATION_SPLIT = LineSplit(loss=(0.02, 0.15))


def mean_image(network: Predictor, problem: Problem) -> Tensor:
    """Posterior mean of a problem, (slice, H, W)."""
    return posterior_mean(network, problem.operator, problem.adjoint, problem.sigma)


@dataclass(frozen=True)
class UpmriObjective(Objective):
    """Conditional flow matching with a loss on lines that were not input to the network.

    The lines Ω of a scan are split anew at every step: Θ is the input, Ξ is known through the path alone, and Λ forms
    the loss,

        x̂ = D(y_Θ∪Ξ, ·, 1), without gradient,    x_t = (1−t) x̂ + t x₁,    ‖A_Λ D(y_Θ, x_t, t) − y_Λ‖² → min,

    whose minimiser is the mean of x₀ given y_Θ and x_t, through A_Λ. The noise of Λ is in none of the inputs, so there
    is no divergence term. The loss of a slice is divided by the error of SENSE on the same lines, and multiplied by
    their share of Ω.

    Parameters
    ----------
    cascades, width, levels, damping
        Number of uses of the U-Net, channels at its first level, number of its levels, and initial λ.
    memory, conditioned
        Number of channels that are passed from cascade to cascade, and whether the U-Net knows the cascade, the noise
        level and the acceleration (:class:`upmri.networks.unrolled.Unrolled`).
    split
        Split of the lines.
    time, path_every
        Every ``path_every``-th step is on the path, at times with this distribution; the others are at t = 1 with
        Ξ = ∅.
    sigma_jitter
        Standard deviation of the logarithm of the noise level that is input to the network, as that of a scan is an
        estimate.
    supervised
        Whether the loss uses full images instead: the same loss with the identity for A_Λ, and x₀ for x̂.
    own
        Weight of ‖D(y_Θ) − D(y_Ω)‖², relative to the error of SENSE, beside the loss on Λ: less noisy, and biased.
    backbone
        Network: ``unrolled``, or ``varnet``, with a U-Net for each cascade, which has neither the path nor σ₀ as input
        and needs ``path_every: 0``.
    """

    cascades: int = 10
    width: int = 32
    levels: int = 3
    memory: int = 0
    conditioned: bool = False
    damping: float = 0.02
    split: LineSplit = field(default_factory=LineSplit)
    time: TimeLaw = field(default_factory=lambda: TimeLaw(location=-3.0, scale=1.2))
    path_every: int = 4
    sigma_jitter: float = 0.4
    supervised: bool = False
    own: float = 0.0
    backbone: str = UNROLLED

    def __post_init__(self) -> None:
        in_range(self, cascades=(1, 64), width=(1, 256), levels=(1, 6), memory=(0, 64), own=(0, 100))
        if self.memory % 2:
            raise InputError(f"expected an even number of channels, got {self.memory}", field="memory")
        one_of(self, backbone=(UNROLLED, "varnet"))
        if self.backbone == "varnet" and self.path_every > 0:
            raise InputError("a VarNet has no path; set path_every to 0", field="backbone")

    def network(self) -> nn.Module:
        """Return the network with fresh weights."""
        if self.backbone == "varnet":
            return VarNet(cascades=self.cascades, width=self.width, damping=self.damping)
        return Unrolled(
            cascades=self.cascades, width=self.width, levels=self.levels, damping=self.damping,
            memory=self.memory, conditioned=self.conditioned,
        )  # fmt: skip

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Error on Λ relative to that of SENSE, (slice,)."""
        on_path = self.path_every > 0 and problem.step % self.path_every == 0
        input_lines, path_lines, loss_lines = self.split.draw_each(problem)
        more = problem.restrict(input_lines | path_lines)
        inputs = problem.restrict(input_lines) if on_path else more
        operator, target, whole, share = self._target(problem, loss_lines)
        end = None
        if on_path:
            with torch.no_grad():
                end = full_image(problem) if self.supervised else mean_image(network, more)
        point, t = self._point(problem, end)
        prediction = network(inputs.operator, inputs.adjoint, point, t, self._noise_level(problem))
        error = projected_loss(prediction, operator, target, no_filter) + whole
        with torch.no_grad():
            # SENSE by a few iterations: the factors for an exact solution would cost as much as the network's own.
            damping = sense_damping(problem.sigma)
            sense = inputs.operator.solve(inputs.adjoint, damping, "cg", tolerance=0, iterations=_ROUGH)
            before = projected_loss(sense, operator, target, no_filter) + whole
        loss = share * error / torch.maximum(before, _LEAST * whole)
        if self.own > 0:
            loss = loss + self.own * self._difference(network, problem, prediction, sense)
        return loss

    @staticmethod
    def _difference(network: nn.Module, problem: Problem, prediction: Tensor, sense: Tensor) -> Tensor:
        """Squared distance to the image of all lines, relative to that of SENSE, (slice,)."""
        with torch.no_grad():
            own = mean_image(network, problem)
            least = _LEAST * own.abs().square().sum((1, 2))
            before = torch.maximum((sense - own).abs().square().sum((1, 2)), least)
        return (prediction - own).abs().square().sum((1, 2)) / before

    def _target(self, problem: Problem, lines: Tensor) -> tuple[Operator, Tensor, Tensor, Tensor | float]:
        """Operator of the loss, A*y of it, the energy of y, and the weight of the loss."""
        if self.supervised:
            image = full_image(problem)
            return IdentityOperator(image.shape), image, image.abs().square().sum((1, 2)), 1.0
        part = problem.restrict(lines)
        share = lines.sum((1, 2)) / problem.lines.sum((1, 2)).to(lines.device)
        return part.operator, part.adjoint, energy(part), share

    def _point(self, problem: Problem, end: Tensor | None) -> tuple[Tensor, Tensor]:
        """x_t and t; 0 and 1 off the path."""
        if end is None:
            zero = torch.zeros_like(problem.adjoint)
            return zero, zero.real.new_ones(len(problem))
        t = self.time.draw_each(problem.generators).to(problem.device)
        return interpolate(end, path_noise(problem), t), t

    def _noise_level(self, problem: Problem) -> Tensor:
        """σ₀ with a random error."""
        off = torch.cat([torch.randn(1, generator=generator) for generator in problem.generators])
        return problem.sigma * torch.exp(self.sigma_jitter * off).to(problem.sigma)

    def calibrate(self, network: nn.Module, problems: Iterable[Problem]) -> dict[str, Any]:
        """Fit the gain of the bootstrap's errors, and bounds on the error where there are enough scans of lines."""
        reconstruct = partial(mean_image, network)
        return {"spread": fit_spread(reconstruct, problems)} | fit_bounds(reconstruct, problems)


@dataclass(frozen=True)
class Upmri(Learned):
    """The posterior mean D(A*y, ·, 1), and on request images around it with their standard deviation.

    Parameters
    ----------
    model
        Weights: a name, a file, or a loaded prior. When not given, the first available ones, ``brain``, unless others
        predict held-out lines of the scan's first slice clearly better.
    samples
        Number of images. With more than 1, images around the posterior mean and their standard deviation are returned:
        by the bootstrap (:mod:`upmri.learning.bootstrap`), with a calibrated deviation and two reconstructions each,
        unless ``steps`` is given.
    steps
        Evaluations per image to draw the images along the flow instead; their deviation is not calibrated, and much
        too small.
    start
        First time of these draws.
    adapt
        Whether to continue training on splits of the scan's own lines before it is reconstructed
        (:mod:`upmri.learning.adaptation`). ``upmri.reconstruct`` does so once for all slices of a scan.
    adapt_steps
        Most steps of this training.
    mirrors
        Whether to average over the three mirror images of the scan: four times the evaluations for some 0.2 dB.
    refine_maps
        Whether to refine the coil maps and the outline of the object with a first image
        (:mod:`upmri.physics.refine_maps`), and to reconstruct again: some 0.2 to 0.6 dB for 2 to 3 times the time.
    partial_fourier
        Whether to use the expected phase where one side of k-space was not acquired
        (:mod:`upmri.physics.partial_fourier`).
    bounds
        Whether to bound the error by held-out lines, for four further reconstructions
        (:mod:`upmri.learning.held_out_bounds`); not with ``adapt``, ``mirrors`` or ``refine_maps``.
    confidence
        Probability of each bound, 0.8, 0.9 or 0.95.
    precision
        Number format of the U-Net: ``auto``, 16 bits where the processor has instructions for them, which changes an
        image by less than 0.02 dB; or ``fp32``.
    """

    name = "upmri"
    summary = "a prior from undersampled scans by projected flow matching, repaired (see the docs)"
    needs = "undersampled scans"
    evaluations = 1
    objective = UpmriObjective
    validation: ClassVar[dict[str, Any]] = {"precision": "fp32"}

    samples: int = 1
    steps: int | None = None
    start: float = 0.5
    adapt: bool = False
    adapt_steps: int = 90
    mirrors: bool = False
    refine_maps: bool = False
    partial_fourier: bool = True
    bounds: bool = False
    confidence: float = 0.9
    precision: str = "auto"

    def __post_init__(self) -> None:
        at_least(self, 1, "samples", "adapt_steps")
        if not isinstance(self.adapt, bool):
            raise InputError(f"expected True or False, got {self.adapt!r}; adapt_steps bounds the steps", field="adapt")
        if self.steps is not None:
            at_least(self, 1, "steps")
            if self.samples == 1:
                raise InputError("are for draws along the flow; set samples above 1, too", field="steps")
        if self.precision not in ("auto", "fp32"):
            raise InputError(f"expected auto or fp32, got {self.precision!r}", field="precision")
        changed = next((name for name in _NOT_CALIBRATED if self.bounds and getattr(self, name)), None)
        if changed is not None:
            raise InputError(f"were calibrated without {changed}; leave one of them out", field="bounds")
        if self.confidence not in CONFIDENCES:
            raise InputError(f"expected one of {CONFIDENCES}, got {self.confidence!r}", field="confidence")
        if not LAST < self.start <= 1:
            raise InputError(f"expected a time between {LAST} and 1, got {self.start}", field="start")

    @property
    def batches(self) -> bool:
        """Not while adaptation is still to be done: it would depend on the slices of the batch."""
        return not self.adapt

    def adapted(
        self, problem: Problem, report: Callable[[float], None] = lambda _: None, plan: AdaptationPlan | None = None
    ) -> tuple[Upmri, Adapted]:
        """Return the method with weights adapted to a problem, in which ``adapt`` is done, and what that brought.

        Parameters
        ----------
        problem
            Slices to adapt to.
        report
            Function that is called after every step, with the largest gain on held-out lines so far, in dB.
        plan
            Settings other than the usual ones.
        """
        prior, objective = self.prior, self.prior.objective
        assert isinstance(objective, UpmriObjective)  # noqa: S101  `prior` has checked it
        loss = replace(objective, path_every=0, supervised=False, split=ADAPTATION_SPLIT).loss
        plan = plan or AdaptationPlan.for_device(problem.device, self.adapt_steps)
        made = adapt_to(problem, prior.network, loss, mean_image, plan, report)
        return replace(self, adapt=False, model=prior.with_network(made.network)), made

    def reconstruct(self, problem: Problem) -> Tensor:
        """The posterior mean."""
        network = self._network(problem)
        return mean_image(network, self._prepared(network, problem))

    def __call__(self, problem: Problem) -> Estimate:
        """The posterior mean, with images around it and their deviation if ``samples`` is above 1, and bounds."""
        calibration = Calibration.from_card(self.prior.card, self.prior.source) if self.bounds else None
        network = self._network(problem)
        problem = self._prepared(network, problem)
        made = self._estimate(network, problem)
        if calibration is None:
            return made
        bounds = bound_slices(calibration, partial(mean_image, network), problem, made.image, self.confidence)
        if made.std is None or self.steps is not None:  # the deviation of the flow's draws was not calibrated
            bounds = replace(bounds, deviations=None)
        return replace(made, bounds=bounds)

    def _estimate(self, network: Predictor, problem: Problem) -> Estimate:
        mean = mean_image(network, problem)
        if self.samples == 1:
            return Estimate(mean)
        if self.steps is not None:
            drawn = sample(
                network, problem.operator, mean, problem.adjoint, problem.sigma,
                count=self.samples, steps=self.steps, start=self.start, generators=problem.generators,
            )  # fmt: skip
            return Estimate(mean, drawn, drawn.abs().std(0))
        spread = self._spread()
        off = draw_errors(partial(mean_image, network), problem, mean, problem.generators, self.samples)
        drawn = mean + scale_errors(off, problem, spread)
        return Estimate(mean, drawn, deviation(drawn, mean))

    def _prepared(self, network: Predictor, problem: Problem) -> Problem:
        """The problem with refined maps and the phase constraint, as the settings say."""
        if self.refine_maps:
            problem = refine_maps(problem, mean_image(network, problem))
        return constrain(problem, REGULARISED) if self.partial_fourier else problem

    def _spread(self) -> dict[str, Any]:
        """The gain of the bootstrap's errors, from the card of the weights."""
        spread: dict[str, Any] = self.prior.card.get("spread", {})
        if "gain" not in spread:
            why = "calibrated by an earlier version" if spread else "trained without validation scans"
            raise InputError(
                f"{self.prior.source} was {why}, so its deviation is not calibrated; calibrate it (docs/draws.md), or "
                "give steps for an uncalibrated deviation",
                field="samples",
            )
        return spread

    def _network(self, problem: Problem) -> Predictor:
        prior = self.adapted(problem)[0].prior if self.adapt else self.prior
        network = for_inference(prior.network) if self.precision == "auto" else prior.network
        return Mirrored(network) if self.mirrors else network
