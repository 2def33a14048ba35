"""mrpro's ``LinearOperator``: images (other, 1, z, y, x), data (other, coil, …), results as tuples of one tensor."""

from __future__ import annotations

import torch
from mrpro.operators import LinearOperator
from torch import Tensor

from upmri.core.errors import InputError
from upmri.interop.modules import HoldsOperator
from upmri.physics.operator import Operator


def from_mrpro(operator: LinearOperator, shape: tuple[int, int, int]) -> Operator:
    """Use an mrpro operator in upmri.

    Parameters
    ----------
    operator
        Operator on images (slice, 1, 1, H, W). Data keep mrpro's shape.
    shape
        (slice, H, W) of the images.
    """
    return _FromMrpro(operator, shape)


def to_mrpro(operator: Operator) -> LinearOperator:
    """Use an upmri operator in mrpro.

    Images are (slice, 1, 1, H, W). Data have five axes: those of :class:`upmri.physics.SenseOperator` are
    (slice, coil, 1, H, W), others get axes of one entry after their first two.
    """
    return _ToMrpro(operator)


class _FromMrpro(Operator):
    def __init__(self, operator: LinearOperator, shape: tuple[int, int, int]) -> None:
        self.shape, self._operator = shape, operator

    def forward(self, image: Tensor) -> Tensor:
        (data,) = self._operator(image[:, None, None])
        return data

    def adjoint(self, data: Tensor) -> Tensor:
        (image,) = self._operator.adjoint(data)
        if image.numel() != torch.Size(self.shape).numel():
            raise InputError(f"the operator's images are {tuple(image.shape)}, not {self.shape}", field="shape")
        return image.reshape(self.shape)


class _ToMrpro(HoldsOperator, LinearOperator):
    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, image: Tensor) -> tuple[Tensor]:
        data = self.operator(image.reshape(self.operator.shape))
        return (data.reshape(*data.shape[:2], *(1,) * (5 - data.ndim), *data.shape[2:]),)

    def adjoint(self, data: Tensor) -> tuple[Tensor]:
        return (self.operator.H(data.reshape(self.operator.data_shape))[:, None, None],)
