"""sigpy's ``Linop``: NumPy arrays in and out, shapes ``ishape`` and ``oshape``."""

from __future__ import annotations

from typing import Any

import numpy as np
import sigpy
import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.operator import Operator


def from_sigpy(linop: sigpy.linop.Linop) -> Operator:
    """Use a sigpy operator in upmri.

    Parameters
    ----------
    linop
        Operator on images (H, W) or (slice, H, W). Data keep sigpy's shape, ``linop.oshape``.
    """
    return _FromSigpy(linop)


def to_sigpy(operator: Operator) -> sigpy.linop.Linop:
    """Use an upmri operator in sigpy, on images (slice, H, W) and data of ``operator.data_shape``.

    It computes on the operator's device and in its precision; results are complex, in the precision of the argument.
    """
    return _ToSigpy(operator)


class _FromSigpy(Operator):
    def __init__(self, linop: sigpy.linop.Linop) -> None:
        image = tuple(linop.ishape)
        if len(image) not in (2, 3):
            raise InputError(f"expected an operator on (H, W) or (slice, H, W), got {image}", field="linop")
        self._linop = linop
        self.shape = (1, *image) if len(image) == 2 else image

    def forward(self, image: Tensor) -> np.ndarray[Any, Any]:
        return self._linop(image.cpu().numpy().reshape(self._linop.ishape))

    def adjoint(self, data: Tensor) -> np.ndarray[Any, Any]:
        return self._linop.H(data.cpu().numpy()).reshape(self.shape)


class _ToSigpy(sigpy.linop.Linop):
    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        super().__init__(operator.data_shape, operator.shape, repr_str=type(operator).__name__)

    def _apply(self, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return _array(self._operator, self._operator, image)

    def _adjoint_linop(self) -> sigpy.linop.Linop:
        return _ToSigpyAdjoint(self)

    def _normal_linop(self) -> sigpy.linop.Linop:
        return _ToSigpyNormal(self)


class _ToSigpyAdjoint(sigpy.linop.Linop):
    def __init__(self, linop: _ToSigpy) -> None:
        self._linop = linop
        super().__init__(linop.ishape, linop.oshape, repr_str=f"{linop.repr_str}.H")

    def _apply(self, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return _array(self._linop._operator, self._linop._operator.H, data)

    def _adjoint_linop(self) -> sigpy.linop.Linop:
        return self._linop


class _ToSigpyNormal(sigpy.linop.Linop):
    def __init__(self, linop: _ToSigpy) -> None:
        self._linop = linop
        super().__init__(linop.ishape, linop.ishape, repr_str=f"{linop.repr_str}.N")

    def _apply(self, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return _array(self._linop._operator, self._linop._operator.normal, image)

    def _adjoint_linop(self) -> sigpy.linop.Linop:
        return self


def _array(operator: Operator, apply: Any, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result: Tensor = apply(torch.tensor(value, device=operator.device, dtype=operator.dtype))
    # In the precision of the argument, which solvers of sigpy add to the result in place.
    found: np.ndarray[Any, Any] = result.cpu().resolve_conj().numpy()
    return found.astype(np.result_type(value, np.complex64), copy=False)
