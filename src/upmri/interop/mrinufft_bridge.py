"""mri-nufft's Fourier operators: NumPy, images (batch, coil, H, W), data (batch, coil, samples)."""

from __future__ import annotations

from typing import Any

import mrinufft
import numpy as np
import torch
from mrinufft.operators.base import FourierOperatorBase, FourierOperatorCPU
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.operator import Operator
from upmri.physics.tensors import Array


def from_mrinufft(operator: FourierOperatorBase, maps: Array | None = None, weights: Array | None = None) -> Operator:
    """Use a non-Cartesian operator of mri-nufft in upmri, A x = √w F (S_c x), with data (slice, coil, samples).

    N = A*A of a plain transform is a convolution, computed by FFTs of twice the size: in torch, on any device, and
    several times as fast as with two non-uniform transforms.

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
        self._nufft, self._own = operator, maps is None
        if maps is not None:
            given = np.asarray(maps)
            if operator.uses_sense or operator.n_batchs > 1 or given.shape[1:] != (coils, *operator.shape):
                expected = f"(slice, {coils}, {', '.join(map(str, operator.shape))})"
                raise InputError(
                    f"expected {expected} for an operator without its own and with n_batchs=1, got {given.shape}",
                    field="maps",
                )
        elif operator.uses_sense:
            given = operator.smaps[None]
        elif coils > 1:
            raise InputError(f"an operator of {coils} coils needs maps", field="maps")
        else:
            given = np.ones((1, 1, *operator.shape))
        self._maps = torch.tensor(given.astype(operator.cpx_dtype))
        slices = operator.n_batchs if self._own else len(given)
        self.shape = (slices, *operator.shape)
        self.data_shape = (slices, coils, samples)
        self._root = np.sqrt(np.ones(samples) if weights is None else np.asarray(weights)).astype(operator.dtype)
        if self._root.shape != (samples,) or not np.isfinite(self._root).all():
            raise InputError(f"expected ({samples},) values of at least 0, got {self._root.shape}", field="weights")
        # Corrections of the transform (off-resonance, subspaces) and Cartesian ones have other samples.
        self._kernel = self._spectrum() if isinstance(operator, FourierOperatorCPU) else None

    def forward(self, image: Tensor) -> np.ndarray[Any, Any]:
        array = self._array(image)
        if self._own:
            return self._nufft.op(array[:, None]).reshape(self.data_shape) * self._root
        coils = self._array(self._maps) * array[:, None]
        return np.stack([self._nufft.op(one) for one in coils]).reshape(self.data_shape) * self._root

    def adjoint(self, data: Tensor) -> np.ndarray[Any, Any]:
        array = self._array(data) * self._root
        if self._own:
            return self._nufft.adj_op(array).reshape(self.shape)
        maps = self._array(self._maps)
        coils = np.stack([self._nufft.adj_op(one) for one in array]).reshape(maps.shape)
        return (maps.conj() * coils).sum(1)

    def _normal(self, image: Tensor) -> Tensor:
        if self._kernel is None:
            return super()._normal(image)
        height, width = self.shape[1:]
        result = torch.zeros_like(image)
        for coil in range(self._maps.shape[1]):
            maps = self._maps[:, coil]
            padded = torch.fft.fft2(maps * image, s=self._kernel.shape).mul_(self._kernel)
            result += maps.conj() * torch.fft.ifft2(padded)[..., :height, :width]
        return result

    def _spectrum(self) -> Tensor:
        """Spectrum of the point spread function Σ_k w_k exp(i k·d) of all differences d of two pixels, (2H, 2W)."""
        height, width = self._nufft.shape
        wide = mrinufft.get_operator(self._nufft.backend)(self._nufft.samples, (2 * height, 2 * width))
        spread = wide.adj_op((self._root**2).astype(wide.cpx_dtype)).reshape(wide.shape)
        spread = spread * wide.norm_factor / self._nufft.norm_factor**2
        return torch.fft.fft2(torch.fft.ifftshift(torch.from_numpy(spread))).real

    def _array(self, value: Tensor) -> np.ndarray[Any, Any]:
        return value.cpu().numpy().astype(self._nufft.cpx_dtype)
