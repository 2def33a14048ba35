"""Consistency of a network: simulate a measurement of its image, reconstruct it, and compare with the image."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from upmri.learning.partition import energy
from upmri.learning.sure import OperatorNetwork, sure
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem
from upmri.physics.solve import per_slice


def inconsistency(
    network: OperatorNetwork, operator: Operator, image: Tensor, sigma: Tensor, unit: Tensor, *, moving: bool
) -> Tensor:
    """‖f(A*(A x + e)) − x‖² of each slice, (slice,), e = σ₀ b on the sampled entries.

    The data of x are never formed, because A*(A x + e) = N x + A*e. Gradients flow through x as the measured image.

    Parameters
    ----------
    network
        Network f.
    operator
        Operator A of the simulated measurement.
    image
        Image x, (slice, H, W).
    sigma, unit
        Noise level σ₀, (slice,), and b ~ CN(0, I), (slice, coil, H, W); entries that are not sampled are ignored.
    moving
        Whether gradients also flow through x as the target. The network then learns images that are easy to
        reconstruct, without the detail that it could not recover.
    """
    again = operator.normal(image) + per_slice(sigma, image) * operator.H(unit)
    target = image if moving else image.detach()
    return (network(operator, again) - target).abs().square().sum((1, 2))


def sure_with_consistency(
    network: OperatorNetwork, problem: Problem, gap: Callable[[Tensor], Tensor], alpha: float
) -> Tensor:
    """[SURE(x̂)/s + α gap(x̂)] / ‖y‖² of each slice, (slice,), x̂ = f(A*y), s the share of k-space that was sampled.

    Parameters
    ----------
    network
        Network f.
    problem
        Problem with A, y and σ₀.
    gap
        Inconsistency of an image (slice, H, W), (slice,).
    alpha
        Weight α of the inconsistency.
    """
    error, image = sure(network, problem, problem.unit_noise(*problem.kspace.shape[1:]))
    share = problem.lines.to(problem.device, error.dtype).mean((1, 2))
    return (error / share + alpha * gap(image)) / energy(problem)
