"""How much of what goes into a network comes out again: the term that Stein's lemma asks for, with one probe."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# A difference quotient's step, as a share of the place. For U-Nets in single precision it is good to a few per mille.
_STEP = 3e-3


def divergence(
    network: Callable[[Tensor], Tensor], at: Tensor, probe: Tensor, *, known: Tensor | None = None, step: float = _STEP
) -> Tensor:
    """Hutchinson's estimate Re⟨b, J b⟩ of each slice, (slice,).

    Parameters
    ----------
    network
        x ↦ p, with derivative J. When it draws at random (dropout), it must draw the same each time.
    at
        Where, (slice, H, W).
    probe
        b, (slice, H, W).
    known
        p at this place, if it was computed: then J b is a difference quotient, for one evaluation more, exact where the
        network is linear. Otherwise it is taken in forward mode, exact and three times as dear.
    step
        Of the quotient, as a share of the place.
    """
    if known is None:
        change: Tensor = torch.func.jvp(network, (at,), (probe,))[1]
    else:
        with torch.no_grad():
            size = torch.linalg.vector_norm(at, dim=(-2, -1)) / torch.linalg.vector_norm(probe, dim=(-2, -1))
            length = (step * torch.where(size > 0, size, 1))[:, None, None]  # from 0 there is no share to take
        change = (network(at + length * probe) - known) / length
    return (probe.conj() * change).real.sum((-2, -1))
