"""UPMRI to the letter of the paper: a velocity network fed A*y_t, CG projections, Algorithm 1.

As written it does not work (``docs/upmri.md`` says why, and shows it); it is here to be compared with.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from upmri.errors import InputError
from upmri.flow.objective import Filter, Identity, KrylovFilter, Normal, divergence, no_filter, projected_loss
from upmri.flow.path import TimeLaw, interpolate
from upmri.flow.sampler import Cyclic, read_out
from upmri.methods.base import Lesson, Problem
from upmri.methods.learned import Learned
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
    supervised
        Learn from the truth: the same loss with the identity for A, which is plain flow matching, z = x_t.
    """

    size: str = "small"
    iterations: int = 10
    time: TimeLaw = field(default_factory=TimeLaw)
    divergence: bool = True
    supervised: bool = False

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"lesson.size: expected one of {', '.join(SIZES)}, got {self.size!r}")

    def network(self) -> nn.Module:
        """The plain U-Net."""
        return ImageNetwork(self.size)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The projected error but for a constant, a pixel, (slice,)."""
        t, x1 = batch.times(self.time), batch.noise()
        operator: Normal
        project: Filter
        if self.supervised:
            if batch.reference is None:
                raise InputError("lesson.supervised: needs scans with a reference")
            operator, adjoint, project = Identity(), batch.reference, no_filter
        else:
            operator, project = SenseOperator(batch.maps, batch.mask), KrylovFilter(self.iterations)
            adjoint = operator.adjoint(batch.kspace)
        far = operator.normal(x1)
        z = interpolate(adjoint, far, t)

        def velocity(at: Tensor) -> Tensor:
            torch.manual_seed(batch.seeds[0])  # the same dropout each time
            v: Tensor = network(at, t)
            return v

        v = velocity(z)
        loss = projected_loss(v, operator, far - adjoint, project)
        if self.divergence and not self.supervised:  # the truth has no noise
            zeta = batch.unit_noise(*z.shape[1:])
            term = divergence(velocity, operator, z, operator.normal(zeta), project, known=v)
            loss = loss - 2 * (1 - t) * batch.sigma.square() * term
        return loss / z[0].numel()

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:  # noqa: ARG002
        """One evaluation: −v(A*y, 0), made consistent with the data."""
        return read_out(network, operator, operator.adjoint(kspace), iterations=self.iterations)


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
        velocity = self.load(problem).network
        if self.read_out:
            return read_out(velocity, problem.operator, problem.adjoint, iterations=self.iterations)
        cycle = Cyclic(self.steps, self.iterations, self.null_noise, self.image_fed)
        return cycle(velocity, problem.operator, problem.adjoint, problem.sigma, problem.generator)
