"""OT-ODE (Pokle et al. 2024): a flow prior from full images, integrated with guidance by the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from upmri.core.checks import at_least, fraction, whole
from upmri.flow.objective import no_filter, projected_loss
from upmri.flow.path import Field, TimeLaw, evaluate_field, interpolate, noise
from upmri.learning.training_noise import path_noise
from upmri.methods.backbones import ImageBackbone
from upmri.methods.drawing import Drawing, for_draws
from upmri.methods.supervised import full_image
from upmri.physics.identity import IdentityOperator
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem

# Smallest damping: below it factors in single precision are not exact enough.
_LEAST = 1e-5


@dataclass(frozen=True)
class FlowObjective(ImageBackbone):
    """Flow matching: ‖v(x_t, t) − (x₁ − x₀)‖² → min over full images x₀, x_t = (1−t) x₀ + t x₁.

    Parameters
    ----------
    size
        Size of the U-Net.
    time
        Distribution of t: logit-normal, about as wide as the uniform one, but nearer to where image and noise have
        equal energy.
    """

    time: TimeLaw = field(default_factory=lambda: TimeLaw(location=-1.0, scale=1.5))
    supervised = True

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Error of the velocity per pixel, without a constant, (slice,)."""
        x0, x1 = full_image(problem), path_noise(problem)
        t = self.time.draw_each(problem.generators).to(problem.device)
        v = network(interpolate(x0, x1, t), t)
        return projected_loss(v, IdentityOperator(x0.shape), x1 - x0, no_filter) / x0[0].numel()


@dataclass(frozen=True)
class OtOde(Drawing):
    """Draws along the flow, guided by the data.

    Parameters
    ----------
    model, samples
        Weights trained with ``method: ot-ode``, and the number of draws, of which the image is the mean.
    steps
        Evaluations of the network, and of its derivative, for a draw.
    start
        First time, with (1−t) A*y + t x₁.
    strength
        γ, the weight of the guidance.
    """

    name = "ot-ode"
    summary = "a flow prior, guided along its ODE by the gradient of the data's likelihood (Pokle 2024)"
    needs = "full images"
    evaluations = 100
    objective = FlowObjective
    validation: ClassVar[dict[str, Any]] = {"steps": 20}

    steps: int = 100
    start: float = 0.8
    strength: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, 1, "steps")
        fraction(self, "start")
        at_least(self, 0, "strength")

    def draw(self, problem: Problem, count: int) -> Tensor:
        """The guided ODE, from different noise."""
        velocity, x1 = self.prior.network, noise(for_draws(problem.adjoint, count), problem.generators)
        return follow(
            velocity, problem.operator, problem.adjoint, problem.sigma, x1,
            steps=self.steps, start=self.start, strength=self.strength,
        )  # fmt: skip


@torch.no_grad()
def follow(
    velocity: Field,
    operator: Operator,
    adjoint: Tensor,
    sigma: Tensor,
    x1: Tensor,
    *,
    steps: int,
    start: float,
    strength: float,
) -> Tensor:
    """From (1−t) A*y + t x₁ at t = ``start`` to an image at t = 0, (…, slice, H, W), by Euler's steps of length δ.

        x ← x − δ (v − γ t/(1−t) g),    g = ∇_x log p(y | x_t) (:func:`guidance`).

    Outside the support there is no guidance, and the image is set to 0.

    Parameters
    ----------
    velocity
        v(x_t, t), differentiable.
    operator, adjoint, sigma
        A, A*y, (…, slice, H, W), and σ₀, (slice,).
    x1
        Noise, (…, slice, H, W).
    steps, start, strength
        Evaluations, the first time, γ.
    """
    x, length = (1 - start) * adjoint + start * x1, start / steps
    for i in range(steps, 0, -1):
        t = i * length
        v, gradient = guidance(velocity, operator, adjoint, sigma, x, t)
        x = x - length * (v - strength * t / (1 - t) * gradient)
    return operator.support * x


def guidance(
    velocity: Field, operator: Operator, adjoint: Tensor, sigma: Tensor, x: Tensor, t: float
) -> tuple[Tensor, Tensor]:
    """v(x_t, t), and the gradient of log p(y | x_t) as if x₀ given x_t were N(x̂₀, r² I) in each channel.

        x̂₀ = x_t − t v,    r² = t²/(t² + (1−t)²),    q = (r² N + σ_y² I)⁻¹ (A*y − N x̂₀),    g = (∂x̂₀/∂x_t)ᵀ q,

    with σ_y = σ₀/√2 a channel. The derivative is that of the real channels, a vector-Jacobian product with v.
    """
    spread = t**2 / (t**2 + (1 - t) ** 2)
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        with_graph = evaluate_field(velocity, at, t)
    v = with_graph.detach()
    damping = (sigma.square() / (2 * spread)).clamp_min(_LEAST)
    q = operator.solve(adjoint - operator.normal(x - t * v), damping) / spread
    (pulled,) = torch.autograd.grad(with_graph, at, q)
    return v, q - t * pulled
