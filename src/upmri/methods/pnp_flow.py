"""PnP-Flow (Martin et al. 2025): the flow prior of ``ot-ode`` as a denoiser, between gradient steps on the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.checks import at_least
from upmri.flow.path import Field, evaluate_field, noise
from upmri.methods.learned import Learned
from upmri.methods.ot_ode import FlowObjective
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class PnpFlow(Learned):
    """Repeat: a gradient step on the data, fresh noise that puts the image on the path, and denoising; t decreases.

    Parameters
    ----------
    model
        Weights trained with ``method: ot-ode``, or ``Prior(network, FlowObjective(), "ot-ode")`` with any
        module or function v(z, t). That of a denoiser x̂₀(z, t) is (z − x̂₀)/t.
    steps
        Number of steps T.
    draws
        Number of noise draws per step; the image is their mean. The network is evaluated ``steps`` × ``draws`` times.
    alpha
        α of the step size t^α.
    """

    name = "pnp-flow"
    summary = "the flow prior of ot-ode as a plug-and-play denoiser (Martin 2025)"
    needs = "full images"
    evaluations = 100
    objective = FlowObjective
    weights_of = "ot-ode"

    steps: int = 100
    draws: int = 1
    alpha: float = 0.1

    def __post_init__(self) -> None:
        at_least(self, 1, "steps", "draws")
        at_least(self, 0, "alpha")

    def reconstruct(self, problem: Problem) -> Tensor:
        """From A*y to an image."""
        return plug_and_play(
            self.prior.network, problem.operator, problem.adjoint,
            steps=self.steps, draws=self.draws, alpha=self.alpha, generators=problem.generators,
        )  # fmt: skip


@torch.no_grad()
def plug_and_play(
    velocity: Field,
    operator: Operator,
    adjoint: Tensor,
    *,
    steps: int,
    draws: int,
    alpha: float,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """From x = A*y to an image, (slice, H, W), by T rounds at the times t = 1, 1 − 1/T, …, 1/T.

        z = x − t^α (N x − A*y),    x = mean of z_t − t v(z_t, t) over z_t = (1−t) z + t n,  n ~ CN(0, 2I).

    z_t − t v is the network's estimate of the image in z_t. It is set to 0 outside the support.

    Parameters
    ----------
    velocity
        v.
    operator, adjoint
        A and A*y, (slice, H, W).
    steps, draws, alpha
        T, the number of draws n, and α.
    generators
        One random generator per slice, for n.
    """
    x = adjoint
    for i in range(steps, 0, -1):
        t = i / steps
        z = x - t**alpha * (operator.normal(x) - adjoint)
        noisy = (1 - t) * z + t * noise(z.expand(draws, *z.shape), generators)
        x = operator.support * (noisy - t * evaluate_field(velocity, noisy, t)).mean(0)
    return x
