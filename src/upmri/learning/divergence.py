"""Divergence of a network, Re tr J, estimated with one random probe (Hutchinson); Stein's lemma needs it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Step of the difference quotient, relative to the point. With U-Nets in single precision the error is a few per mille.
_STEP = 3e-3


def divergence(
    network: Callable[[Tensor], Tensor], at: Tensor, probe: Tensor, *, known: Tensor | None = None, step: float = _STEP
) -> Tensor:
    """Re⟨b, J b⟩ of each slice, (slice,); its mean over b ~ CN(0, I) is Re tr J.

    Parameters
    ----------
    network
        Function x ↦ p with derivative J. Dropout, if any, must use the same random numbers at each call.
    at
        Point x of the derivative, (slice, H, W).
    probe
        Probe b, (slice, H, W).
    known
        Value of p at x. If given, J b is a difference quotient, which takes one evaluation and is exact for linear
        networks. Otherwise J b is computed in forward mode, which is always exact and three times as slow.
    step
        Step of the difference quotient, relative to the norm of x.
    """
    if known is None:
        change: Tensor = torch.func.jvp(network, (at,), (probe,))[1]
    else:
        with torch.no_grad():
            size = torch.linalg.vector_norm(at, dim=(-2, -1)) / torch.linalg.vector_norm(probe, dim=(-2, -1))
            length = (step * torch.where(size > 0, size, 1))[:, None, None]  # at x = 0 there is no relative step
        change = (network(at + length * probe) - known) / length
    return (probe.conj() * change).real.sum((-2, -1))
