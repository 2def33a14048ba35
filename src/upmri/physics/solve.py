"""Conjugate gradients for (N + λI) x = b, N = A*A, and a preconditioner for 2-D masks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from upmri.core.errors import InputError


def per_slice(value: float | Tensor, like: Tensor) -> Tensor | float:
    """Shape a scalar or one value a slice, (slice,), so that it multiplies images (…, slice, H, W)."""
    if isinstance(value, Tensor) and value.ndim:
        return value.to(like.real.dtype).reshape(-1, 1, 1)
    return value


def is_positive(damping: float | Tensor, slices: int) -> bool:
    """Whether a damping λ, one number or (slice,), is known to be above 0; anything but λ ≥ 0 is refused.

    The values of a tensor count as positive and are not looked at: an accelerator would have to wait for them.
    """
    found = tuple(damping.shape) if isinstance(damping, Tensor) else damping
    if not (found in ((), (1,), (slices,)) if isinstance(found, tuple) else found >= 0):
        raise InputError(f"expected λ ≥ 0, one number or {slices}, one per slice, got {found}", field="damping")
    return isinstance(found, tuple) or found > 0


def slice_values(value: float | Tensor, which: slice) -> float | Tensor:
    """A scalar, or the values of some slices out of a tensor of one or of (slice,) values, shaped (slice, 1, 1)."""
    if not isinstance(value, Tensor) or value.ndim == 0:
        return value
    return (value if len(value) == 1 else value[which])[:, None, None]


def conjugate_gradients(
    normal: Callable[[Tensor], Tensor],
    rhs: Tensor,
    damping: float | Tensor,
    *,
    iterations: int,
    tolerance: float = 0.0,
    accuracy: float = 0.0,
    precondition: Callable[[Tensor], Tensor] | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """Solve (N + λI) x = b by conjugate gradients, every image of the batch with its own scalars and its own stop.

    Parameters
    ----------
    normal
        x ↦ N x, Hermitian and positive semidefinite.
    rhs
        b, (…, H, W).
    damping
        λ ≥ 0, one number or (slice,); with λ = 0 the iterates stay in the range of N: k iterations regularise.
    iterations
        Largest number of iterations.
    tolerance
        An image is left as it is once ‖r‖ ≤ tolerance · ‖b‖, r = b − (N + λI)x. With 0 all iterations are taken.
    accuracy
        With a tolerance: an image is also left once ‖r‖ ≤ accuracy · λ‖x‖. As N + λI ≥ λI, its error is then at most
        accuracy · ‖x‖.
    precondition
        r ↦ M⁻¹ r, Hermitian and positive definite, near (N + λI)⁻¹: the same solution in fewer iterations. Without it
        the k-th iterate is the plain one, whose early stop regularises.
    start
        First x, (…, H, W); 0 when not given. A near one saves iterations.
    """
    return solve_with_residual(
        normal, rhs, damping, iterations=iterations, tolerance=tolerance, accuracy=accuracy, precondition=precondition,
        start=start, applied=None,
    )[0]  # fmt: skip


def solve_with_residual(
    normal: Callable[[Tensor], Tensor],
    rhs: Tensor,
    damping: float | Tensor,
    *,
    iterations: int,
    tolerance: float,
    accuracy: float,
    precondition: Callable[[Tensor], Tensor] | None,
    start: Tensor | None,
    applied: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """:func:`conjugate_gradients`, with the residual b − (N + λI)x of the result beside it.

    ``applied`` is (N + λI) of ``start`` where it is known, which saves one N.
    """
    rhs = rhs.resolve_conj()  # a lazy conjugate has no view as two real channels
    damping = torch.as_tensor(per_slice(damping, rhs), dtype=rhs.dtype, device=rhs.device)
    shape = precondition or (lambda r: r)
    if start is None:
        x, residual = torch.zeros_like(rhs), rhs.clone()
    else:
        x = start.to(rhs.dtype).resolve_conj().clone()
        residual = rhs - (torch.addcmul(normal(x), x, damping) if applied is None else applied)
    shaped = shape(residual)
    direction = shaped.clone()
    energy = _inner(residual, shaped)  # of the residual in the norm of M⁻¹, its own without M
    goal = _inner(rhs, rhs) * tolerance**2
    # Below this an image is solved to rounding: its scalars become 0 instead of 0/0.
    floor = energy * torch.finfo(energy.dtype).eps ** 2
    # Without damping a residual of mere rounding points into the null space, where a step would be boundless.
    least = torch.where(damping == 0, 100 * torch.finfo(energy.dtype).eps, 0.0)
    bound = (accuracy * damping.real) ** 2
    every = 1 if rhs.device.type == "cpu" else 4  # asking an accelerator for a number makes it wait
    wanted: Tensor | bool = True
    for k in range(iterations):
        if tolerance:
            # Images stop one by one, so that the result for a slice does not depend on the others.
            enough = torch.maximum(goal, bound * _inner(x, x)) if accuracy else goal
            wanted = _inner(residual, residual) > enough
            if k % every == 0 and not bool(wanted.any()):
                break
        image = torch.addcmul(normal(direction), direction, damping)
        curvature = _inner(direction, image)
        live = (energy > floor) & (curvature > least * _inner(direction, direction)) & wanted
        step = torch.where(live, energy / torch.where(live, curvature, 1), 0).to(rhs.dtype)
        x.addcmul_(step, direction)
        residual.addcmul_(step, image, value=-1)
        shaped = shape(residual)
        fresh = _inner(residual, shaped)
        slope = torch.where(live, fresh / torch.where(live, energy, 1), 0).to(rhs.dtype)
        direction = torch.addcmul(shaped, slope, direction)
        energy = fresh
    return x, residual


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """Re⟨a, b⟩ of each image."""
    return (torch.view_as_real(a) * torch.view_as_real(b)).sum((-3, -2, -1), keepdim=True)[..., 0]


class CirculantPreconditioner:
    """M⁻¹ = D F* (d + λ)⁻¹ F D + (I − D)/λ: N replaced by the filter whose spectrum is N's diagonal in Fourier space.

    d(k) = Σ_q p(q) m(k + q) is the sampling density around k, p the coils' mean power spectrum, and D the support of
    the maps, outside which N is 0.

    Parameters
    ----------
    maps
        Coil sensitivities (slice, coil, H, W).
    mask
        Mask as real numbers, DC first: (slice, H, W).
    """

    def __init__(self, maps: Tensor, mask: Tensor) -> None:
        power = torch.stack([torch.fft.fft2(coils).abs().square().sum(0) for coils in maps])
        power = power / power.sum((-2, -1), keepdim=True).clamp_min(torch.finfo(power.dtype).tiny)
        self._density = torch.fft.ifft2(torch.fft.fft2(mask) * torch.fft.fft2(power).conj()).real.clamp_min(0)
        self._support = (maps != 0).any(1)

    def damped(self, damping: float | Tensor) -> Callable[[Tensor], Tensor]:
        """Return r ↦ M⁻¹ r for λ > 0, one number or (slice,)."""
        outside = per_slice(damping, self._density)
        gain = 1 / (self._density + outside)

        def apply(residual: Tensor) -> Tensor:
            inside = torch.fft.ifft2(torch.fft.fft2(residual * self._support).mul_(gain))
            return torch.where(self._support, inside, residual / outside)

        return apply
