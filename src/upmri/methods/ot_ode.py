"""OT-ODE (Pokle et al. 2024): a flow prior learnt from full images, followed back with guidance by the data."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.flow.objective import Identity, no_filter, projected_loss
from upmri.flow.path import Field, TimeLaw, evaluate, interpolate, noise
from upmri.methods.base import Lesson, Problem
from upmri.methods.learned import Learned
from upmri.networks.adm import SIZES
from upmri.networks.image import ImageNetwork
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch

# Validation looks at an image of so many steps, always from the same noise.
_GLANCE = 20
_START = 0.8
# Below this damping the factors lose their digits, in single precision.
_LEAST = 1e-5


@dataclass(frozen=True)
class FlowLesson(Lesson):
    """Flow matching: ‖v(x_t, t) − (x₁ − x₀)‖² → min over full images x₀, x_t = (1−t) x₀ + t x₁.

    Parameters
    ----------
    size
        Of the U-Net.
    time
        The law of t: logit-normal, about as wide as the uniform one, but nearer to where image and noise balance.
    """

    size: str = "small"
    time: TimeLaw = field(default_factory=lambda: TimeLaw(location=-1.0, scale=1.5))
    supervised = True

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"lesson.size: expected one of {', '.join(SIZES)}, got {self.size!r}")

    def network(self) -> nn.Module:
        """The plain U-Net."""
        return ImageNetwork(self.size)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The error of the velocity but for a constant, a pixel, (slice,)."""
        x0, x1, t = batch.truth, batch.noise(), batch.times(self.time)
        v = network(interpolate(x0, x1, t), t)
        return projected_loss(v, Identity(), x1 - x0, no_filter) / x0[0].numel()

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:
        """OT-ODE in a few steps."""
        adjoint = operator.adjoint(kspace)
        x1 = noise(adjoint, torch.Generator().manual_seed(0))
        return follow(network, operator, adjoint, sigma, x1, steps=_GLANCE, start=_START, strength=1.0)


@dataclass(frozen=True)
class OtOde(Learned):
    """One draw along the flow, guided by the data.

    Parameters
    ----------
    model
        A file of weights trained with ``method: ot-ode``.
    steps
        Evaluations of the network, and of its derivative.
    start
        The time to start from, with (1−t) A*y + t x₁.
    strength
        γ, of the guidance.
    """

    name = "ot-ode"
    summary = "a flow prior, guided along its ODE by the gradient of the data's likelihood (Pokle 2024)"
    needs = "full images"
    evaluations = 100
    lesson = FlowLesson

    steps: int = 100
    start: float = _START
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps: expected at least 1, got {self.steps}")
        if not 0 < self.start < 1:
            raise InputError(f"start: expected a time between 0 and 1, got {self.start}")
        if not self.strength >= 0:
            raise InputError(f"strength: expected γ ≥ 0, got {self.strength}")

    def reconstruct(self, problem: Problem) -> Tensor:
        """The guided ODE."""
        velocity, x1 = self.load(problem).network, noise(problem.adjoint, problem.generator)
        return follow(
            velocity, problem.operator, problem.adjoint, problem.sigma, x1,
            steps=self.steps, start=self.start, strength=self.strength,
        )  # fmt: skip


@torch.no_grad()
def follow(
    velocity: Field,
    operator: SenseOperator,
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

    Outside the support, where no coil sees anything, the flow goes on unguided, and the image is 0.

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
    velocity: Field, operator: SenseOperator, adjoint: Tensor, sigma: Tensor, x: Tensor, t: float
) -> tuple[Tensor, Tensor]:
    """v(x_t, t), and the gradient of log p(y | x_t) as if x₀ given x_t were N(x̂₀, r² I) in each channel.

        x̂₀ = x_t − t v,    r² = t²/(t² + (1−t)²),    q = (r² N + σ_y² I)⁻¹ (A*y − N x̂₀),    g = (∂x̂₀/∂x_t)ᵀ q,

    with σ_y = σ₀/√2 a channel. The derivative is that of the real channels, a vector-Jacobian product with v.
    """
    spread = t**2 / (t**2 + (1 - t) ** 2)
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        with_graph = evaluate(velocity, at, t)
    v = with_graph.detach()
    damping = (sigma.square() / (2 * spread)).clamp_min(_LEAST)
    q = operator.solve(adjoint - operator.normal(x - t * v), damping) / spread
    (pulled,) = torch.autograd.grad(with_graph, at, q)
    return v, q - t * pulled
