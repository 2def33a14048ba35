"""
Add a method
============

Landweber's iteration, from nothing to ``upmri recon -m landweber``.
"""

# %%
# A method is a frozen dataclass. Its fields are its settings, each with a default, checked in ``__post_init__``;
# ``name`` and ``summary`` are what ``upmri methods`` lists. It has one duty: from a ``Problem`` to an image.
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import upmri
from upmri.core.errors import InputError
from upmri.evaluation import comparison
from upmri.methods.base import Method, Problem


@dataclass(frozen=True)
class Landweber(Method):
    """k steps of x ← x + (A*y − N x) from x = 0.

    Parameters
    ----------
    steps
        k; more steps resolve more and amplify more noise.
    """

    name = "landweber"
    summary = "gradient descent on the data's error, stopped early (Landweber 1951)"

    steps: int = 30

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps: expected at least 1, got {self.steps}")

    def reconstruct(self, problem: Problem) -> Tensor:
        """The k-th iterate, (slice, H, W)."""
        x = torch.zeros_like(problem.adjoint)
        for _ in range(self.steps):
            x = x + problem.adjoint - problem.operator.normal(x)  # 0 ≤ N ≤ I, so a step of 1 converges
        return x


# %%
# A ``Problem`` is some slices of a scan that has coil maps, on the device, scaled so that the image peaks near 1:
# ``adjoint`` is A*y, ``operator`` is A, ``sigma`` the noise, ``generator`` the only source of randomness. What a
# method does not ask for is not computed. So it can be tried at once.
scan = upmri.simulate(upmri.demo.brain()[1], acceleration=3)
problem = Problem(scan, torch.device("cpu"), torch.Generator().manual_seed(0))
image = Landweber().reconstruct(problem) * problem.scale[:, None, None]
sense = upmri.reconstruct(scan, "sense")
figure = comparison(scan.reference, {"landweber": image, "sense": sense.image})

# %%
# To have it everywhere (``upmri.reconstruct``, ``recon -m``, ``benchmark``, the report) put the class into
# ``src/upmri/methods/landweber.py`` and a line into the table at the top of ``src/upmri/methods/__init__.py``:
#
# .. code-block:: python
#
#    "landweber": ("landweber", "Landweber"),
#
# and its test into ``tests/methods/``: against dense algebra or a closed form. A method that learns also names its
# ``lesson``, a ``Lesson`` with a network and a loss; ``src/upmri/methods/modl.py`` is a short one.
