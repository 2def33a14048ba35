"""UPMRI as published: a velocity network with the input A*y_t, projections by conjugate gradients, Algorithm 1.

On noisy data it does not work as written (``docs/upmri.md`` explains why); it is here for comparison. Its objective can
be changed step by step into that of ``upmri``, to measure what each change brings (``docs/steps.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from upmri.core.checks import positive, whole
from upmri.core.errors import InputError
from upmri.flow.objective import DampedFilter, Filter, KrylovFilter, filtered, loss_of, no_filter
from upmri.flow.path import TimeLaw, interpolate
from upmri.flow.sampler import Cyclic, single_evaluation
from upmri.learning.divergence import divergence
from upmri.learning.lines import LineSplit
from upmri.learning.training_noise import path_noise, same_dropout
from upmri.methods.backbones import ImageBackbone
from upmri.methods.drawing import Drawing, for_draws
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem
from upmri.physics.sense import sense_damping


@dataclass(frozen=True)
class PaperObjective(ImageBackbone):
    """Projected conditional flow matching as published.

    At z = A*y_t, y_t = (1−t) y₀ + t A x₁, the network's velocity v(z, t) approaches x₁ − x₀ in the range of A*,

        ‖P v − A⁺(A x₁ − y₀)‖² − 2 (1−t) σ₀² Re⟨b, J_v b⟩ → min,    b = P ζ,  ζ ~ CN(0, I).

    Parameters
    ----------
    size
        Size of the U-Net.
    iterations
        k of the projections.
    time
        Distribution of t: logit-normal.
    divergence
        Whether to include the second term.
    target
        Output of the network: the velocity x₁ − x₀, or the image x₀.
    network_input
        Input of the network: A*y_t, or R A*y_t, an image. R is N⁺; then b = R A*ε, ε ~ CN(0, I).
    damped
        R = (N + λI)⁻¹, in the loss and in the input, with the λ of SENSE.
    split
        Input lines and loss lines are different, and R = I; there is no divergence.
    peak
        Peak of the images, by which data and σ₀ are multiplied before and the image is divided after. The paper gives
        no scale. The noise of the path is CN(0, 2I), and a part of it stays in the published image (``null_noise``):
        relative to the image it is 1/``peak``.
    """

    iterations: int = 10
    time: TimeLaw = field(default_factory=TimeLaw)
    divergence: bool = True
    target: Literal["velocity", "image"] = "velocity"
    network_input: Literal["adjoint", "inverse"] = "adjoint"
    damped: bool = False
    split: LineSplit | None = None
    peak: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, 1, "iterations")
        positive(self, "peak")
        if self.damped and self.network_input != "inverse":
            raise InputError("a damped projection needs an image as input (network_input: inverse)", field="damped")
        if self.split is not None and self.divergence:
            raise InputError("loss lines that are not input need no divergence (divergence: false)", field="split")

    @property
    def published(self) -> bool:
        """Whether Algorithm 1 can use the network: it predicts a velocity at A*y_t."""
        return self.target == "velocity" and self.network_input == "adjoint"

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Projected error per pixel, without a constant, (slice,)."""
        problem = self._scaled(problem)
        t, x1 = self.time.draw_each(problem.generators).to(problem.device), path_noise(problem)
        inputs, target, project = self._lines(problem)
        z = interpolate(inputs.adjoint, inputs.operator.normal(x1), t)
        at = self._input(inputs.operator, z, problem.sigma)
        predict = same_dropout(network, t, problem)
        prediction = predict(at)
        aim = self._aim(target.adjoint, target.operator.normal(x1))
        probes = [self._probe(inputs.operator, problem)] if self.divergence else []
        residual, goal, *probes = filtered(prediction, target.operator, aim, project, *probes)
        loss = loss_of(prediction, residual, goal)
        for b in probes:
            term = divergence(predict, at, b, known=prediction)
            loss = loss + 2 * self._sign * (1 - t) * problem.sigma.square() * term
        return loss / z[0].numel()

    def single_evaluation(self, network: nn.Module, problem: Problem, iterations: int) -> Tensor:
        """Image of A*y₀ at t = 0, where the velocity is −x₀, made consistent with the data."""
        operator, adjoint, sigma = problem.operator, self.peak * problem.adjoint, self.peak * problem.sigma

        def velocity(z: Tensor, t: Tensor) -> Tensor:
            v: Tensor = -self._sign * network(self._input(operator, z, sigma), t)
            return v

        if not self.damped:
            return single_evaluation(velocity, operator, adjoint, iterations) / self.peak
        damping = sense_damping(problem.sigma)
        image = single_evaluation(velocity, operator, adjoint, iterations=0)
        return operator.solve(adjoint + damping[:, None, None] * image, damping) / self.peak

    def _scaled(self, problem: Problem) -> Problem:
        """The problem of images with this peak."""
        if self.peak == 1:
            return problem
        return problem.derived(problem.operator, self.peak * problem.kspace, sigma=self.peak * problem.sigma)

    @property
    def _sign(self) -> int:
        """Sign of x₀ in the target."""
        return 1 if self.target == "image" else -1

    def _aim(self, near: Tensor, far: Tensor) -> Tensor:
        """A* u_Y from A*y₀ and N x₁."""
        return near if self.target == "image" else far - near

    def _lines(self, problem: Problem) -> tuple[Problem, Problem, Filter]:
        """The problem of the input lines, of the loss lines, and R."""
        if self.split is None:
            return problem, problem, self._filter(problem.sigma)
        inputs, path, loss = self.split.draw_each(problem)
        return problem.restrict(inputs | path), problem.restrict(loss), no_filter

    def _filter(self, sigma: Tensor) -> Filter:
        return DampedFilter(sense_damping(sigma / self.peak)) if self.damped else KrylovFilter(self.iterations)

    def _input(self, operator: Operator, z: Tensor, sigma: Tensor) -> Tensor:
        """Input of the network for A*y_t."""
        return z if self.network_input == "adjoint" else self._filter(sigma)(operator, z)

    def _probe(self, operator: Operator, problem: Problem) -> Tensor:
        """Image from which R makes b: for the input A*y_t that is P ζ; both have the mean tr(R A* J_y)."""
        if self.network_input == "adjoint":
            return operator.normal(problem.unit_noise(*problem.adjoint.shape[1:]))
        return operator.H(problem.unit_noise(*problem.kspace.shape[1:]))


@dataclass(frozen=True)
class UpmriPaper(Drawing):
    """Algorithm 1, with switches that show why it fails.

    Parameters
    ----------
    model, samples
        Weights trained with ``method: upmri-paper``, and the number of draws, of which the image is the mean; more than
        1 only with ``null_noise``, as there is no other random number.
    steps, iterations
        T and k at inference.
    null_noise
        Whether to put noise into the unmeasured subspace, as published. It never enters the network and stays in the
        image.
    image_input
        Whether to evaluate the velocity at x(t) in the backward pass, instead of at A*y(t).
    single_evaluation
        One evaluation instead of the algorithm.
    """

    name = "upmri-paper"
    summary = "the published algorithm, for comparison (its repair is upmri)"
    needs = "undersampled scans"
    evaluations = 20
    objective = PaperObjective
    validation: ClassVar[dict[str, Any]] = {"single_evaluation": True, "iterations": 10}

    steps: int = 10
    iterations: int = 30
    null_noise: bool = True
    image_input: bool = False
    single_evaluation: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, 1, "steps", "iterations")
        if self.samples > 1 and (self.single_evaluation or not self.null_noise):
            raise InputError("all draws would be the same; set null_noise, and no single_evaluation", field="samples")

    def draw(self, problem: Problem, count: int) -> Tensor:
        """Images by Algorithm 1, or one by one evaluation."""
        network, objective = self.prior.network, self.prior.objective
        assert isinstance(objective, PaperObjective)  # noqa: S101  `prior` has checked it
        if self.single_evaluation:
            return objective.single_evaluation(network, problem, self.iterations)[None]
        if not objective.published:
            raise InputError(
                f"{self.prior.source} predicts no velocity at A*y_t, which Algorithm 1 needs; set single_evaluation",
                field="model",
            )
        cycle = Cyclic(self.steps, self.iterations, self.null_noise, self.image_input)
        data, sigma = for_draws(objective.peak * problem.adjoint, count), objective.peak * problem.sigma
        return cycle(network, problem.operator, data, sigma, problem.generators) / objective.peak
