"""Coil maps from all sampled lines, given a first image: joint least squares with the error of the image eliminated.

ESPIRiT sees the calibration lines alone, and finds neither the outline of the object nor, from a few lines, exact maps.
A first image x̂ shows the outline, and with it every sample depends on the maps. They are sums of waves of a field L
times as large as the image, so that they are smooth and need not be periodic,

    S_c(r) = (Φ q_c)(r) = Σ_k q_kc exp(2πi k·r / (L N)),    |k₁|, |k₂| ≤ K.

x̂ has an unknown error δ, which the maps so far, S⁰ with A = M F S⁰, turn into data A δ. With B q = M F (x̂ Φ q) find

    min_q min_δ ‖B q + A δ − y‖² + λ‖δ‖² + μ‖x̂ (Φ q − S⁰)‖² + ρ‖x̂‖² Σ_k (1 + |k/2L|²)⁴ |q_k|².

The minimum over δ of the first two terms is (B q − y)* P (B q − y), P = I − A (N + λI)⁻¹ A*: P leaves out what another
image would explain, so that errors of x̂ do not become errors of the maps, as they do in plain least squares (P = I).
"""

from __future__ import annotations

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.stages import stage
from upmri.physics.fourier import ifft2c
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import object_support
from upmri.physics.solve import conjugate_gradients
from upmri.physics.tensors import unit_maps
from upmri.physics.waves import Waves

# Chosen on simulated scans of validation people (three groups of brains, hearts; 4× and 8×).
_ORDER, _FIELD = 5, 1.5  # K and L
_SMOOTH, _STAY = 3e-4, 0.03  # ρ and μ
_IMAGE, _LEAST = 3.0, 1e-4  # λ over σ₀², as images peak near 1, and the smallest λ
_ITERATIONS, _TOLERANCE, _INNER = 20, 1e-4, 1e-3
# Energy over σ₀² that a removed pixel may have: noise alone has less than 1. A tenth of an object has 4 to 90.
_EMPTY, _ROUNDING = 1.5, 1e-6
# Least energy of an image, so that the equations of an empty slice have a solution.
_NOTHING = 1e-6
# Share of the peak above which a pixel of the first image may belong to the object.
_DARK = 0.03


def refine_maps(problem: Problem, image: Tensor) -> Problem:
    """Return the problem with refined coil maps, which are 0 outside the object that the image shows; its scale stays.

    Two comparisons of min_x ‖A x − y‖² + λ‖x‖² decide for each slice. Refined maps are taken only if they explain the
    samples better than the old ones, both inside the outline of the object. Pixels outside the outline are removed
    only if the samples are explained without them but for noise.

    Parameters
    ----------
    problem
        Problem with a :class:`~upmri.physics.sense.SenseOperator`.
    image
        First image x̂, (slice, H, W), reconstructed from the problem, on its scale.
    """
    operator = problem.operator
    if not isinstance(operator, SenseOperator):
        raise InputError(f"expected an operator with coil maps, got {type(operator).__name__}", field="refine_maps")
    with stage("coil maps"):
        seen, inside = operator.support, outline(image)
        before = SenseOperator(operator.maps * inside[:, None], operator.mask)
        damping = (_IMAGE * problem.sigma.square()).clamp_min(_LEAST)
        smooth = unit_maps(fit_maps(problem.kspace, image * inside, before, damping))
        old = _explained(before, problem.kspace, damping)
        del before  # its factors are as large as those of the others
        new, wide = (
            _explained(SenseOperator(smooth * where[:, None], operator.mask), problem.kspace, damping)
            for where in (seen & inside, seen)
        )
        better = (new > old)[:, None, None, None]
        noise = _EMPTY * problem.sigma.square() * (seen & ~inside).sum((1, 2)) + _ROUNDING * wide
        empty = (wide - new <= noise)[:, None, None]
        where = inside | (seen & ~empty)
        chosen = torch.where(better, smooth, operator.maps) * where[:, None]
    return problem.derived(SenseOperator(chosen, operator.mask), problem.kspace, reference=problem.reference)


def outline(image: Tensor) -> Tensor:
    """Pixels of the object in an image, with its dark parts and a margin, bool (slice, H, W); all if it shows none."""
    magnitude = image.abs()
    peak = magnitude.flatten(1).topk(max(1, magnitude[0].numel() // 1000)).values[:, -1]
    found = object_support(magnitude / peak.clamp_min(torch.finfo(peak.dtype).tiny)[:, None, None], dark=_DARK)
    return found | ~found.any(2, keepdim=True).any(1, keepdim=True)


def fit_maps(
    kspace: Tensor,
    image: Tensor,
    before: SenseOperator,
    damping: Tensor,
    *,
    order: int = _ORDER,
    field: float = _FIELD,
    smooth: float = _SMOOTH,
    stay: float = _STAY,
    iterations: int = _ITERATIONS,
    tolerance: float = _TOLERANCE,
) -> Tensor:
    """Smooth maps Φ q (slice, coil, H, W) of the minimal q; not normalised.

    Parameters
    ----------
    kspace
        Data y, (slice, coil, H, W); unsampled entries are ignored.
    image
        First image x̂, (slice, H, W).
    before
        Operator A of the maps so far.
    damping
        λ, (slice,).
    order, field, smooth, stay
        K, L, ρ and μ.
    iterations, tolerance
        Most conjugate gradient iterations, and the relative residual at which they end.
    """
    waves = Waves.over(before.shape[1:], order, field, image)
    weight, old = image.abs().square(), before.maps
    penalty = smooth * weight.sum((1, 2)).clamp_min(_NOTHING)[:, None] * waves.penalty
    gram = waves.gram(weight)
    # Samples hold nearly all of the energy, so the Gram matrix of full k-space is near that of the samples.
    factor = torch.linalg.cholesky(gram + torch.diag_embed(penalty).to(gram.dtype))

    def project(coils: Tensor) -> Tensor:
        """Φ* x̂* P of data as coil images F* M y, with P in the same form."""
        other = before.solve(torch.linalg.vecdot(old, coils, dim=1), damping, tolerance=_INNER)
        return waves.adjoint(image.conj()[:, None] * (coils - _sampled(before, old * other[:, None])))

    def normal(q: Tensor) -> Tensor:
        seen = project(_sampled(before, image[:, None] * waves.maps(q)))
        return seen + stay * (gram @ q) + penalty[..., None] * q

    toward = waves.adjoint(weight[:, None] * old)
    measured = ifft2c(before.mask[:, None] * kspace)
    start = torch.cholesky_solve(toward, factor)
    q = conjugate_gradients(
        normal, project(measured) + stay * toward, 0.0, iterations=iterations, tolerance=tolerance,
        precondition=lambda r: torch.cholesky_solve(r, factor), start=start,
    )  # fmt: skip
    return waves.maps(q)


def _sampled(operator: SenseOperator, coils: Tensor) -> Tensor:
    """F* M F of coil images; the readout's transforms cancel for masks of lines."""
    mask = torch.fft.ifftshift(operator.mask, (-2, -1))[:, None]
    if mask.shape[-2] == 1:
        return torch.fft.ifft(torch.fft.fft(coils).mul_(mask))
    return torch.fft.ifft2(torch.fft.fft2(coils).mul_(mask))


def _explained(operator: SenseOperator, kspace: Tensor, damping: Tensor) -> Tensor:
    """‖y‖² − min_x ‖A x − y‖² + λ‖x‖² = ⟨A*y, (N + λI)⁻¹ A*y⟩ of each slice, (slice,)."""
    combined = operator.H(kspace)
    return (combined.conj() * operator.solve(combined, damping)).real.sum((1, 2))
