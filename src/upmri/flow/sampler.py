"""Reconstruction with a velocity network: the paper's cyclic integration, and a single evaluation.

The network depends on the measurements only, v(z, t) = E[x₁ − x₀ | A*y_t] at z = A*y_t,
y_t = (1−t) y₀ + t A x₁, y₀ = A x₀ + e, e ~ CN(0, σ₀² I). Algorithm 1 has three parts: it integrates the measurements
forwards, from y₀ to noise y₁; it computes x₁ = A⁺y₁ + η (I − P) ζ, with P = N⁺N and N = A*A; and it integrates the
image backwards, with measurements on the line from y₁ to y₀. It needs A*y only, so that all is computed with images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.flow.objective import KrylovFilter
from upmri.flow.path import Field, evaluate_field, noise
from upmri.physics.operator import Operator
from upmri.physics.solve import per_slice


def measurement_field(
    v: Tensor, operator: Operator, z: Tensor, t: float, sigma: Tensor, iterations: int = 30
) -> Tensor:
    """A* u_t, u_t = E[A x₁ − y₀ | y_t]: the field that carries the measurements to noise (Proposition 3).

    It is A*A v less the expected noise, A* E[e | y_t], which v does not contain,

        A* u_t = N v − B_t [N v + z / (1−t)],    B_t = (I + κ_t N)⁻¹ = λ_t (N + λ_t I)⁻¹,

    with λ_t = 1/κ_t = (1−t)² σ₀² / 2t: no term grows as t → 0 or σ₀ → 0. At t = 0, B = I and A* u₀ = −z, whatever v is.

    Parameters
    ----------
    v
        Velocity v(z, t), (…, slice, H, W).
    operator
        Operator A.
    z
        Point A*y_t, (…, slice, H, W).
    t
        Time, 0 ≤ t < 1.
    sigma
        Noise level σ₀, (slice,).
    iterations
        Number of conjugate gradient iterations for B_t. The direct solver would factor N for each λ_t, and from t = 0.9
        on λ_t is too small for a factorisation in single precision. B_t is a small part of the field, so that few
        iterations suffice.
    """
    if t == 0:
        return -z
    damping = (1 - t) ** 2 * sigma.square() / (2 * t)
    image = operator.normal(v)
    missing = operator.solve(image + z / (1 - t), damping, "cg", tolerance=0.0, iterations=iterations)
    return image - per_slice(damping, z) * missing


@dataclass(frozen=True)
class Cyclic:
    """Algorithm 1: forwards to y₁ in measurement space, backwards to x₀ in image space, T Euler steps each.

    y_t does not depend on (I − P) x₁, so no network with the input z(t) can remove the noise that the paper adds there:
    for the same y₀, the image with this noise is the image without it plus (I − P) ζ, ζ ~ CN(0, 2I). With η = 0, the
    default, there are no random numbers: the image is a function of y₀ and not a sample of the posterior.

    Parameters
    ----------
    steps
        Number of steps T. The network is evaluated 2T − 1 times, as the field at t = 0 does not depend on it.
    iterations
        Number k of conjugate gradient iterations for N⁺ and B_t.
    null_noise
        Whether to add the noise, η = 1, as in the paper.
    image_input
        Whether v is evaluated at x(t) instead of z(t) in the backward pass. The noise is then part of the input, and
        a network that treats x(t) as the A*y_t of a fully sampled scan can remove it.
    """

    steps: int = 10
    iterations: int = 30
    null_noise: bool = False
    image_input: bool = False

    @torch.no_grad()
    def __call__(
        self,
        velocity: Field,
        operator: Operator,
        adjoint: Tensor,
        sigma: Tensor,
        generators: torch.Generator | Sequence[torch.Generator],
    ) -> Tensor:
        """Image x̂, (…, slice, H, W).

        The backward pass is, with z(t) = (1−t) A*y₀ + t z₁, for t = 1, …, 1/T and t⁻ = t − 1/T:

            x ← x − v(z(t), t) / T,    x ← x − N⁺ (N x − z(t⁻)).

        The projection is onto y(t⁻), the time after the step. The paper's listing has y(t), which would give
        A x̂ = y₀ + (y₁ − y₀)/T at the end.

        Parameters
        ----------
        velocity
            Velocity network v.
        operator
            Operator A.
        adjoint
            Data A*y₀, (…, slice, H, W); leading axes, as in ``adjoint.expand(draws, -1, -1, -1)``, are different draws.
        sigma
            Noise level σ₀, (slice,).
        generators
            Random generators for ζ: one per slice, or one for all.
        """
        z1 = self.forward(velocity, operator, adjoint, sigma)
        pseudo_inverse = KrylovFilter(self.iterations)
        x = pseudo_inverse(operator, z1)
        if self.null_noise:
            zeta = operator.support * noise(adjoint, generators)
            x = x + zeta - pseudo_inverse(operator, operator.normal(zeta))
        for i in range(self.steps, 0, -1):
            t, earlier = i / self.steps, (i - 1) / self.steps
            point = x if self.image_input else torch.lerp(adjoint, z1, t)
            x = x - _velocity(velocity, operator, point, t) / self.steps
            x = _consistent(x, operator, torch.lerp(adjoint, z1, earlier), self.iterations)
        return x

    @torch.no_grad()
    def forward(self, velocity: Field, operator: Operator, adjoint: Tensor, sigma: Tensor) -> Tensor:
        """z₁ = A*y₁: from z = A*y₀ by z ← z + A* u_t / T, t = 0, …, 1 − 1/T."""
        z = adjoint
        for i in range(self.steps):
            t = i / self.steps
            v = _velocity(velocity, operator, z, t) if i else z  # at t = 0 the field does not depend on v
            z = z + measurement_field(v, operator, z, t, sigma, self.iterations) / self.steps
        return z


@torch.no_grad()
def single_evaluation(velocity: Field, operator: Operator, adjoint: Tensor, iterations: int = 30) -> Tensor:
    """x̂ = −v(A*y₀, 0), then x̂ ← x̂ − N⁺ (N x̂ − A*y₀): the posterior mean in one evaluation.

    At t = 0 the input does not contain x₁, and −v = E[x₀ | y₀] is the posterior mean. Data consistency keeps its part
    in the null space of A and replaces the other part by A⁺y₀, with its noise.

    Parameters
    ----------
    velocity, operator
        Velocity network v and operator A.
    adjoint
        Data A*y₀, (…, slice, H, W).
    iterations
        Number of conjugate gradient iterations for N⁺; 0 for no data consistency.
    """
    return _consistent(-_velocity(velocity, operator, adjoint, 0.0), operator, adjoint, iterations)


def _velocity(velocity: Field, operator: Operator, z: Tensor, t: float) -> Tensor:
    """v(z, t) for any leading axes, inside the support: outside it A is 0, and the network was not trained."""
    return operator.support * evaluate_field(velocity, z, t)


def _consistent(x: Tensor, operator: Operator, z: Tensor, iterations: int) -> Tensor:
    """The image nearest to x with A*A x = z: x − N⁺ (N x − z)."""
    return x - KrylovFilter(iterations)(operator, operator.normal(x) - z)
