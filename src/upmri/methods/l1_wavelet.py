"""Compressed sensing with wavelets: least squares with a sparse wavelet transform, by FISTA."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from upmri.errors import InputError
from upmri.methods.base import Method, Problem
from upmri.physics.sense import SenseOperator
from upmri.physics.wavelet import Wavelet

# Four shifts in a row see every parity once: without that, the finest scale swings with the luck of the draw.
_PARITIES = (0, 0), (1, 1), (0, 1), (1, 0)


def default_damping(sigma: Tensor) -> Tensor:
    """λ from the noise on the problem's scale, (slice,)."""
    return 0.15 * sigma


def fista(
    operator: SenseOperator,
    adjoint: Tensor,
    damping: float | Tensor,
    wavelet: Wavelet,
    steps: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Minimise ½‖Ax − y‖² + λ‖D Ψ x‖₁ by accelerated proximal gradient steps of length 1 ≥ 1/‖N‖, from A*y.

    D leaves out the coarsest approximation, which is not sparse. One step, with t₁ = 1 and z₁ = x₀ = A*y::

        x_k = Ψ* soft(Ψ (z_k − N z_k + A*y), λ),   t_{k+1} = (1 + √(1 + 4 t_k²))/2
        z_{k+1} = x_k + (t_k − 1)/t_{k+1} (x_k − x_{k−1})

    soft(c, λ) = c max(0, 1 − λ/|c|). Where H or W is no multiple of 2^levels, x lives on the least larger grid that is; A
    sees its corner H×W, so Ψ stays orthonormal and each step exact.

    Parameters
    ----------
    operator, adjoint
        A, and A*y of shape (slice, H, W).
    damping
        λ, a number or (slice,).
    wavelet, steps
        Ψ, and how many steps.
    generator
        For cycle spinning: every step shifts the wavelet's grid by a random number of pixels. None does not shift.

    Returns
    -------
    Tensor
        The last x (slice, H, W), 0 where no coil sees anything.
    """
    h, w = adjoint.shape[-2:]
    height, width = wavelet.padded(h, w)
    margin = (0, width - w, 0, height - h)
    threshold = damping.reshape(-1, 1, 1) if isinstance(damping, Tensor) else damping
    x = z = pad(adjoint, margin)
    t = 1.0
    for k in range(steps):
        corner = z[..., :h, :w]
        descended = z + pad(adjoint - operator.normal(corner), margin)
        shift = _shift(k, wavelet, generator)
        coefficients = wavelet.forward(descended.roll(shift, (-2, -1)))
        approximation = wavelet.approximation(coefficients).clone()
        coefficients = soft(coefficients, threshold)
        wavelet.approximation(coefficients).copy_(approximation)
        last, x = x, wavelet.adjoint(coefficients).roll((-shift[0], -shift[1]), (-2, -1))
        last_t, t = t, (1 + (1 + 4 * t**2) ** 0.5) / 2
        z = x + (last_t - 1) / t * (x - last)
    return x[..., :h, :w] * operator.support


def soft(values: Tensor, threshold: float | Tensor) -> Tensor:
    """Shrink complex values towards 0 by λ: c max(0, 1 − λ/|c|)."""
    size = values.abs()
    return values * torch.where(size > threshold, 1 - threshold / size, 0)


def _shift(step: int, wavelet: Wavelet, generator: torch.Generator | None) -> tuple[int, int]:
    if generator is None:
        return 0, 0
    even = 2 * torch.randint(2 ** (wavelet.levels - 1), (2,), generator=generator)
    rows, columns = (even + torch.tensor(_PARITIES[step % 4])).tolist()
    return rows, columns


@dataclass(frozen=True)
class L1Wavelet(Method):
    """x = argmin ½‖Ax − y‖² + λ‖D Ψ x‖₁, by :func:`fista` with cycle spinning.

    Parameters
    ----------
    damping
        λ on the scale where the image's peak is about 1; from σ₀ when not given.
    steps
        Number of FISTA steps.
    wavelet, levels
        Ψ: "haar", "db2" or "db4", and how often it halves the image.
    """

    name = "l1-wavelet"
    summary = "compressed sensing: sparse wavelet coefficients, FISTA with cycle spinning (Lustig 2007)"

    damping: float | None = None
    steps: int = 100
    wavelet: str = "db4"
    levels: int = 4

    def __post_init__(self) -> None:
        if self.damping is not None and not self.damping >= 0:
            raise InputError(f"damping: expected λ ≥ 0, got {self.damping}")
        if self.steps < 1:
            raise InputError(f"steps: expected at least 1, got {self.steps}")
        Wavelet(self.wavelet, self.levels)  # refuses what it does not know

    def reconstruct(self, problem: Problem) -> Tensor:
        """Return the last iterate."""
        damping = default_damping(problem.sigma) if self.damping is None else self.damping
        wavelet = Wavelet(self.wavelet, self.levels)
        return fista(problem.operator, problem.adjoint, damping, wavelet, self.steps, problem.generator)
