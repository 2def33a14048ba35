"""Series of frames, such as heart beats, by a network that sees time and was trained on undersampled series alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from upmri.core.checks import in_range, one_of
from upmri.learning.partition import energy, misfit
from upmri.learning.series_lines import SeriesSplit
from upmri.methods.base import Objective
from upmri.methods.learned import Learned
from upmri.networks.dynamic import Dynamic
from upmri.networks.precision import for_inference
from upmri.physics.problem import Problem
from upmri.physics.time_average import average_image, by_series, to_frames

# Smallest error that scales the loss, relative to the energy of the signal: below it is rounding.
_LEAST = 1e-4


@dataclass(frozen=True)
class CineObjective(Objective):
    """Error on lines that were not input to the network, within and across frames.

    The lines of each series are split anew at every step into input lines Θ and loss lines Λ,

        ‖A_Λ D(y_Θ) − y_Λ‖² → min.

    The noise of Λ is in none of the inputs, so the minimiser is the mean of the series given y_Θ, through A_Λ. The loss
    of a series is divided by the error of the image of all frames together on the same lines, and multiplied by their
    share of all lines.

    Parameters
    ----------
    cascades, width, damping, low_rank
        Number of uses of the U-Net, channels at its first level, and initial λ and θ.
    periodic
        Whether the first frame of a series follows the last one.
    split
        Split of the lines.
    sigma_jitter
        Standard deviation of the logarithm of the noise level that is input to the network, as that of a scan is an
        estimate.
    """

    cascades: int = 6
    width: int = 32
    damping: float = 0.2
    low_rank: float = 0.4
    periodic: bool = True
    split: SeriesSplit = field(default_factory=SeriesSplit)
    sigma_jitter: float = 0.3

    def __post_init__(self) -> None:
        in_range(self, cascades=(1, 64), width=(1, 256))
        in_range(self, damping=(1e-6, 100), low_rank=(1e-6, 100), sigma_jitter=(0, 10))

    def network(self) -> nn.Module:
        """Return the network with fresh weights."""
        return Dynamic(
            cascades=self.cascades,
            width=self.width,
            damping=self.damping,
            low_rank=self.low_rank,
            periodic=self.periodic,
        )

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Error on Λ relative to that of the image of all frames together, (series,)."""
        frames = problem.frames
        input_lines, loss_lines = self.split.draw_each(problem)
        inputs, part = problem.restrict(input_lines), problem.restrict(loss_lines)
        prediction = network(inputs.operator, inputs.adjoint, self._noise_level(problem), frames)
        error = by_series(misfit(prediction, part), frames).sum(1)
        with torch.no_grad():
            mean = to_frames(average_image(inputs.operator, inputs.adjoint, frames), frames)
            before = by_series(misfit(mean, part), frames).sum(1)
            least = _LEAST * by_series(energy(part), frames).sum(1)
            share = by_series(loss_lines.sum((1, 2)), frames).sum(1)
            share = share / by_series((input_lines | loss_lines).sum((1, 2)), frames).sum(1)
        return share * error / torch.maximum(before, least)

    def _noise_level(self, problem: Problem) -> Tensor:
        """σ₀ with a random error, the same for all frames of a series."""
        generators = problem.generators[:: problem.frames]
        off = torch.cat([torch.randn(1, generator=generator) for generator in generators])
        return problem.sigma * to_frames(torch.exp(self.sigma_jitter * off), problem.frames).to(problem.sigma)


@dataclass(frozen=True)
class Cine(Learned):
    """All frames of a place together: D(A*y) of :class:`~upmri.networks.dynamic.Dynamic`.

    One slice alone is a series of one frame, for which ``upmri`` is better.

    Parameters
    ----------
    model
        Weights: a name, a file, or a loaded prior. When not given, the only available ones.
    precision
        Number format of the U-Net: ``auto``, 16 bits where the processor has instructions for them, or ``fp32``.
    """

    name = "cine"
    summary = "heart beats and other series: a network over space and time, from undersampled series alone"
    needs = "undersampled series"
    evaluations = 1
    objective = CineObjective
    dynamic = True
    validation: ClassVar[dict[str, Any]] = {"precision": "fp32"}

    precision: str = "auto"

    def __post_init__(self) -> None:
        one_of(self, precision=("auto", "fp32"))

    def reconstruct(self, problem: Problem) -> Tensor:
        """The prediction of the network."""
        network = for_inference(self.prior.network) if self.precision == "auto" else self.prior.network
        image: Tensor = network(problem.operator, problem.adjoint, problem.sigma, problem.frames)
        return image
