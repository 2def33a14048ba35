"""Stein's unbiased estimate of the error on the samples, from noisy samples alone (SURE).

With y = A x₀ + e, e ~ CN(0, σ₀²) on the sampled entries (E|e|² = σ₀²), an image x̂ = f(A*y) and weights w of samples,

    E‖√w A (x̂ − x₀)‖² = E[‖√w (A x̂ − y)‖² − σ₀² Σ w + 2 σ₀² tr(w ∂(A x̂)/∂y)],

the sum being over samples of all coils. The trace is Re⟨√w b, J √w b⟩ in the mean over b ~ CN(0, I), J the derivative
of A x̂ in y. The data enter f as A*y, so that in terms of images, J_f the derivative of f,

    Re⟨√w b, J √w b⟩ = Re⟨q, J_f q⟩,    q = A* √w b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.learning.divergence import divergence
from upmri.learning.partition import misfit
from upmri.physics.sense import SenseOperator

Reconstructor = Callable[[SenseOperator, Tensor], Tensor]
"""A and A*y ↦ the image, (slice, H, W)."""

# The step of a difference quotient, as a share of the place. For a VarNet and a MoDL that had learnt (96×96, σ₀ = 0.01)
# it gave the value to 0.1 %, with CNNs in single precision as in bfloat16. Ten times as much bends it by 3 %. A tenth
# is as good in single precision, but off by 1 % in bfloat16; and the smaller the step, the noisier the gradient, as
# every ReLU that it switches counts by 1/step.
_STEP = 1e-2


@dataclass(frozen=True)
class Part:
    """Samples that count alike: a bool mask (slice, 1 or H, W), and their weight w, (slice,)."""

    mask: Tensor
    weight: Tensor


def sure(
    network: Reconstructor,
    operator: SenseOperator,
    kspace: Tensor,
    sigma: Tensor,
    unit: Tensor,
    parts: Sequence[Part] | None = None,
) -> tuple[Tensor, Tensor]:
    """Estimate the error ‖√w A (x̂ − x₀)‖² of each slice, (slice,), and return x̂ with it; two evaluations.

    It can be negative. Gradients flow through both evaluations.

    Parameters
    ----------
    network
        f. When it draws at random, it must draw the same each time.
    operator, kspace
        A and y, (slice, coil, H, W).
    sigma
        σ₀, (slice,).
    unit
        b ~ CN(0, I), (slice, coil, H, W); what is not sampled is not looked at.
    parts
        w: the samples in parts that have nothing in common. All alike, with weight 1, when not given.
    """
    parts = [Part(operator.mask, torch.ones_like(sigma))] if parts is None else parts
    roots = torch.stack([part.mask * part.weight.sqrt()[:, None, None] for part in parts]).sum(0)
    adjoint = operator.adjoint(kspace)
    image = network(operator, adjoint)
    probe = operator.adjoint(roots[:, None] * unit)
    spread = divergence(lambda at: network(operator, at), adjoint, probe, known=image, step=_STEP)
    error = 2 * sigma.square() * spread
    for part in parts:
        count = part.mask.to(sigma.dtype).mean((1, 2)) * kspace[0].numel()
        expected = sigma.square() * count
        error = error + part.weight * (misfit(image, operator.maps, part.mask, kspace) - expected)
    return error, image
