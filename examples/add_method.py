"""
Add a method
============

Landweber's iteration, from its formula to ``upmri.reconstruct(scan, "landweber")``.
"""

# %%
# A method is a frozen dataclass. Its fields are its settings, each with a default, and are checked in
# ``__post_init__``; ``upmri methods`` lists its ``name`` and ``summary``. It has one function, from a ``Problem`` to
# an image. ``register_method`` makes it available under its name in this program.
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import upmri
from upmri.core.checks import at_least
from upmri.evaluation import comparison
from upmri.methods import Method, register_method


@register_method
@dataclass(frozen=True)
class Landweber(Method):
    """k steps of x ← x + (A*y − N x) from x = 0.

    Parameters
    ----------
    steps
        k; more steps resolve more and amplify more noise.
    """

    name = "landweber"
    summary = "gradient descent on the data misfit, stopped early (Landweber 1951)"

    steps: int = 30

    def __post_init__(self) -> None:
        at_least(self, 1, "steps")

    def reconstruct(self, problem: upmri.Problem) -> Tensor:
        """The k-th iterate, (slice, H, W)."""
        x = torch.zeros_like(problem.adjoint)
        for _ in range(self.steps):
            x = x + problem.adjoint - problem.operator.normal(x)  # 0 ≤ N ≤ I, so a step of 1 converges
        return x


# %%
# A ``Problem`` holds some slices on a device, scaled so that the image peaks near 1: ``operator`` is A, ``adjoint`` is
# A*y, ``kspace`` is y, ``sigma`` is the noise level, and ``generators`` has one random generator per slice. Each is
# computed when a method asks for it. A method that uses ``normal``, ``solve`` and ``support`` of the operator alone
# works with operators of users, too.
scan = upmri.simulate(upmri.demo.brain()[1], acceleration=3)
landweber, sense = upmri.reconstruct(scan, "landweber", steps=50), upmri.reconstruct(scan, "sense")
figure = comparison(scan.reference, {"landweber": landweber.image, "sense": sense.image})
for rec in (landweber, sense):
    print(f"{rec.method}: {upmri.evaluate(rec)['psnr']:.1f} dB")

# %%
# In a package of your own, an entry point makes the method available to every program and to the command line
# (``upmri recon -m landweber``, ``upmri benchmark``, the report) once the package is installed:
#
# .. code-block:: toml
#
#    [project.entry-points."upmri.methods"]
#    landweber = "my_package.landweber:Landweber"
#
# A method that is trained has an ``Objective`` as well, with a network and a loss;
# ``src/upmri/methods/supervised.py`` has short ones.
