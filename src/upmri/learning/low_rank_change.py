"""Changes of low rank of the kernels of a network, W = W₀ + B A (LoRA, Hu and others, 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class LowRankChange:
    """Factors B and A whose product changes each kernel, a matrix (outputs, inputs · kernel): W = W₀ + B A.

    A is random, always the same, and B is 0 at first, so that nothing is changed. With the gradient G in W, those in
    the factors are G Aᵀ and Bᵀ G.

    Parameters
    ----------
    kernels
        Weights of convolutions. They are written in place.
    rank
        Rank of the changes.
    """

    def __init__(self, kernels: Sequence[Tensor], rank: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._kernels = list(kernels)
        self._given = [kernel.detach().flatten(1).clone() for kernel in kernels]
        self._left = [given.new_zeros(len(given), rank) for given in self._given]
        self._right = [
            (torch.randn(rank, given.shape[1], generator=generator) / given.shape[1] ** 0.5).to(given)
            for given in self._given
        ]

    @property
    def factors(self) -> list[Tensor]:
        """All factors, to be trained."""
        return [*self._left, *self._right]

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Move the gradients of the kernels to the factors."""
        for kernel, left, right in zip(self._kernels, self._left, self._right, strict=True):
            if kernel.grad is not None:
                gradient = kernel.grad.flatten(1)
                left.grad, right.grad, kernel.grad = gradient @ right.T, left.T @ gradient, None

    @torch.no_grad()
    def write(self) -> None:
        """Write W₀ + B A into the kernels."""
        for kernel, given, left, right in zip(self._kernels, self._given, self._left, self._right, strict=True):
            kernel.copy_(torch.addmm(given, left, right).view(kernel.shape))
