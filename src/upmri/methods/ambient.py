"""Ambient diffusion (Daras et al. 2023, Aali et al. 2024): a diffusion prior from undersampled scans."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.core.checks import fraction
from upmri.flow.diffusion import Cosine
from upmri.flow.path import Field
from upmri.learning.divergence import divergence
from upmri.learning.partition import SecondMask, misfit, split
from upmri.learning.training_noise import path_noise, same_dropout
from upmri.methods.base import Objective
from upmri.methods.ddnm import DiffusionObjective
from upmri.methods.dds import ProximalDiffusion
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class AmbientObjective(DiffusionObjective):
    """The samples Ω of a scan are masked again at every step; from noisy input the network predicts all of them.

    With Λ ⊂ Ω, A the operator of its lines, N = A*A, and ε ~ CN(0, 2I), the input of the network h are the lines of Λ
    of a noisy image a_t x₀ + σ_t ε, which needs the data alone, and its output is an estimate of x₀:

        ‖A_Ω h(z_t, t) − y_Ω‖² → min,    z_t = a_t A_Λ*y + σ_t N_Λ ε.

    The network cannot distinguish lines that were removed from lines that were never sampled, so it must learn both.
    The loss is on all of Ω: on Ω∖Λ alone, nothing would determine the output on the input lines. The noise of the data
    on Λ, which is in z_t and in the loss, is not corrected by default: σ_t ε is much larger except at a few percent of
    the levels, where the data step dominates. The mask is not an input: N_Λ ε depends on it.

    Parameters
    ----------
    size, schedule
        Size of the U-Net; a_t and σ_t.
    kept
        Probability that a line outside the calibration region is in Λ. At reconstruction all of Ω is input: far from 1
        such input would be new to the network.
    divergence
        Whether to correct for the noise on Λ, + 2 a_t σ₀² Re⟨b, J_h b⟩ with b = A_Λ*ε', ε' ~ CN(0, I): unbiased at all
        levels, at the cost of one more evaluation.
    """

    kept: float = 0.75
    divergence: bool = False
    supervised = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(self, "kept")

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Error on Ω per pixel, (slice,)."""
        level = self.schedule.draw(problem.generators)
        inputs, _ = split(SecondMask(self.kept).draw, problem)
        a, sigma = _scales(self.schedule, level, problem.adjoint)
        z = a * inputs.adjoint + sigma * inputs.operator.normal(path_noise(problem))
        t = (level / self.schedule.levels).to(sigma)
        image = same_dropout(network, t, problem)
        x = image(z)
        loss = misfit(x, problem)
        if self.divergence:
            probe = problem.unit_noise(*problem.kspace.shape[1:])
            term = divergence(image, z, inputs.operator.H(probe), known=x)
            loss = loss + 2 * a[:, 0, 0] * problem.sigma.square() * term
        return loss / z[0].numel()


@dataclass(frozen=True)
class Ambient(ProximalDiffusion):
    """Draws with the data step of ``dds``; the input of the network are the scan's own lines of the noisy image.

    Parameters
    ----------
    model
        Weights trained with ``method: ambient``.
    samples, steps, eta, weight
        See :class:`~upmri.methods.dds.ProximalDiffusion`.
    """

    name = "ambient"
    summary = "a diffusion prior from undersampled scans, with the data step of dds (Daras 2023, Aali 2024)"
    needs = "undersampled scans"
    objective = AmbientObjective

    def noise_field(self, objective: Objective, problem: Problem) -> tuple[Field, Cosine]:
        """Return the noise that remains beside the network's image, and the schedule."""
        assert isinstance(objective, AmbientObjective)  # noqa: S101  `prior` has checked it
        return noise_in(self.prior.network, objective.schedule, problem.operator), objective.schedule


def noise_in(image: Field, schedule: Cosine, operator: Operator) -> Field:
    """ε̂(x_t, t) = (x_t − a_t h(N x_t, t))/σ_t: the noise that remains beside a network's image.

    Images are (draw · slice, H, W), the slices of each draw one after another.
    """

    def field(x: Tensor, t: Tensor) -> Tensor:
        a, sigma = _scales(schedule, (t * schedule.levels).round().long(), x)
        lines = operator.normal(x.reshape(-1, *operator.shape)).reshape(x.shape)
        return (x - a * image(lines, t)) / sigma

    return field


def _scales(schedule: Cosine, level: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """a_t and σ_t of levels (slice,), shaped to multiply images."""
    signal = schedule.signal[level.cpu()][:, None, None]
    return signal.sqrt().to(like.real), (1 - signal).sqrt().to(like.real)
