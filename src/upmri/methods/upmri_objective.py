"""The loss of UPMRI: flow matching on lines that were not input to the network; see ``docs/upmri.md``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from upmri.core.checks import at_least, in_range, one_of
from upmri.core.errors import InputError
from upmri.flow.conditional import Predictor, posterior_mean
from upmri.flow.objective import no_filter, projected_loss
from upmri.flow.path import TimeLaw, interpolate
from upmri.learning.fit_bounds import fit_bounds
from upmri.learning.lines import LineSplit
from upmri.learning.partition import energy
from upmri.learning.spread import fit_spread
from upmri.learning.training_noise import path_noise
from upmri.methods.backbones import UNROLLED
from upmri.methods.base import Objective
from upmri.methods.supervised import full_image
from upmri.networks.unrolled import Unrolled
from upmri.networks.varnet import VarNet
from upmri.physics.identity import IdentityOperator
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem
from upmri.physics.sense import sense_damping

# Conjugate gradient iterations for the SENSE image that scales the loss: close enough to its error.
_ROUGH = 8
# Smallest error that scales the loss, relative to the energy of the signal: below it is rounding, as in a simulation
# without noise.
_LEAST = 1e-4
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
    is no divergence term. The loss of a slice is divided by the error of SENSE on the same lines, which pulls the
    minimiser a little towards SENSE (``docs/upmri.md``), and multiplied by their share of Ω.

    Parameters
    ----------
    cascades, width, damping
        Number of uses of the U-Net, channels at its first level, and initial λ.
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
    backbone
        Network: ``unrolled``, or ``varnet``, with a U-Net for each cascade, which has neither the path nor σ₀ as input
        and needs ``path_every: 0``.
    levels
        Number of levels of the U-Net.
    memory, conditioned
        Number of channels that are passed from cascade to cascade, and whether the U-Net knows the cascade, the noise
        level and the acceleration (:class:`upmri.networks.unrolled.Unrolled`).
    own
        Weight of ‖D(y_Θ) − D(y_Ω)‖², relative to the error of SENSE, beside the loss on Λ: less noisy, and biased.
    """

    cascades: int = 10
    width: int = 32
    damping: float = 0.02
    split: LineSplit = field(default_factory=LineSplit)
    time: TimeLaw = field(default_factory=lambda: TimeLaw(location=-3.0, scale=1.2))
    path_every: int = 4
    sigma_jitter: float = 0.4
    supervised: bool = False
    backbone: str = UNROLLED
    levels: int = 3
    memory: int = 0
    conditioned: bool = False
    own: float = 0.0

    def __post_init__(self) -> None:
        in_range(self, cascades=(1, 64), width=(1, 256), levels=(1, 6), memory=(0, 64), own=(0, 100))
        in_range(self, damping=(1e-6, 100), sigma_jitter=(0, 10))
        at_least(self, 0, "path_every")
        if self.memory % 2:
            raise InputError(f"expected an even number of channels, got {self.memory}", field="memory")
        one_of(self, backbone=(UNROLLED, "varnet"))
        if self.backbone == "varnet":
            if self.path_every > 0:
                raise InputError("a VarNet has no path; set path_every to 0", field="backbone")
            for name in ("levels", "memory", "conditioned"):
                if getattr(self, name) != getattr(UpmriObjective, name):
                    raise InputError("has no effect on a VarNet; leave it out", field=name)

    def network(self) -> nn.Module:
        """Return the network with fresh weights."""
        if self.backbone == "varnet":
            return VarNet(cascades=self.cascades, width=self.width, damping=self.damping)
        return Unrolled(
            cascades=self.cascades, width=self.width, levels=self.levels, damping=self.damping,
            memory=self.memory, conditioned=self.conditioned,
        )  # fmt: skip

    def begin(self, network: nn.Module, other: nn.Module) -> None:
        """Give the network the weights of another one, which need not be conditioned."""
        if isinstance(network, Unrolled):
            network.begin_with(other)
        else:
            super().begin(network, other)

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
