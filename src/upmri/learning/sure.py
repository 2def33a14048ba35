"""Stein's unbiased estimate of the error on the samples, from noisy samples alone (SURE).

For y = A x₀ + e, e ~ CN(0, σ₀²) on the sampled entries (E|e|² = σ₀²), an image x̂ = f(A*y) and weights w of samples,

    E‖√w A (x̂ − x₀)‖² = E[‖√w (A x̂ − y)‖² − σ₀² Σ w + 2 σ₀² tr(w ∂(A x̂)/∂y)],

with sums over the samples of all coils. The trace is the mean of Re⟨√w b, J √w b⟩ over b ~ CN(0, I), where J is the
derivative of A x̂ in y. Since f depends on A*y only, this can be computed with images and the derivative J_f of f:

    Re⟨√w b, J √w b⟩ = Re⟨q, J_f q⟩,    q = A* √w b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.learning.divergence import divergence
from upmri.learning.partition import misfit
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem

OperatorNetwork = Callable[[Operator, Tensor], Tensor]
"""A network f: A and A*y ↦ image (slice, H, W)."""

# Step of the difference quotient, relative to A*y. For a trained VarNet and MoDL (96×96, σ₀ = 0.01) the error of the
# value was 0.1 %, in single precision and in bfloat16. It is 3 % with ten times the step. With a tenth of the step it
# is 1 % in bfloat16, and the gradient is noisier, because every ReLU that changes its state contributes 1/step.
_STEP = 1e-2


@dataclass(frozen=True)
class Part:
    """A set of samples, bool mask (slice, 1 or H, W), and the weight w of each of them, (slice,)."""

    mask: Tensor
    weight: Tensor


def sure(
    network: OperatorNetwork, problem: Problem, unit: Tensor, parts: Sequence[Part] | None = None
) -> tuple[Tensor, Tensor]:
    """Return the estimate of ‖√w A (x̂ − x₀)‖², (slice,), and the image x̂, (slice, H, W).

    The estimate can be negative. The network is evaluated twice, and gradients flow through both evaluations.

    Parameters
    ----------
    network
        Network f. Dropout, if any, must use the same random numbers at each call.
    problem
        Problem with A, y and σ₀.
    unit
        Random numbers b ~ CN(0, I), (slice, coil, H, W); entries that are not sampled are ignored.
    parts
        Weights w of disjoint sets of samples; by default all samples have the weight 1.
    """
    operator, kspace, sigma = problem.operator, problem.kspace, problem.sigma
    parts = [Part(problem.lines.to(problem.device), torch.ones_like(sigma))] if parts is None else parts
    roots = torch.stack([part.mask * part.weight.sqrt()[:, None, None] for part in parts]).sum(0)
    image = network(operator, problem.adjoint)
    probe = operator.H(roots[:, None] * unit)
    trace = divergence(lambda at: network(operator, at), problem.adjoint, probe, known=image, step=_STEP)
    error = 2 * sigma.square() * trace
    for part in parts:
        count = part.mask.to(sigma.dtype).mean((1, 2)) * kspace[0].numel()
        expected = sigma.square() * count
        error = error + part.weight * (misfit(image, problem.restrict(part.mask)) - expected)
    return error, image
