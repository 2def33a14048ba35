"""PnP-Flow (Martin et al. 2025): the flow prior of ``ot-ode`` as a denoiser, between gradient steps on the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from upmri.core.checks import at_least, fraction, one_of, whole
from upmri.core.errors import InputError
from upmri.flow.path import Field, evaluate_field, noise
from upmri.methods.drawing import Drawing, for_draws
from upmri.methods.ot_ode import FlowObjective
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class PnpFlow(Drawing):
    """Repeat: a gradient step on the data, fresh noise that puts the image on the path, and denoising; t decreases.

    Parameters
    ----------
    model
        Weights trained with ``method: ot-ode``, or ``Prior(network, FlowObjective(), "ot-ode")`` with any
        module or function v(z, t). That of a denoiser x̂₀(z, t) is (z − x̂₀)/t.
    samples
        Number of images from different noise, of which the mean is returned.
    steps
        Number of steps T.
    draws
        Number of noise draws per step; the image is their mean. The network is evaluated ``steps`` × ``draws`` times.
    alpha
        α of the step size t^α.
    times
        Times t: ``even``, 1, 1 − 1/T, …, 1/T, as published; or ``geometric``, from ``first`` to ``last``. Images that
        peak at 1 and noise of variance 2 have equal energy near t = 0.15: some 85 in 100 of even times are spent on
        noise.
    first, last
        First and last of the geometric times, chosen on validation people (``docs/methods.md``).
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
    times: Literal["geometric", "even"] = "geometric"
    first: float = 0.25
    last: float = 0.00125

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, 1, "steps", "draws")
        at_least(self, 0, "alpha")
        fraction(self, "last")
        one_of(self, times=("geometric", "even"))
        if not self.last < self.first <= 1:
            raise InputError(f"expected a time above {self.last:g} and up to 1, got {self.first!r}", field="first")

    def draw(self, problem: Problem, count: int) -> Tensor:
        """From A*y to images."""
        even = self.times == "even"
        times = even_times(self.steps) if even else geometric_times(self.first, self.last, self.steps)
        return plug_and_play(
            self.prior.network, problem.operator, for_draws(problem.adjoint, count), times,
            draws=self.draws, alpha=self.alpha, generators=problem.generators,
        )  # fmt: skip


def even_times(steps: int) -> list[float]:
    """1, 1 − 1/T, …, 1/T."""
    return [i / steps for i in range(steps, 0, -1)]


def geometric_times(first: float, last: float, steps: int) -> list[float]:
    """T times from the first to the last, each the same multiple of the one before it; the last alone for T = 1."""
    if steps == 1:
        return [last]
    return [first * (last / first) ** (i / (steps - 1)) for i in range(steps)]


@torch.no_grad()
def plug_and_play(
    velocity: Field,
    operator: Operator,
    adjoint: Tensor,
    times: Sequence[float],
    *,
    draws: int,
    alpha: float,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """From x = A*y to images, (…, slice, H, W), by one round at each of the times t, which decrease.

        z = x − t^α (N x − A*y),    x = mean of z_t − t v(z_t, t) over z_t = (1−t) z + t n,  n ~ CN(0, 2I).

    z_t − t v is the network's estimate of the image in z_t. It is set to 0 outside the support.

    Parameters
    ----------
    velocity
        v.
    operator, adjoint
        A and A*y, (…, slice, H, W); leading axes are different images.
    times
        Times t.
    draws, alpha
        Number of draws n, and α.
    generators
        One random generator per slice, for n.
    """
    x = adjoint
    for t in times:
        z = x - t**alpha * (operator.normal(x) - adjoint)
        noisy = (1 - t) * z + t * noise(z.expand(draws, *z.shape), generators)
        x = operator.support * (noisy - t * evaluate_field(velocity, noisy, t)).mean(0)
    return x
