"""From measurements to an image with a velocity network: the paper's cyclic integration, and one evaluation.

The network depends on the measurements only, v(z, t) = E[x₁ − x₀ | A*y_t] at z = A*y_t,
y_t = (1−t) y₀ + t A x₁, y₀ = A x₀ + e, e ~ CN(0, σ₀² I). Algorithm 1 integrates in two spaces: in the
measurements forwards, from y₀ to the noise y₁ that belongs to it; by x₁ = A⁺y₁ + η (I − P) ζ into image space, P = N⁺N,
N = A*A; and there backwards, on the line from y₁ to y₀. Only A*y is ever needed, so all of it is done on images.
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

    It is A*A v less the noise that v leaves out, A* E[e | y_t],

        A* u_t = N v − B_t [N v + z / (1−t)],    B_t = (I + κ_t N)⁻¹ = λ_t (N + λ_t I)⁻¹,

    with λ_t = 1/κ_t = (1−t)² σ₀² / 2t: no term grows as t → 0 or σ₀ → 0. At t = 0, B = I and A* u₀ = −z, whatever v is.

    Parameters
    ----------
    v
        v(z, t), (…, slice, H, W).
    operator
        A.
    z
        A*y_t, (…, slice, H, W).
    t
        Time, 0 ≤ t < 1.
    sigma
        σ₀, (slice,).
    iterations
        Of conjugate gradients, for B_t. Not the direct solver: each λ_t is met once, and by t = 0.9 it is below what
        single precision can factor. Stopped early, B_t only falls short of what it is, a small part of the field.
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

    y_t does not depend on (I − P) x₁, so no network with the input z(t) can remove the noise that the paper puts there:
    for the same y₀ the image with it is the image without it plus (I − P) ζ, ζ ~ CN(0, 2I). Without it, η = 0, the
    default, nothing is drawn at all: the image is a function of y₀, and not a sample of a posterior.

    Parameters
    ----------
    steps
        T. The network is evaluated 2T − 1 times: at t = 0 the field does not depend on it.
    iterations
        k of conjugate gradients, for N⁺ and B_t.
    null_noise
        η = 1, as in the paper.
    image_fed
        Evaluate v at x(t) in the backward pass, instead of z(t). The noise is then part of the input and can be
        removed, by a network that treats x(t) as the A*y_t of a fully sampled scan.
    """

    steps: int = 10
    iterations: int = 30
    null_noise: bool = False
    image_fed: bool = False

    @torch.no_grad()
    def __call__(
        self,
        velocity: Field,
        operator: Operator,
        adjoint: Tensor,
        sigma: Tensor,
        generators: torch.Generator | Sequence[torch.Generator],
    ) -> Tensor:
        """x̂, (…, slice, H, W).

        With z(t) = (1−t) A*y₀ + t z₁, for t = 1, …, 1/T and t⁻ = t − 1/T:

            x ← x − v(z(t), t) / T,    x ← x − N⁺ (N x − z(t⁻)).

        The second is onto y(t⁻), where the step has led. The paper's listing has y(t), which would end at
        A x̂ = y₀ + (y₁ − y₀)/T.

        Parameters
        ----------
        velocity
            v, called with all leading axes in the slices'.
        operator
            A.
        adjoint
            A*y₀, (…, slice, H, W); leading axes, as ``adjoint.expand(draws, -1, -1, -1)``, are draws of their own.
        sigma
            σ₀, (slice,).
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
            seen = x if self.image_fed else torch.lerp(adjoint, z1, t)
            x = x - _velocity(velocity, operator, seen, t) / self.steps
            x = _consistent(x, operator, torch.lerp(adjoint, z1, earlier), self.iterations)
        return x

    @torch.no_grad()
    def forward(self, velocity: Field, operator: Operator, adjoint: Tensor, sigma: Tensor) -> Tensor:
        """z₁ = A*y₁: from z = A*y₀ by z ← z + A* u_t / T, t = 0, …, 1 − 1/T."""
        z = adjoint
        for i in range(self.steps):
            t = i / self.steps
            v = _velocity(velocity, operator, z, t) if i else z  # at t = 0 any will do
            z = z + measurement_field(v, operator, z, t, sigma, self.iterations) / self.steps
        return z


@torch.no_grad()
def single_evaluation(velocity: Field, operator: Operator, adjoint: Tensor, iterations: int = 30) -> Tensor:
    """x̂ = −v(A*y₀, 0), then x̂ ← x̂ − N⁺ (N x̂ − A*y₀): the posterior mean in one evaluation.

    At t = 0 the input holds no x₁, and −v = E[x₀ | y₀] is the mean of the whole posterior. Data consistency keeps its
    part in the null space of A and puts A⁺y₀, with its noise, in place of the rest.

    Parameters
    ----------
    velocity, operator
        v and A.
    adjoint
        A*y₀, (…, slice, H, W).
    iterations
        Of conjugate gradients, for N⁺; 0 leaves data consistency out.
    """
    return _consistent(-_velocity(velocity, operator, adjoint, 0.0), operator, adjoint, iterations)


def _velocity(velocity: Field, operator: Operator, z: Tensor, t: float) -> Tensor:
    """v(z, t) for any leading axes, inside the support: outside it A is 0, and the network was not trained."""
    return operator.support * evaluate_field(velocity, z, t)


def _consistent(x: Tensor, operator: Operator, z: Tensor, iterations: int) -> Tensor:
    """The image nearest to x with A*A x = z: x − N⁺ (N x − z)."""
    return x - KrylovFilter(iterations)(operator, operator.normal(x) - z)
