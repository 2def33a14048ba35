"""The image of all frames of a dynamic scan together, and what series of frames have in common.

Images of B series of T frames each are (B·T, H, W), the frames of a series one after another. The frames of a series
have the same coil maps, and different lines.
"""

from __future__ import annotations

import torch
from torch import Tensor

from upmri.physics.operator import Operator
from upmri.physics.row_solver import NormalRows, RowSolver, row_blocks
from upmri.physics.sense import SenseOperator
from upmri.physics.solve import conjugate_gradients

# Damping of the average that only gives a scale or a first image: far below the eigenvalues of N̄, which are near 1/R.
DAMPING = 2e-3
# Iterations and residual where there is no direct solver.
_ITERATIONS, _TOLERANCE = 100, 1e-6


@torch.no_grad()
def average_image(operator: Operator, adjoint: Tensor, frames: int, damping: float = DAMPING) -> Tensor:
    """One image for all frames of each series: x̄ = argmin 1/T Σ_t ‖A_t x − y_t‖² + λ‖x‖² = (N̄ + λI)⁻¹ 1/T Σ_t A_t* y_t.

    N̄ = 1/T Σ_t N_t. For lines in the same readout direction it is N with the share of frames that have a line in place
    of the mask, and is solved directly.

    Parameters
    ----------
    operator, adjoint
        Operator A and data A*y of all frames, (series · frame, H, W).
    frames
        Number of frames T of each series.
    damping
        λ.

    Returns
    -------
    Tensor
        (series, H, W).
    """
    rhs = by_series(adjoint, frames).mean(1)
    if isinstance(operator, SenseOperator) and operator.mask.shape[1] == 1:
        share = by_series(operator.mask[:, 0], frames).to(rhs.real.dtype).mean(1)
        maps = operator.maps[::frames].transpose(1, 2).contiguous()
        rows = NormalRows(maps, torch.fft.ifftshift(share, -1), row_blocks(maps))
        return RowSolver(rows, damping, keep=False)(rhs)

    def normal(image: Tensor) -> Tensor:
        return by_series(operator.normal(to_frames(image, frames)), frames).mean(1)

    return conjugate_gradients(normal, rhs, damping, iterations=_ITERATIONS, tolerance=_TOLERANCE)


def by_series(images: Tensor, frames: int) -> Tensor:
    """Return (series · frame, …) as (series, frame, …)."""
    return images.unflatten(0, (-1, frames))


def to_frames(images: Tensor, frames: int) -> Tensor:
    """Return (series, …) as (series · frame, …), the same for each frame of a series."""
    return images[:, None].expand(-1, frames, *images.shape[1:]).flatten(0, 1)
