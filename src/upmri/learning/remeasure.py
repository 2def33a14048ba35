"""Measure what a network has made once more, and see whether it makes the same of that."""

from __future__ import annotations

from torch import Tensor

from upmri.flow.path import broadcast
from upmri.learning.sure import Reconstructor
from upmri.physics.sense import SenseOperator


def inconsistency(
    network: Reconstructor, operator: SenseOperator, image: Tensor, sigma: Tensor, unit: Tensor, *, moving: bool
) -> Tensor:
    """‖f(A*(A x + e)) − x‖² of each slice, (slice,), e = σ₀ b on the sampled entries.

    As A*(A x + e) = N x + A*e, the data of x are never formed. Gradients flow through x as what is measured.

    Parameters
    ----------
    network
        f.
    operator
        A of the second measurement.
    image
        x, (slice, H, W).
    sigma, unit
        σ₀, (slice,), and b ~ CN(0, I), (slice, coil, H, W); what is not sampled is not looked at.
    moving
        Let them flow through x as what should come out, too. A target that moves does so towards what is easily
        foretold: the network learns to leave out what it could not find again.
    """
    again = operator.normal(image) + broadcast(sigma, image) * operator.adjoint(unit)
    target = image if moving else image.detach()
    return (network(operator, again) - target).abs().square().sum((1, 2))
