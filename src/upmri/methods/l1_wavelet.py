"""Compressed sensing: least squares with few wavelet coefficients, by FISTA."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from upmri.core.checks import at_least, given, whole
from upmri.methods.base import Method
from upmri.physics.operator import Operator
from upmri.physics.partial_fourier import REGULARISED, constrain
from upmri.physics.problem import Problem
from upmri.physics.proximal import accelerated, soft
from upmri.physics.sense import sense_damping
from upmri.physics.solve import per_slice
from upmri.physics.wavelet import Wavelet

# Any four consecutive shifts have each parity once; with random parities the image varies by half a dB.
_PARITIES = (0, 0), (1, 1), (0, 1), (1, 0)
_COARSE = 0.01  # largest damping of the approximation coefficients, which are well above the noise


def wavelet_damping(sigma: Tensor) -> Tensor:
    """λ = 1.2 σ^1.5 for noise σ on the problem's scale, (slice,).

    Near the best λ for brains and hearts, 4× and 8×, σ from 0.002 to 0.1; the floor covers noise-free simulations.
    """
    return (1.2 * sigma**1.5).clamp_min(5e-5)


def fista(
    operator: Operator,
    adjoint: Tensor,
    lam: float | Tensor,
    mu: float | Tensor,
    wavelet: Wavelet,
    steps: int,
    *,
    start: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Minimise ½‖Ax − y‖² + λ Σ_{j≤L} ‖c_j‖₁ + ½ Σ_j μ_j ‖c_j‖² by FISTA (Beck & Teboulle 2009).

    c = Ψx has details c_1 (finest) to c_L, which are sparse, and an approximation c_{L+1}, which is not. The coarser,
    the less sparse: μ_j = μ/3^(L+1−j). With τ = 1/max Σ|S_c|² ≤ 1/‖N‖, t₁ = 1 and z₁ = x₀::

        c = Ψ (z_k + τ (A*y − N z_k)),   x_k = Ψ* soft(c, τλ)/(1 + τμ)
        t_{k+1} = (1 + √(1 + 4 t_k²))/2,   z_{k+1} = x_k + (t_k − 1)/t_{k+1} (x_k − x_{k−1})

    Where H or W is no multiple of 2^levels, x is on the smallest larger grid whose sides are, and A sees its corner
    H×W: Ψ stays orthonormal, each step exact, and beyond the edge x continues as sparsely as possible.

    Parameters
    ----------
    operator, adjoint
        A, and A*y of shape (slice, H, W).
    lam, mu
        λ and μ, each a number or (slice,).
    wavelet, steps
        Ψ, and the number of steps.
    start
        x₀, (slice, H, W).
    generator
        Random generator for cycle spinning: each step shifts Ψ by random numbers of pixels. None for no shifts.

    Returns
    -------
    Tensor
        The last x (slice, H, W), 0 where no coil sees anything.
    """
    h, w = adjoint.shape[-2:]
    height, width = wavelet.padded(h, w)
    margin = (0, width - w, 0, height - h)
    norm = operator.norm_bound().to(adjoint.real)
    tau = torch.where(norm > 0, 1 / norm, 1)[:, None, None]
    coarser = wavelet.levels + 1 - wavelet.scales(height, width).to(adjoint.device)  # number of scales to c_{L+1}
    threshold = tau * per_slice(lam, adjoint) * (coarser > 0)
    shrinkage = 1 / (1 + tau * per_slice(mu, adjoint) / 3.0**coarser)
    shifts = (_shift(k, wavelet, generator) for k in range(steps))

    def step(z: Tensor) -> Tensor:
        rows, columns = next(shifts)
        z = z + pad(tau * (adjoint - operator.normal(z[..., :h, :w])), margin)
        c = soft(wavelet.forward(z.roll((rows, columns), (-2, -1))), threshold) * shrinkage
        return wavelet.adjoint(c).roll((-rows, -columns), (-2, -1))

    return accelerated(step, pad(start, margin), steps)[..., :h, :w] * operator.support


def _residual(problem: Problem, image: Tensor) -> Tensor:
    """Root mean square of Ax − y over the samples, (slice,)."""
    gap = (problem.operator(image) - problem.samples).abs().square().flatten(1)
    mask = problem.operator.mask
    share = 1.0 if mask is None else mask.float().mean((1, 2))
    return (gap.sum(1) / (gap.shape[1] * share)).sqrt()


def _shift(step: int, wavelet: Wavelet, generator: torch.Generator | None) -> tuple[int, int]:
    if generator is None:
        return 0, 0
    row, column = torch.randint(2 ** (wavelet.levels - 1), (2,), generator=generator).tolist()
    odd_row, odd_column = _PARITIES[step % len(_PARITIES)]
    return 2 * row + odd_row, 2 * column + odd_column


@dataclass(frozen=True)
class L1Wavelet(Method):
    """Least squares with few wavelet coefficients: :func:`fista` with cycle spinning, from the SENSE image.

    Shifting Ψ from step to step avoids block artefacts. The SENSE image has the details that FISTA would find last.
    λ and μ follow from σ, the larger of σ₀ and the misfit of the SENSE image: errors of the coil maps count as noise.
    Without μ they would grow with every step where N is small.

    Parameters
    ----------
    damping
        λ for images that peak near 1; from σ when not given.
    steps
        Number of FISTA steps.
    wavelet, levels
        Ψ: ``haar``, ``db2`` or ``db4``, and the number of times it halves the image.
    partial_fourier
        Whether to use the expected phase where one side of k-space was not acquired
        (:mod:`upmri.physics.partial_fourier`).
    """

    name = "l1-wavelet"
    summary = "compressed sensing with wavelets, by FISTA with cycle spinning (Lustig 2007)"

    damping: float | None = None
    steps: int = 100
    wavelet: str = "db4"
    levels: int = 4
    partial_fourier: bool = True

    def __post_init__(self) -> None:
        at_least(self, 0, *given(self, "damping"))
        whole(self, 1, "steps")
        Wavelet(self.wavelet, self.levels)  # checks both

    def reconstruct(self, problem: Problem) -> Tensor:
        """The last iterate."""
        known = constrain(problem, REGULARISED) if self.partial_fourier else problem
        operator, adjoint = known.operator, known.adjoint
        start = operator.solve(adjoint, sense_damping(problem.sigma), tolerance=1e-3)
        sigma = torch.maximum(problem.sigma, _residual(problem, start))
        lam = wavelet_damping(sigma) if self.damping is None else self.damping
        mu = sense_damping(sigma).clamp_max(_COARSE)
        wavelet = Wavelet(self.wavelet, self.levels)
        return fista(operator, adjoint, lam, mu, wavelet, self.steps, start=start, generator=problem.generators[0])
