"""PnP-Flow (Martin et al. 2025): the flow prior of ``ot-ode`` as a denoiser, between gradient steps on the data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.flow.path import Field, evaluate, noise
from upmri.methods.base import Problem
from upmri.methods.learned import Learned
from upmri.methods.ot_ode import FlowLesson
from upmri.physics.sense import SenseOperator


@dataclass(frozen=True)
class PnpFlow(Learned):
    """A step to the data, back onto the path with fresh noise, and down to an image again; with less noise each time.

    Parameters
    ----------
    model
        A file of weights trained with ``method: ot-ode``.
    steps
        How many times.
    draws
        Noise drawn each time; the image is the mean over it. The network is evaluated ``steps`` × ``draws`` times.
    alpha
        α of the step's length t^α.
    """

    name = "pnp-flow"
    summary = "the flow prior of ot-ode as a plug-and-play denoiser (Martin 2025)"
    needs = "full images"
    evaluations = 100
    lesson = FlowLesson
    weights_of = "ot-ode"

    steps: int = 100
    draws: int = 1
    alpha: float = 0.1

    def __post_init__(self) -> None:
        for name in ("steps", "draws"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if not self.alpha >= 0:
            raise InputError(f"alpha: expected α ≥ 0, got {self.alpha}")

    def reconstruct(self, problem: Problem) -> Tensor:
        """From A*y to an image."""
        return plug_and_play(
            self.load(problem).network, problem.operator, problem.adjoint,
            steps=self.steps, draws=self.draws, alpha=self.alpha, generator=problem.generator,
        )  # fmt: skip


@torch.no_grad()
def plug_and_play(
    velocity: Field,
    operator: SenseOperator,
    adjoint: Tensor,
    *,
    steps: int,
    draws: int,
    alpha: float,
    generator: torch.Generator,
) -> Tensor:
    """From x = A*y to an image, (slice, H, W), by T rounds at the times t = 1, 1 − 1/T, …, 1/T.

        z = x − t^α (N x − A*y),    x = mean of z_t − t v(z_t, t) over z_t = (1−t) z + t n,  n ~ CN(0, 2I).

    z − t v is what the network takes for the image in z_t. It is 0 outside the support, as the truth is.

    Parameters
    ----------
    velocity
        v.
    operator, adjoint
        A and A*y, (slice, H, W).
    steps, draws, alpha
        T, how many n, and α.
    generator
        Of n.
    """
    x = adjoint
    for i in range(steps, 0, -1):
        t = i / steps
        z = x - t**alpha * (operator.normal(x) - adjoint)
        noisy = (1 - t) * z + t * noise(z.expand(draws, *z.shape), generator)
        x = operator.support * (noisy - t * evaluate(velocity, noisy, t)).mean(0)
    return x
