"""Zero filling: unsampled entries are taken as zero."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from upmri.methods.base import Method
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class ZeroFilled(Method):
    """x = A*y: the coil images of the zero-filled k-space, combined."""

    name = "zero-filled"
    summary = "coil-combined inverse FFT of the samples"

    def reconstruct(self, problem: Problem) -> Tensor:
        """A*y."""
        return problem.adjoint
