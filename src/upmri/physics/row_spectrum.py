"""Eigenvalues and eigenvectors of N = A*A for 1-D masks: one Hermitian matrix a readout row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.sense import SenseOperator

Gain = Callable[..., Tensor]
"""Eigenvalues e (slice, row, k), and values of each slice as (slice, 1, 1) ↦ the gain of each eigenvector."""

# Smallest singular value: the squares of smaller ones are rounding, as the largest is 1.
_ROUNDING = 1e-3


class RowSpectrum:
    """Functions of N = V diag(e) V*, e ≥ 0, of a SENSE operator with a mask of lines.

    The readout transform cancels in N, which leaves one W×W matrix for each readout row
    (:mod:`upmri.physics.row_solver`). Their eigenvalues are the squared singular values of A. Where no coil sees
    anything N is 0, and so are its eigenvalues.

    Parameters
    ----------
    operator
        SENSE operator with a mask of whole lines, along either axis.
    cutoff
        Smallest singular value √e; directions with smaller ones count as not measured, e = 0.
    """

    def __init__(self, operator: SenseOperator, cutoff: float = _ROUNDING) -> None:
        if not operator.cartesian_1d:
            raise InputError("the singular values of A are known by rows only for masks of lines", field="operator")
        self._turned = operator.turned is not None
        rows = (operator.turned or operator).rows
        self._blocks, self._parts = rows.blocks, []
        for block in rows.blocks:
            values, vectors = torch.linalg.eigh(rows.normal(block))
            self._parts.append((torch.where(values < cutoff**2, 0, values), vectors))

    def apply(self, image: Tensor, gain: Gain, *values: Tensor) -> Tensor:
        """V diag(g(e)) V* x of images (…, slice, H, W).

        Parameters
        ----------
        image
            Images x.
        gain
            Function g of the eigenvalues.
        values
            Further arguments of g, one number for each slice, (slice,).
        """
        x = image.mT.contiguous() if self._turned else image
        nothing = x.real.new_zeros(x.shape[-3], 1, 1)
        out = x * gain(nothing, *(value[:, None, None] for value in values))
        for block, (e, vectors) in zip(self._blocks, self._parts, strict=True):
            index = (..., block.slices, block.rows, block.columns)
            given = gain(e, *(value[block.slices, None, None] for value in values))
            inner = (x[index].unsqueeze(-2) @ vectors.conj()).squeeze(-2)
            out[index] = (vectors @ (given * inner).unsqueeze(-1)).squeeze(-1)
        return out.mT.contiguous() if self._turned else out
