"""Adaptation at inference: continue the training of a network on the lines of the scan that is reconstructed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from upmri.physics.problem import Problem

# Learning rate of Adam, and number of splits of each slice per step.
_RATE, _SPLITS = 1e-4, 2


def adapt_to(
    problem: Problem, network: nn.Module, loss: Callable[[nn.Module, Problem], Tensor], steps: int
) -> nn.Module:
    """Return a copy of the network after ``steps`` steps of training on the problem.

    Parameters
    ----------
    problem
        Slices to adapt to.
    network
        Initial network, which is not changed. The copy is in the same mode, so that dropout is off in evaluation mode.
    loss
        Training loss: a network and a problem ↦ loss of each slice, (slice,).
    steps
        Number of steps.
    """
    network = copy.deepcopy(network).requires_grad_(True)
    optimiser = torch.optim.Adam(network.parameters(), lr=_RATE)
    count = _SPLITS * len(problem)
    with torch.enable_grad():
        for step in range(steps):
            batch = problem.repeat(_SPLITS, seeds=range(count * step, count * (step + 1)))
            optimiser.zero_grad()
            loss(network, batch).mean().backward()
            optimiser.step()
    return network.requires_grad_(False)
