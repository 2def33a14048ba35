"""Thresholds of singular values, of whole matrices and of the blocks of a series of images."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from upmri.physics.time_average import by_series

# Smallest singular value that is divided by.
_TINY = 1e-20


def shrink_singular_values(matrices: Tensor, threshold: float | Tensor) -> Tensor:
    """U soft(Σ, λ) V* of matrices X = U Σ V*, (…, M, T), with T ≤ M for speed: the proximal map of λ‖X‖_*.

    V and Σ² are from X*X, T×T. Singular values below 10⁻³ of the largest, which rounding would spoil, are below any
    useful threshold. Gradients flow to λ, and to X through the product with V soft(Σ, λ)Σ⁻¹ V*, in which V and Σ count
    as constants: their own derivatives are unbounded where singular values are equal.

    Parameters
    ----------
    matrices
        X, complex.
    threshold
        λ, one number or (…).
    """
    with torch.no_grad():
        values, vectors = torch.linalg.eigh(matrices.mH @ matrices)
        sigma = values.clamp_min(0).sqrt().clamp_min(_TINY)
    threshold = threshold[..., None] if isinstance(threshold, Tensor) else threshold
    gain = (1 - threshold / sigma).clamp_min(0)
    return matrices @ ((vectors * gain[..., None, :].to(vectors.dtype)) @ vectors.mH)


def low_rank_blocks(images: Tensor, frames: int, block: int, threshold: float | Tensor, shift: list[int]) -> Tensor:
    """Shrink the singular values of all blocks of series, (series · frame, H, W).

    Parameters
    ----------
    images, frames
        Series, and their number of frames.
    block
        Width of the blocks; the image is continued by zeros to a multiple of it.
    threshold
        Threshold of the singular values, one number or (series,).
    shift
        Shift of the grid of blocks, (rows, columns).
    """
    h, w = images.shape[-2:]
    padded = pad(images, (0, -w % block, 0, -h % block)).roll(shift, (-2, -1))
    rows, columns = padded.shape[-2] // block, padded.shape[-1] // block
    parts = by_series(padded, frames).unflatten(-1, (columns, block)).unflatten(-3, (rows, block))
    matrices = parts.permute(0, 2, 4, 3, 5, 1).flatten(3, 4)  # (series, row, column, pixel, frame)
    limit = threshold[:, None, None] if isinstance(threshold, Tensor) else threshold
    shrunk = shrink_singular_values(matrices, limit).unflatten(3, (block, block)).permute(0, 5, 1, 3, 2, 4)
    back = shrunk.reshape(padded.shape).roll([-shift[0], -shift[1]], (-2, -1))
    return back[..., :h, :w]
