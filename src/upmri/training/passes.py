"""The cost of a training in evaluations of its U-Nets: the same on every device, unlike seconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from upmri.methods.base import Objective
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.simulate import simulate

# Size, coils and acceleration of the scan on which the passes of a step are counted.
_SIDE, _COILS, _RATE = 32, 2, 2


class PassCounter:
    """Counts passes of a network in training: one for each slice and each use of a U-Net, by a forward hook.

    A pass without gradient counts as much as one with. The hook is on the unrolled network, whose U-Net is a recorded
    graph on a CUDA device; ``passes`` of a network is the number of passes of its U-Nets for one image (1 if it has
    no such attribute).

    Parameters
    ----------
    network
        Network.
    processes
        Number of processes that train together, each with its share of a batch.
    """

    def __init__(self, network: nn.Module, processes: int = 1) -> None:
        self.total = 0
        self._each = processes * getattr(getattr(network, "module", network), "passes", 1)
        self._hook = network.register_forward_hook(self._count)

    def _count(self, _network: nn.Module, _inputs: Any, output: Tensor) -> None:
        if _network.training:
            self.total += self._each * output[..., 0, 0].numel()

    def stop(self) -> None:
        """Count no more."""
        self._hook.remove()


def passes_per_slice(objective: Objective, period: int = 1) -> float:
    """Passes of one slice in one training step, the mean over ``period`` steps, counted on a small simulated scan.

    Parameters
    ----------
    objective
        Objective.
    period
        Number of steps after which its losses repeat, such as ``path_every`` of ``upmri``.
    """
    scan = simulate(image((_SIDE, _SIDE)), _COILS, _RATE)
    with torch.random.fork_rng():
        network = objective.network().train()
        counter = PassCounter(network)
        for step in range(period):
            problem = Problem.from_scan(scan)
            problem.step = step
            objective.loss(network, problem)
    counter.stop()
    return counter.total / period


def steps_within(passes: int, objective: Objective, batch: int) -> int:
    """Number of training steps that a budget of passes allows; one at least."""
    period = max(1, getattr(objective, "path_every", 1))
    return max(1, int(passes / (batch * passes_per_slice(objective, period))))
