"""mri-nufft's Fourier operators: NumPy, images (batch, coil, H, W), data (batch, coil, samples)."""

from __future__ import annotations

from typing import Any

import numpy as np
from mrinufft.operators.base import FourierOperatorBase
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.operator import Operator
from upmri.physics.tensors import Array


def from_mrinufft(operator: FourierOperatorBase, maps: Array | None = None, weights: Array | None = None) -> Operator:
    """Use a non-Cartesian operator of mri-nufft in upmri, A x = √w F (S_c x), with data (slice, coil, samples).

    Parameters
    ----------
    operator
        From ``mrinufft.get_operator(backend)(samples, shape, …)`` for 2-D images, without density compensation
        (with it, ``adj_op`` is not the adjoint of ``op``; use ``weights``).
    maps
        Coil sensitivities S (slice, coil, H, W), for an operator with as many coils; not needed for one that has
        sensitivity maps itself or a single coil.
    weights
        Weights w of the samples, (samples,), at least 0. Multiply the data by √w, too.
    """
    return _FromMrinufft(operator, maps, weights)


class _FromMrinufft(Operator):
    def __init__(self, operator: FourierOperatorBase, maps: Array | None, weights: Array | None) -> None:
        if len(operator.shape) != 2:
            raise InputError(f"expected an operator on images (H, W), got {tuple(operator.shape)}", field="operator")
        if operator.density is not None:
            raise InputError("has density compensation; build it with density=False", field="operator")
        coils, samples = operator.n_coils, operator.n_samples
        self._nufft, self._maps, self._slices = operator, None, operator.n_batchs
        if maps is not None:
            self._maps = np.asarray(maps)
            if operator.uses_sense or operator.n_batchs > 1 or self._maps.shape[1:] != (coils, *operator.shape):
                expected = f"(slice, {coils}, {', '.join(map(str, operator.shape))})"
                raise InputError(
                    f"expected {expected} for an operator without its own and with n_batchs=1, got {self._maps.shape}",
                    field="maps",
                )
            self._slices = len(self._maps)
        elif coils > 1 and not operator.uses_sense:
            raise InputError(f"an operator of {coils} coils needs maps", field="maps")
        self.shape = (self._slices, *operator.shape)
        self._root = np.sqrt(np.ones(samples) if weights is None else np.asarray(weights)).astype(operator.dtype)
        if self._root.shape != (samples,) or not np.isfinite(self._root).all():
            raise InputError(f"expected ({samples},) values of at least 0, got {self._root.shape}", field="weights")

    @property
    def data_shape(self) -> tuple[int, ...]:
        return (self._slices, self._nufft.n_coils, self._nufft.n_samples)

    def forward(self, image: Tensor) -> np.ndarray[Any, Any]:
        array = image.cpu().numpy().astype(self._nufft.cpx_dtype)
        if self._maps is None:
            data = self._nufft.op(array[:, None])
        else:
            data = np.stack([self._nufft.op(maps * one) for maps, one in zip(self._maps, array, strict=True)])
        return data.reshape(self.data_shape) * self._root

    def adjoint(self, data: Tensor) -> np.ndarray[Any, Any]:
        array = data.cpu().numpy().astype(self._nufft.cpx_dtype) * self._root
        if self._maps is None:
            return self._nufft.adj_op(array).reshape(self.shape)
        images = [self._nufft.adj_op(one).reshape(maps.shape) for maps, one in zip(self._maps, array, strict=True)]
        return (self._maps.conj() * np.stack(images)).sum(1)
