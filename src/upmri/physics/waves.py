"""Smooth functions over an image as sums of few waves, φ_k(r) = exp(2πi k·r / (L N)), |k₁|, |k₂| ≤ K.

The waves belong to a field L times as large as the image, so that the functions need not be periodic.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.physics.fourier import centred, exponentials


@dataclass(frozen=True)
class Waves:
    """The waves φ_k of maps: one factor for each axis, (2K+1, H) and (2K+1, W), and the penalty of each, (2K+1)²."""

    rows: Tensor
    columns: Tensor
    penalty: Tensor

    @classmethod
    def over(cls, shape: tuple[int, int], order: int, field: float, like: Tensor) -> Waves:
        """Waves of order up to K of a field L times as large as the image, on the device of a tensor."""
        rows, columns = (_waves(order, length, field, like) for length in shape)
        k = torch.arange(-order, order + 1, dtype=like.real.dtype, device=like.device) / field
        square = k.square()[:, None] + k.square()
        return cls(rows, columns, (1 + square / 4).pow(4).flatten())

    def maps(self, q: Tensor) -> Tensor:
        """Φ q: (slice, (2K+1)², coil) → (slice, coil, H, W)."""
        grid = q.mT.unflatten(-1, (len(self.rows), len(self.columns)))
        return self.rows.mT @ grid @ self.columns

    def adjoint(self, maps: Tensor) -> Tensor:
        """Φ* z: (slice, coil, H, W) → (slice, (2K+1)², coil)."""
        return (self.rows.conj() @ maps @ self.columns.mH).flatten(2).mT

    def gram(self, weight: Tensor) -> Tensor:
        """Φ* w Φ for real w (slice, H, W): (slice, (2K+1)², (2K+1)²).

        φ_k* φ_l depends on l − k alone, so the entries are Σ_r w(r) φ_{l−k}(r).
        """
        twice = [self._doubled(waves) for waves in (self.rows, self.columns)]
        table = twice[0] @ weight.to(self.rows.dtype) @ twice[1].mT  # (slice, 4K+1, 4K+1)
        n, m = len(self.rows), len(self.columns)
        i, j = (torch.arange(length, device=weight.device) for length in (n, m))
        down = (i[None, :] - i[:, None] + n - 1)[:, None, :, None]
        across = (j[None, :] - j[:, None] + m - 1)[None, :, None, :]
        return table[:, down, across].reshape(len(weight), n * m, n * m)

    @staticmethod
    def _doubled(waves: Tensor) -> Tensor:
        """Waves of the orders −2K … 2K."""
        order = len(waves) // 2
        return torch.cat([waves[:1] * waves[:-1], waves[-1:] * waves[: order * 2 + 1]])


def _waves(order: int, length: int, field: float, like: Tensor) -> Tensor:
    orders, positions = centred(2 * order + 1, like.device), centred(length, like.device)
    return exponentials(orders, positions / (length * field)).to(like.dtype)
