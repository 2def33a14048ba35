"""UPMRI to the letter of the paper: a velocity network fed A*y_t, CG projections, Algorithm 1.

As written it does not work (``docs/upmri.md`` says why, and shows it); it is here to be compared with. Its lesson can
be changed piece by piece into what ``upmri`` does, to see what each change is worth (``docs/steps.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.flow.objective import DampedFilter, Filter, KrylovFilter, Normal, filtered, loss_of, no_filter
from upmri.flow.path import TimeLaw, interpolate
from upmri.flow.sampler import Cyclic, read_out
from upmri.learning.divergence import divergence
from upmri.learning.lines import SplitLaw
from upmri.methods.base import Lesson, Problem
from upmri.methods.learned import Learned
from upmri.methods.sense import default_damping
from upmri.networks.adm import SIZES
from upmri.networks.image import ImageNetwork
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


@dataclass(frozen=True)
class PaperLesson(Lesson):
    """Projected conditional flow matching as published.

    At z = A*y_t, y_t = (1−t) y₀ + t A x₁, the network's velocity v(z, t) is drawn to x₁ − x₀ in the range of A*,

        ‖P v − A⁺(A x₁ − y₀)‖² − 2 (1−t) σ₀² Re⟨b, J_v b⟩ → min,    b = P ζ,  ζ ~ CN(0, I).

    Parameters
    ----------
    size
        Of the U-Net.
    iterations
        k of the projections.
    time
        The law of t: logit-normal.
    divergence
        Whether the second term is there.
    target
        What the network predicts: x₁ − x₀, or x₀.
    fed
        What it is fed: A*y_t, or R A*y_t, an image. R is N⁺; then b = R A*ε, ε ~ CN(0, I).
    damped
        R = (N + λI)⁻¹, in the loss and before the network, with the λ of SENSE.
    split
        Feed the network a part of the lines, and judge it by the others with R = I; no divergence is due.
    """

    size: str = "small"
    iterations: int = 10
    time: TimeLaw = field(default_factory=TimeLaw)
    divergence: bool = True
    target: Literal["velocity", "image"] = "velocity"
    fed: Literal["adjoint", "inverse"] = "adjoint"
    damped: bool = False
    split: SplitLaw | None = None

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"lesson.size: expected one of {', '.join(SIZES)}, got {self.size!r}")
        if self.damped and self.fed != "inverse":
            raise InputError("lesson.damped: a damped projection is for a network that is fed an image (fed: inverse)")
        if self.split is not None and self.divergence:
            raise InputError("lesson.split: lines that the network is not fed need no divergence (divergence: false)")

    @property
    def published(self) -> bool:
        """Whether Algorithm 1 can use what is learnt: a velocity at A*y_t."""
        return self.target == "velocity" and self.fed == "adjoint"

    def network(self) -> nn.Module:
        """The plain U-Net."""
        return ImageNetwork(self.size)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The projected error but for a constant, a pixel, (slice,)."""
        t, x1 = batch.times(self.time), batch.noise()
        operator, judge, project = self._lines(batch)
        z = interpolate(operator.adjoint(batch.kspace), operator.normal(x1), t)
        at = self._seen(operator, z, batch.sigma)

        def predict(at: Tensor) -> Tensor:
            torch.manual_seed(batch.seeds[0])  # the same dropout each time
            prediction: Tensor = network(at, t)
            return prediction

        prediction = predict(at)
        aim = self._aim(judge.adjoint(batch.kspace), judge.normal(x1))
        probes = [self._probe(operator, batch)] if self.divergence else []
        residual, goal, *probes = filtered(prediction, judge, aim, project, *probes)
        loss = loss_of(prediction, residual, goal)
        for b in probes:
            term = divergence(predict, at, b, known=prediction)
            loss = loss + 2 * self._sign * (1 - t) * batch.sigma.square() * term
        return loss / z[0].numel()

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:
        """One evaluation, −v(A*y, 0) or the image, made consistent with the data."""
        return self.read_out(network, operator, operator.adjoint(kspace), sigma, self.iterations)

    def read_out(
        self, network: nn.Module, operator: SenseOperator, adjoint: Tensor, sigma: Tensor, iterations: int
    ) -> Tensor:
        """The image of A*y₀ at t = 0, where the velocity is −x₀; iterations are of conjugate gradients."""

        def velocity(z: Tensor, t: Tensor) -> Tensor:
            v: Tensor = -self._sign * network(self._seen(operator, z, sigma), t)
            return v

        if not self.damped:
            return read_out(velocity, operator, adjoint, iterations)
        damping = default_damping(sigma)
        image = read_out(velocity, operator, adjoint, iterations=0)
        return operator.solve(adjoint + damping[:, None, None] * image, damping)

    @property
    def _sign(self) -> int:
        """How x₀ enters the target."""
        return 1 if self.target == "image" else -1

    def _aim(self, near: Tensor, far: Tensor) -> Tensor:
        """A* u_Y from A*y₀ and N x₁."""
        return near if self.target == "image" else far - near

    def _lines(self, batch: Batch) -> tuple[SenseOperator, SenseOperator, Filter]:
        """A of the lines that are fed, of those that judge, and R."""
        if self.split is None:
            operator = SenseOperator(batch.maps, batch.mask)
            return operator, operator, self._filter(batch.sigma)
        given, told, judged = batch.divided(self.split)
        return SenseOperator(batch.maps, given | told), SenseOperator(batch.maps, judged), no_filter

    def _filter(self, sigma: Tensor) -> Filter:
        return DampedFilter(default_damping(sigma)) if self.damped else KrylovFilter(self.iterations)

    def _seen(self, operator: Normal, z: Tensor, sigma: Tensor) -> Tensor:
        """What the network is fed for A*y_t."""
        return z if self.fed == "adjoint" else self._filter(sigma)(operator, z)

    def _probe(self, operator: SenseOperator, batch: Batch) -> Tensor:
        """What R makes b of: for a network fed A*y_t that is P ζ; both have the mean tr(R A* J_y)."""
        if self.fed == "adjoint":
            return operator.normal(batch.unit_noise(*batch.kspace.shape[2:]))
        return operator.adjoint(batch.unit_noise(*batch.kspace.shape[1:]))


@dataclass(frozen=True)
class UpmriPaper(Learned):
    """Algorithm 1, with the switches that show why it fails.

    Parameters
    ----------
    model
        A file of weights trained with ``method: upmri-paper``.
    steps, iterations
        T and k at inference.
    null_noise
        Put noise into the unmeasured subspace, as published. It never enters the network and stays in the image.
    image_fed
        Evaluate the velocity at x(t) on the way back, instead of at A*y(t).
    read_out
        One evaluation instead of the algorithm.
    """

    name = "upmri-paper"
    summary = "the published algorithm, to the letter; for comparison (its repair is upmri)"
    needs = "undersampled scans"
    evaluations = 20
    lesson = PaperLesson

    steps: int = 10
    iterations: int = 30
    null_noise: bool = True
    image_fed: bool = False
    read_out: bool = False

    def reconstruct(self, problem: Problem) -> Tensor:
        """Algorithm 1, or the read-out."""
        model, operator, adjoint, sigma = self.load(problem), problem.operator, problem.adjoint, problem.sigma
        assert isinstance(model.lesson, PaperLesson)  # noqa: S101  `load` has seen to it
        if self.read_out:
            return model.lesson.read_out(model.network, operator, adjoint, sigma, self.iterations)
        if not model.lesson.published:
            raise InputError(
                f"model: {self.model} gives no velocity at A*y_t, which Algorithm 1 needs; set read_out instead"
            )
        cycle = Cyclic(self.steps, self.iterations, self.null_noise, self.image_fed)
        return cycle(model.network, operator, adjoint, sigma, problem.generator)
