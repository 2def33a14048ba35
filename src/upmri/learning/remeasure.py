"""Measure a network's image again in simulation, and compare its reconstruction with the image."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from upmri.flow.path import broadcast
from upmri.learning.partition import energy
from upmri.learning.sure import Reconstructor, sure
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem


def inconsistency(
    network: Reconstructor, operator: Operator, image: Tensor, sigma: Tensor, unit: Tensor, *, moving: bool
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
        σ₀, (slice,), and b ~ CN(0, I), (slice, coil, H, W); entries that are not sampled are ignored.
    moving
        Whether gradients flow through x as the target, too. A moving target moves towards images that are easy to
        reconstruct: the network is trained to leave out detail that it could not recover.
    """
    again = operator.normal(image) + broadcast(sigma, image) * operator.adjoint(unit)
    target = image if moving else image.detach()
    return (network(operator, again) - target).abs().square().sum((1, 2))


def sure_with_consistency(
    network: Reconstructor, problem: Problem, gap: Callable[[Tensor], Tensor], alpha: float
) -> Tensor:
    """[SURE(x̂)/s + α gap(x̂)] / ‖y‖² of each slice, (slice,), x̂ = f(A*y), s the share of k-space that was sampled.

    Parameters
    ----------
    network
        f.
    problem
        A, y and σ₀.
    gap
        Inconsistency of an image, (slice,).
    alpha
        α.
    """
    error, image = sure(network, problem, problem.unit_noise(*problem.kspace.shape[1:]))
    share = problem.lines.to(problem.device, error.dtype).mean((1, 2))
    return (error / share + alpha * gap(image)) / energy(problem)
