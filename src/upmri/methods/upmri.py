"""UPMRI: an image prior learned from undersampled scans alone.

It is a repair of the published algorithm: see ``docs/upmri.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from upmri.core.checks import given, one_of, whole
from upmri.core.errors import InputError
from upmri.flow.conditional import LAST, Mirrored, Predictor, sample
from upmri.learning.adaptation import Adapted, adapt_to
from upmri.learning.adaptation_training import AdaptationPlan
from upmri.learning.bootstrap import deviation, draw_errors
from upmri.learning.conformal import CONFIDENCES
from upmri.learning.held_out_bounds import Calibration, bound_slices
from upmri.learning.spread import scale_errors
from upmri.methods.base import Estimate
from upmri.methods.learned import Learned
from upmri.methods.upmri_objective import ADAPTATION_SPLIT, UpmriObjective, mean_image
from upmri.networks.precision import for_inference
from upmri.physics.partial_fourier import REGULARISED, constrain
from upmri.physics.problem import Problem
from upmri.physics.refine_maps import refine_maps
from upmri.physics.sense import SenseOperator

_NOT_CALIBRATED = ("adapt", "mirrors", "refine_maps")  # with them the errors are others than those of the bounds


@dataclass(frozen=True)
class Upmri(Learned):
    """The posterior mean D(A*y, ·, 1), and on request images around it with their standard deviation.

    Parameters
    ----------
    model
        Weights: a name, a file, or a loaded prior. When not given, the first available ones, ``brain``, unless others
        predict held-out lines of a slice of the scan clearly better.
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
        Most steps of this training, 90 if not given; only with ``adapt``.
    mirrors
        Whether to average over the three mirror images of the scan: four times the evaluations for some 0.2 dB. An
        adapted network always does: it takes little beside the adaptation.
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
    adapt_steps: int | None = None
    mirrors: bool = False
    refine_maps: bool = False
    partial_fourier: bool = True
    bounds: bool = False
    confidence: float = 0.9
    precision: str = "auto"

    def __post_init__(self) -> None:
        whole(self, 1, "samples", *given(self, "adapt_steps", "steps"))
        one_of(self, precision=("auto", "fp32"), confidence=CONFIDENCES)
        if not isinstance(self.adapt, bool):
            raise InputError(f"expected True or False, got {self.adapt!r}; adapt_steps bounds the steps", field="adapt")
        if self.adapt_steps is not None and not self.adapt:
            raise InputError("only with adapt (--adapt)", field="adapt_steps")
        if self.steps is not None and self.samples == 1:
            raise InputError("only with samples above 1; those of adaptation are adapt_steps", field="steps")
        for name, other in (("start", "steps"), ("confidence", "bounds")):
            if not getattr(self, other) and getattr(self, name) != getattr(Upmri, name):
                raise InputError(f"only with {other}", field=name)
        changed = next((name for name in _NOT_CALIBRATED if self.bounds and getattr(self, name)), None)
        if changed is not None:
            raise InputError(f"were calibrated without {changed}; leave one of them out", field="bounds")
        if not LAST < self.start <= 1:
            raise InputError(f"expected a time between {LAST} and 1, got {self.start}", field="start")

    @property
    def batches(self) -> bool:
        """Not while adaptation is still to be done: it would depend on the slices of the batch."""
        return not self.adapt

    @property
    def most_adapt_steps(self) -> int:
        """Most steps of adaptation, given or usual."""
        return AdaptationPlan.steps if self.adapt_steps is None else self.adapt_steps

    def adapted(self, problem: Problem, report: Callable[[float], None] = lambda _: None) -> tuple[Upmri, Adapted]:
        """Return the method with weights adapted to a problem, in which ``adapt`` is done, and what that brought.

        Parameters
        ----------
        problem
            Slices to adapt to.
        report
            Function that is called after every step, with the largest gain on held-out lines so far, in dB.
        """
        prior, objective = self.prior, self.prior.objective
        assert isinstance(objective, UpmriObjective)  # noqa: S101  `prior` has checked it
        loss = replace(objective, path_every=0, supervised=False, split=ADAPTATION_SPLIT).loss
        plan = AdaptationPlan.for_device(problem.device, self.most_adapt_steps)
        made = adapt_to(problem, prior.network, loss, mean_image, plan, report)
        mirrors = self.mirrors or (made.steps > 0 and isinstance(problem.operator, SenseOperator))
        model = prior.with_network(made.network)
        return replace(self, adapt=False, adapt_steps=None, mirrors=mirrors, model=model), made

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
        method = self.adapted(problem)[0] if self.adapt else self
        network = method.prior.network
        network = for_inference(network) if self.precision == "auto" else network
        return Mirrored(network) if method.mirrors else network
