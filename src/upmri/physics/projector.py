"""Projectors onto the leading eigenvectors of many matrices, by matrix products alone."""

from __future__ import annotations

import torch
from torch import Tensor

# Squarings that find the largest eigenvalue, and steps of the iteration for the sign of a matrix: 1.5^20 > 1000.
_SQUARINGS, _SIGN_STEPS = 10, 24


def spectral_projector(matrices: Tensor, share: float) -> Tensor:
    """Projectors (…, n, n) onto the eigenvectors of positive semidefinite matrices whose eigenvalue is above τ.

    τ is a ``share`` of the largest eigenvalue. Matrix products instead of eigenvectors: the Cayley transform
    X = (G − τ)(G + τ)⁻¹ has eigenvalues in (−1, 1) of the sign of λ − τ, the iteration X ← (3X − X³)/2 brings them to
    ±1, and Π = (I + X)/2. An eigenvalue within 0.1 % of τ may count in part.

    Parameters
    ----------
    matrices
        G, (…, n, n).
    share
        τ over the largest eigenvalue, which is found as Tr G^(m+1) / Tr G^m with a large m.
    """
    trace = matrices.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    unit = matrices / trace
    power = unit
    for _ in range(_SQUARINGS):
        power = power @ power
        power = power / power.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    largest = (unit * power.mT).sum((-2, -1), keepdim=True).real
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    floor = share * largest * identity
    factor, _ = torch.linalg.cholesky_ex(unit + floor)
    sign = identity - 2 * torch.cholesky_solve(floor.expand_as(unit), factor)
    for _ in range(_SIGN_STEPS):
        sign = 1.5 * sign - 0.5 * (sign @ sign @ sign)
    return 0.5 * (identity + sign)
