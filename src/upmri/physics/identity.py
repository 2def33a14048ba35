"""The operator whose data are the image."""

from __future__ import annotations

import torch
from torch import Tensor

from upmri.physics.derivatives import Run
from upmri.physics.operator import Operator
from upmri.physics.solve import per_slice


class IdentityOperator(Operator):
    """A = I: the data are the image.

    Parameters
    ----------
    shape
        (slice, H, W) of the images.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = (shape[0], shape[1], shape[2])

    def forward(self, image: Tensor) -> Tensor:
        """The image."""
        return image

    def adjoint(self, data: Tensor) -> Tensor:
        """The data."""
        return data

    @property
    def acceleration(self) -> Tensor:
        """1 for each slice."""
        return torch.ones(self.shape[0], dtype=self.dtype.to_real(), device=self.device)

    def _normal(self, image: Tensor) -> Tensor:
        return image

    def _inverse(self, *_: object) -> Run:
        return lambda rhs, damping, _: rhs / (1 + per_slice(damping, rhs))
