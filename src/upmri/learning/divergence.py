"""Divergence of a network by Hutchinson's estimate with one probe, for Stein's lemma."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Step of the difference quotient, relative to the point. With U-Nets in single precision the error is a few per mille.
_STEP = 3e-3


def divergence(
    network: Callable[[Tensor], Tensor], at: Tensor, probe: Tensor, *, known: Tensor | None = None, step: float = _STEP
) -> Tensor:
    """Hutchinson's estimate Re⟨b, J b⟩ of each slice, (slice,).

    Parameters
    ----------
    network
        x ↦ p, with derivative J. A network with random parts (dropout) must draw the same numbers at each call.
    at
        Point x of the derivative, (slice, H, W).
    probe
        b, (slice, H, W).
    known
        p at x, if it was computed: then J b is a difference quotient with one more evaluation, exact where the network
        is linear. Otherwise it is computed in forward mode, which is exact and costs three times as much.
    step
        Step of the quotient, relative to x.
    """
    if known is None:
        change: Tensor = torch.func.jvp(network, (at,), (probe,))[1]
    else:
        with torch.no_grad():
            size = torch.linalg.vector_norm(at, dim=(-2, -1)) / torch.linalg.vector_norm(probe, dim=(-2, -1))
            length = (step * torch.where(size > 0, size, 1))[:, None, None]  # from 0 there is no relative step
        change = (network(at + length * probe) - known) / length
    return (probe.conj() * change).real.sum((-2, -1))
