"""Noise of a training step from one seed per slice: the same for any number of processes and slices per batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from upmri.flow.path import noise
from upmri.physics.problem import Problem


def path_noise(problem: Problem) -> Tensor:
    """x₁ ~ CN(0, 2I), (slice, H, W), drawn on the device with the slices' seeds plus 1; the same at every call."""
    like = problem.adjoint[0]
    return torch.stack([noise(like, torch.Generator(problem.device).manual_seed(seed + 1)) for seed in problem.seeds])


def same_dropout(network: nn.Module, t: Tensor, problem: Problem) -> Callable[[Tensor], Tensor]:
    """Return z ↦ network(z, t) with the same dropout at each call, from the seed of the first slice."""

    def predict(at: Tensor) -> Tensor:
        torch.manual_seed(problem.seeds[0])
        out: Tensor = network(at, t)
        return out

    return predict
