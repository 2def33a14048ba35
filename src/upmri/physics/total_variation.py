"""Total variation over time: differences of neighbouring frames, and the proximal map of their ℓ₁ norm."""

from __future__ import annotations

import torch
from torch import Tensor

from upmri.physics.time_average import by_series

# Smallest size of a dual variable that is divided by: its square must not vanish in single precision.
_TINY = 1e-12


def smooth_over_time(
    images: Tensor,
    frames: int,
    threshold: Tensor,
    *,
    dual: Tensor | None = None,
    steps: int = 10,
    periodic: bool = True,
) -> tuple[Tensor, Tensor]:
    """Proximal map argmin_x ½‖x − v‖² + Σ λ |Dx| of the differences D over time, by its dual, and the dual variable.

    x = v − D*p with |p| ≤ λ; projected gradients with the step 1/4 ≤ 1/‖D‖² (Chambolle 2004).

    Parameters
    ----------
    images, frames
        v, (series · frame, H, W), and the number of frames of a series.
    threshold
        λ, which multiplies images: one number, or one for each slice, pixel or both.
    dual
        First p, as the images; 0 when not given.
    steps
        Number of steps.
    periodic
        Whether the first frame follows the last one.
    """
    dual = torch.zeros_like(images) if dual is None else dual
    for _ in range(steps):
        x = images - differences(dual, frames, adjoint=True, periodic=periodic)
        dual = dual + differences(x, frames, periodic=periodic) / 4
        dual = dual * (threshold / dual.abs().clamp_min(_TINY)).clamp_max(1)
    return images - differences(dual, frames, adjoint=True, periodic=periodic), dual


def differences(images: Tensor, frames: int, *, adjoint: bool = False, periodic: bool = True) -> Tensor:
    """D x = x_{t+1} − x_t of series, (series · frame, H, W), or D*; without a period the last difference is 0."""
    series = by_series(images, frames)
    if periodic:
        return (series.roll(1 if adjoint else -1, 1) - series).flatten(0, 1)
    inner, none = series[:, :-1], torch.zeros_like(series[:, :1])
    if adjoint:
        return (torch.cat([none, inner], 1) - torch.cat([inner, none], 1)).flatten(0, 1)
    return torch.cat([series[:, 1:] - inner, none], 1).flatten(0, 1)
