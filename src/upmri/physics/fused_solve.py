"""Solutions L⁻* L⁻¹ b of many small systems on a CUDA device, with one pass over their factors (Triton).

With the rows l_i of L⁻¹, x = Σ_i conj(l_i) (l_i · b): a row is read once for both products, and only up to its
diagonal. Two matrix products would read the whole of the factor twice.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Entries of a tile of a factor.
_TILE = 2048


@triton.jit
def _solve_kernel(factor, rhs, out, rows, width, rhs_slice, rhs_row, out_slice, out_row, PAD: tl.constexpr,
                  ROWS: tl.constexpr):  # fmt: skip
    """One system: complex numbers are pairs of floats."""
    n, h = tl.program_id(1).to(tl.int64), tl.program_id(0)
    j = tl.arange(0, PAD)
    inside = j < width
    b = rhs + 2 * (n * rhs_slice + h * rhs_row + j)
    b_re = tl.load(b, mask=inside, other=0.0)[None, :]
    b_im = tl.load(b + 1, mask=inside, other=0.0)[None, :]
    x_re, x_im = tl.zeros([ROWS, PAD], tl.float32), tl.zeros([ROWS, PAD], tl.float32)
    base = factor + 2 * (n * rows + h) * width * width
    for first in range(0, width, ROWS):
        i = first + tl.arange(0, ROWS)
        live = (i < width)[:, None] & (j[None, :] <= i[:, None])
        at = base + 2 * (i[:, None] * width + j[None, :])
        re = tl.load(at, mask=live, other=0.0)
        im = tl.load(at + 1, mask=live, other=0.0)
        y_re = tl.sum(re * b_re - im * b_im, 1)[:, None]
        y_im = tl.sum(re * b_im + im * b_re, 1)[:, None]
        x_re += re * y_re + im * y_im
        x_im += re * y_im - im * y_re
    x = out + 2 * (n * out_slice + h * out_row + j)
    tl.store(x, tl.sum(x_re, 0), mask=inside)
    tl.store(x + 1, tl.sum(x_im, 0), mask=inside)


def solve_rows(factor: Tensor, rhs: Tensor, out: Tensor) -> None:
    """Write L⁻* L⁻¹ b into ``out``.

    Parameters
    ----------
    factor
        L⁻¹, lower triangular, complex64 (slice, row, W, W), contiguous.
    rhs, out
        b and x, complex64 (slice, row, W), contiguous along W.
    """
    slices, rows, width = rhs.shape
    pad = triton.next_power_of_2(width)
    _solve_kernel[(rows, slices)](
        torch.view_as_real(factor), torch.view_as_real(rhs), torch.view_as_real(out), rows, width,
        rhs.stride(0), rhs.stride(1), out.stride(0), out.stride(1),
        PAD=pad, ROWS=max(1, _TILE // pad), num_warps=4,
    )  # fmt: skip
