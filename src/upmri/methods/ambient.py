"""Ambient diffusion (Daras et al. 2023, Aali et al. 2024): a diffusion prior learnt from scans with gaps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.flow.diffusion import Cosine, DataStep, denoise
from upmri.flow.path import Field, noise
from upmri.learning.divergence import divergence
from upmri.learning.partition import SecondMask, misfit, split
from upmri.methods.base import Problem
from upmri.methods.ddnm import Diffusion, DiffusionLesson
from upmri.methods.dds import proximal_step
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch

# Validation looks at an image of so many steps, always from the same noise.
_GLANCE = 20
_ETA = 0.85


@dataclass(frozen=True)
class AmbientLesson(DiffusionLesson):
    """What a scan sampled, Ω, is masked again, anew every step; the network is to find all of it, through noise.

    With Λ ⊂ Ω, A the operator of its lines, N = A*A, and ε ~ CN(0, 2I), the network h sees the lines of Λ of a noisy
    image a_t x₀ + σ_t ε, which takes no more than the data, and says what x₀ is:

        ‖A_Ω h(z_t, t) − y_Ω‖² → min,    z_t = a_t A_Λ*y + σ_t N_Λ ε.

    It cannot tell the lines that were taken away from those never sampled, so it must learn both. All of Ω judges: left
    to Ω∖Λ alone, nothing would hold what it says of the lines it sees. The noise of the data on Λ, which is in z_t and
    in what judges, is left alone: σ_t ε hides it but at the few levels in a hundred where σ_t is not much above σ₀,
    and there the data have their own say. The mask is not shown: N_Λ ε bears its mark.

    Parameters
    ----------
    size, schedule
        Of the U-Net; a_t and σ_t.
    kept
        Probability that a line outside the calibration region is in Λ. A reconstruction shows all of Ω: far from 1 the
        network would not know such inputs.
    divergence
        Correct for the noise on Λ, + 2 a_t σ₀² Re⟨b, J_h b⟩ with b = A_Λ*ε', ε' ~ CN(0, I): unbiased at all levels, for
        one evaluation more.
    """

    kept: float = 0.75
    divergence: bool = False
    supervised = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.kept < 1:
            raise InputError(f"lesson.kept: expected a probability between 0 and 1, got {self.kept}")

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The error on Ω, a pixel, (slice,)."""
        level = self.schedule.draw(batch.generators)
        given, _ = split(SecondMask(self.kept).draw, batch.lines, batch.kspace.shape[-2], batch.generators)
        shown = SenseOperator(batch.maps, given)
        a, sigma = _scales(self.schedule, level, batch.maps)
        z = a * shown.adjoint(batch.kspace) + sigma * shown.normal(batch.noise())
        t = (level / self.schedule.levels).to(sigma)

        def image(at: Tensor) -> Tensor:
            torch.manual_seed(batch.seeds[0])  # the same dropout each time
            x: Tensor = network(at, t)
            return x

        x = image(z)
        loss = misfit(x, batch.maps, batch.mask, batch.kspace)
        if self.divergence:
            probe = batch.unit_noise(*batch.kspace.shape[1:])
            term = divergence(image, z, shown.adjoint(probe), known=x)
            loss = loss + 2 * a[:, 0, 0] * batch.sigma.square() * term
        return loss / z[0].numel()

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:  # noqa: ARG002
        """A draw in a few steps."""
        adjoint, generator = operator.adjoint(kspace), torch.Generator().manual_seed(0)
        field = noise_in(network, self.schedule, operator)
        data_step, start = proximal_step(operator, adjoint, 1.0), noise(adjoint, generator)
        return denoise(field, self.schedule, start, data_step, steps=_GLANCE, eta=_ETA, generator=generator)


@dataclass(frozen=True)
class Ambient(Diffusion):
    """One draw, as ``dds`` makes it; the network is shown what the scan's own lines hold of the noisy image.

    Parameters
    ----------
    model
        A file of weights trained with ``method: ambient``.
    steps, eta
        Evaluations, and the share of the noise that is drawn anew.
    weight
        w of the step to the data, x̃₀ = argmin ‖x − x̂₀‖² + w ‖Ax − y‖².
    """

    name = "ambient"
    summary = "a diffusion prior from undersampled scans, drawn to the data as in dds (Daras 2023, Aali 2024)"
    needs = "undersampled scans"
    lesson = AmbientLesson

    weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight > 0:
            raise InputError(f"weight: expected w > 0, got {self.weight}")

    def data_step(self, problem: Problem) -> DataStep:
        """The proximal step of ``dds``."""
        return proximal_step(problem.operator, problem.adjoint, self.weight)

    def reconstruct(self, problem: Problem) -> Tensor:
        """From noise, drawn in the whole image, to one image that the data allow."""
        model, generator = self.load(problem), problem.generator
        assert isinstance(model.lesson, AmbientLesson)  # noqa: S101  `load` has seen to it
        return denoise(
            noise_in(model.network, model.lesson.schedule, problem.operator), model.lesson.schedule,
            noise(problem.adjoint, generator), self.data_step(problem),
            steps=self.steps, eta=self.eta, generator=generator,
        )  # fmt: skip


def noise_in(image: Field, schedule: Cosine, operator: SenseOperator) -> Field:
    """ε̂(x_t, t) = (x_t − a_t h(N x_t, t))/σ_t: the noise that a network leaves which tells the image."""

    def field(x: Tensor, t: Tensor) -> Tensor:
        a, sigma = _scales(schedule, (t * schedule.levels).round().long(), x)
        return (x - a * image(operator.normal(x), t)) / sigma

    return field


def _scales(schedule: Cosine, level: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """a_t and σ_t of levels (slice,), shaped to multiply images."""
    signal = schedule.signal[level.cpu()][:, None, None]
    return signal.sqrt().to(like.real), (1 - signal).sqrt().to(like.real)
