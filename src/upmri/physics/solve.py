"""Solvers for (N + λI) x = b, N = A*A: direct by readout rows for 1-D masks, conjugate gradients for any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor

# Rows factored together on the CPU: few enough that cropping to their common support pays, enough to amortise calls.
_CPU_ROWS = 16
# Bytes of systems factored together on an accelerator, which waits for calls more than for arithmetic.
_CUDA_BLOCK = 2 << 30
# Systems as small as this are no longer halved.
_HALVED = 64


def per_slice(value: float | Tensor, like: Tensor) -> Tensor | float:
    """Shape a scalar or one value a slice, (slice,), so that it multiplies images (…, slice, H, W)."""
    if isinstance(value, Tensor) and value.ndim:
        return value.to(like.real.dtype).reshape(-1, 1, 1)
    return value


def conjugate_gradients(
    normal: Callable[[Tensor], Tensor],
    rhs: Tensor,
    damping: float | Tensor,
    *,
    iterations: int,
    tolerance: float = 0.0,
    precondition: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Solve (N + λI) x = b by conjugate gradients from x = 0, every image of the batch with its own scalars.

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
        Stop when every image has ‖b − (N + λI)x‖ ≤ tolerance · ‖b‖. With 0 all iterations are taken.
    precondition
        r ↦ M⁻¹ r, Hermitian and positive definite, near (N + λI)⁻¹: the same solution in fewer iterations. Without it
        the k-th iterate is the plain one, whose early stop regularises.
    """
    rhs = rhs.resolve_conj()  # a lazy conjugate has no view as two real channels
    damping = torch.as_tensor(per_slice(damping, rhs), dtype=rhs.dtype, device=rhs.device)
    shape = precondition or (lambda r: r)
    x = torch.zeros_like(rhs)
    residual = rhs.clone()
    shaped = shape(residual)
    direction = shaped.clone()
    energy = _inner(residual, shaped)  # of the residual in the norm of M⁻¹, its own without M
    goal = _inner(rhs, rhs) * tolerance**2
    # Below this an image is solved to rounding: its scalars become 0 instead of 0/0.
    floor = energy * torch.finfo(energy.dtype).eps ** 2
    # Without damping a residual of mere rounding points into the null space, where a step would be boundless.
    least = torch.where(damping == 0, 100 * torch.finfo(energy.dtype).eps, 0.0)
    every = 1 if rhs.device.type == "cpu" else 10  # asking an accelerator for a number makes it wait
    for k in range(iterations):
        if tolerance and k % every == 0 and bool((_inner(residual, residual) <= goal).all()):
            break
        image = torch.addcmul(normal(direction), direction, damping)
        curvature = _inner(direction, image)
        live = (energy > floor) & (curvature > least * _inner(direction, direction))
        step = torch.where(live, energy / torch.where(live, curvature, 1), 0).to(rhs.dtype)
        x.addcmul_(step, direction)
        residual.addcmul_(step, image, value=-1)
        shaped = shape(residual)
        fresh = _inner(residual, shaped)
        slope = torch.where(live, fresh / torch.where(live, energy, 1), 0).to(rhs.dtype)
        direction = torch.addcmul(shaped, slope, direction)
        energy = fresh
    return x


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
    damping
        λ > 0, one number or (slice,).
    """

    def __init__(self, maps: Tensor, mask: Tensor, damping: float | Tensor) -> None:
        power = torch.stack([torch.fft.fft2(coils).abs().square().sum(0) for coils in maps])
        power = power / power.sum((-2, -1), keepdim=True).clamp_min(torch.finfo(power.dtype).tiny)
        density = torch.fft.ifft2(torch.fft.fft2(mask) * torch.fft.fft2(power).conj()).real.clamp_min(0)
        self._damping = per_slice(damping, maps)
        self._gain = 1 / (density + self._damping)
        self._support = (maps != 0).any(1)

    def __call__(self, residual: Tensor) -> Tensor:
        """M⁻¹ r."""
        inside = torch.fft.ifft2(torch.fft.fft2(residual * self._support).mul_(self._gain))
        return torch.where(self._support, inside, residual / self._damping)


@dataclass(frozen=True)
class Block:
    """Consecutive readout rows of some slices, cropped to the columns where any of them sees signal."""

    slices: slice
    rows: slice
    columns: slice


class RowSolver:
    """Exact solver for 1-D Cartesian masks: one Hermitian W×W system a readout row, factored once.

    The readout transform cancels in N, which leaves, for row h,

        N_h[i, j] = T[(i−j) mod W] · Σ_c conj(S_c[h, i]) S_c[h, j],    T = inverse DFT of the shifted mask,

    and N_h + λI = L L*. Where no coil sees anything N is 0, so rows are cropped to their support first. An accelerator
    keeps L⁻¹: it multiplies far faster than it substitutes, and the residual stays below 1e-5 for any λ ≥ 1e-4.

    Parameters
    ----------
    maps
        Coil sensitivities, rows first: (slice, H, C, W).
    mask
        Mask as real numbers, DC first: (slice, W).
    damping
        λ > 0, one number or (slice,).
    keep
        Largest number of bytes of factors to keep; above it blocks are factored anew for every solve.
    blocks
        Blocks of :func:`row_blocks`; computed when not given.
    invert
        Whether to keep L⁻¹ instead of L; when not given, on accelerators.
    """

    def __init__(
        self,
        maps: Tensor,
        mask: Tensor,
        damping: float | Tensor,
        *,
        keep: int,
        blocks: list[Block] | None = None,
        invert: bool | None = None,
    ) -> None:
        self._maps, self._mask, self._damping = maps, mask, damping
        self._invert = maps.device.type != "cpu" if invert is None else invert
        self._blocks = row_blocks(maps) if blocks is None else blocks
        self._factors = (
            [self._factor(block) for block in self._blocks] if factor_bytes(self._blocks, maps) <= keep else None
        )

    def __call__(self, rhs: Tensor) -> Tensor:
        """Solve for b (…, slice, H, W)."""
        x = rhs / per_slice(self._damping, rhs)
        columns = rhs.reshape(-1, *rhs.shape[-3:]).permute(1, 2, 3, 0)  # (slice, H, W, n)
        solution = x.reshape(-1, *rhs.shape[-3:]).permute(1, 2, 3, 0)
        for i, block in enumerate(self._blocks):
            factor = self._factor(block) if self._factors is None else self._factors[i]
            index = (block.slices, block.rows, block.columns)
            solution[index] = factor.solve(columns[index])
        return x

    def _factor(self, block: Block) -> _Triangle | _Inverse:
        maps = self._maps[block.slices, block.rows, :, block.columns]
        width = self._mask.shape[-1]
        point_spread = torch.fft.ifft(self._mask[block.slices].to(maps.dtype))  # T
        offset = torch.arange(maps.shape[-1], device=maps.device)
        toeplitz = point_spread[:, (offset[:, None] - offset[None, :]) % width]
        system = (maps.mH @ maps).mul_(toeplitz[:, None])
        damping = self._damping
        if isinstance(damping, Tensor) and damping.ndim:
            damping = damping[block.slices, None, None]
        system.diagonal(dim1=-2, dim2=-1).add_(damping)
        return _Inverse(*_inverse_halves(system)) if self._invert else _Triangle(torch.linalg.cholesky(system))


@dataclass(frozen=True)
class _Triangle:
    """L, to substitute with."""

    factor: Tensor

    def solve(self, rhs: Tensor) -> Tensor:
        half = torch.linalg.solve_triangular(self.factor, rhs, upper=False)
        return torch.linalg.solve_triangular(self.factor.mH, half, upper=True)


@dataclass(frozen=True)
class _Inverse:
    """L⁻¹, to multiply with: its upper left quarter and its lower half. The last quarter is 0."""

    top: Tensor
    low: Tensor

    def solve(self, rhs: Tensor) -> Tensor:
        k = self.top.shape[-1]
        # Adjoints are taken of the vectors: those of the factors would be written out.
        x = (self.low @ rhs).mH @ self.low
        x[..., :k] += (self.top @ rhs[..., :k, :]).mH @ self.top
        return x.mH


def _inverse_halves(system: Tensor) -> tuple[Tensor, Tensor]:
    """L⁻¹ of a system L L*, its upper left quarter and its lower half, by matrix products but for small systems."""
    k = -(-system.shape[-1] // 16) * 8
    top = _inverse(system[..., :k, :k])
    side = system[..., k:, :k] @ top.mH
    last = _inverse(system[..., k:, k:] - side @ side.mH)
    return top, torch.cat([-last @ (side @ top), last], -1)


def _inverse(system: Tensor) -> Tensor:
    """L⁻¹ of a system L L*."""
    if system.shape[-1] <= _HALVED:
        factor = torch.linalg.cholesky(system)
        unit = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        return torch.linalg.solve_triangular(factor, unit.expand_as(factor), upper=False)
    top, low = _inverse_halves(system)
    return torch.cat([nnf.pad(top, (0, low.shape[-2])), low], -2)


def factor_bytes(blocks: list[Block], maps: Tensor) -> int:
    """Memory of the factors of all blocks, at the most."""
    return sum(_area(block) for block in blocks) * maps.element_size()


def _area(block: Block) -> int:
    """Entries of a block's factors."""
    width = block.columns.stop - block.columns.start
    rows = block.rows.stop - block.rows.start
    return (block.slices.stop - block.slices.start) * rows * width**2


def row_blocks(maps: Tensor) -> list[Block]:
    """Cut (slice, H, C, W) into blocks that hold all of the support."""
    n, height, _, width = maps.shape
    seen = (maps != 0).any(2)  # (slice, H, W)
    if maps.device.type == "cpu":
        n_step, h_step = 1, _CPU_ROWS
    else:
        most = max(1, _CUDA_BLOCK // (width**2 * maps.element_size()))
        h_step = min(height, most)
        n_step = max(1, most // h_step)
    blocks = []
    for s in range(0, n, n_step):
        for h in range(0, height, h_step):
            slices = slice(s, min(s + n_step, n))
            inside = seen[slices, h : h + h_step].any(0)
            rows, columns = (inside.any(dim).nonzero().flatten().tolist() for dim in (1, 0))
            if rows:
                blocks.append(Block(slices, slice(h + rows[0], h + rows[-1] + 1), slice(columns[0], columns[-1] + 1)))
    return blocks
