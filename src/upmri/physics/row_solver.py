"""The direct solver for (N + λI) x = b, N = A*A, of 1-D masks: one Hermitian system a readout row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.kernels import uses_kernels
from upmri.physics.solve import per_slice, slice_values

# Rows factored together on the CPU: few enough that cropping to their common support pays, enough to amortise calls.
_CPU_ROWS = 16
# Bytes of systems factored together on an accelerator, which waits for calls more than for arithmetic.
_CUDA_BLOCK = 2 << 30
# Largest systems that are not halved: if there are many, and if there are few, for which an accelerator waits.
_HALVED, _HALVED_FEW, _FEW = 64, 128, 1000
# Right-hand sides of each system that are solved one by one; more are multiplied together.
_ONE_BY_ONE = 4
# Bytes of Cholesky factors that are kept for the next solve.
_KEEP = {"cpu": 1 << 30}
_CUDA_KEEP = 24 << 30


@dataclass(frozen=True)
class Block:
    """Consecutive readout rows of some slices, cropped to the columns where any of them sees signal."""

    slices: slice
    rows: slice
    columns: slice


@dataclass(frozen=True)
class NormalRows:
    """N of a mask of lines: one Hermitian W×W matrix a readout row.

    The readout transform cancels in N, which leaves, for row h,

        N_h[i, j] = T[(i−j) mod W] · Σ_c conj(S_c[h, i]) S_c[h, j],    T = inverse DFT of the shifted mask.

    Where no coil sees anything N is 0, so rows are cropped to their support.

    Parameters
    ----------
    maps
        Coil sensitivities, rows first: (slice, H, C, W).
    mask
        Mask as real numbers, DC first: (slice, W).
    blocks
        Blocks of :func:`row_blocks`.
    """

    maps: Tensor
    mask: Tensor
    blocks: list[Block]

    def normal(self, block: Block) -> Tensor:
        """N_h of the rows of a block, (slice, row, column, column)."""
        some = self.maps[block.slices, block.rows, :, block.columns]
        point_spread = torch.fft.ifft(self.mask[block.slices].to(some.dtype))  # T
        offset = torch.arange(some.shape[-1], device=some.device)
        toeplitz = point_spread[:, (offset[:, None] - offset[None, :]) % self.mask.shape[-1]]
        return (some.mH @ some).mul_(toeplitz[:, None])

    def affordable(self, times: int = 1) -> bool:
        """Whether factors that take ``times`` the memory of all N_h may be kept for the next solve."""
        needed = times * sum(_area(block) for block in self.blocks) * self.maps.element_size()
        return needed <= _KEEP.get(self.maps.device.type, _CUDA_KEEP)


class RowSolver:
    """Exact solver for 1-D Cartesian masks: one Hermitian W×W system a readout row, N_h + λI = L L*, factored once.

    An accelerator keeps L⁻¹: it multiplies far faster than it substitutes, and the residual stays below 1e-5 for any
    λ ≥ 1e-4.

    Parameters
    ----------
    rows
        N.
    damping
        λ > 0, a number or a tensor of one or of (slice,) values.
    keep
        Whether to keep the factors where memory allows it; otherwise blocks are factored anew for every solve.
    invert
        Whether to keep L⁻¹ instead of L; when not given, on accelerators.
    """

    def __init__(
        self, rows: NormalRows, damping: float | Tensor, *, keep: bool = True, invert: bool | None = None
    ) -> None:
        self._rows, self._damping = rows, damping
        self._invert = rows.maps.device.type != "cpu" if invert is None else invert
        self._factors = [self._factor(block) for block in rows.blocks] if keep and rows.affordable() else None

    def __call__(self, rhs: Tensor) -> Tensor:
        """Solve for b (…, slice, H, W)."""
        rhs = rhs.resolve_conj().contiguous()
        x = rhs / per_slice(self._damping, rhs)
        columns = rhs.reshape(-1, *rhs.shape[-3:]).permute(1, 2, 3, 0)  # (slice, H, W, n)
        solution = x.reshape(-1, *rhs.shape[-3:]).permute(1, 2, 3, 0)
        for i, block in enumerate(self._rows.blocks):
            factor = self._factor(block) if self._factors is None else self._factors[i]
            index = (block.slices, block.rows, block.columns)
            factor.solve(columns[index], solution[index])
        return x

    def _factor(self, block: Block) -> _Triangle | _Inverse:
        system = self._rows.normal(block)
        system.diagonal(dim1=-2, dim2=-1).add_(slice_values(self._damping, block.slices))
        return _Inverse(_inverse(system)) if self._invert else _Triangle(torch.linalg.cholesky(system))


@dataclass(frozen=True)
class _Triangle:
    """L, to substitute with."""

    factor: Tensor

    def solve(self, rhs: Tensor, out: Tensor) -> None:
        """Write the solution for b (slice, H, W, n) into ``out``."""
        half = torch.linalg.solve_triangular(self.factor, rhs, upper=False)
        out.copy_(torch.linalg.solve_triangular(self.factor.mH, half, upper=True))


@dataclass(frozen=True)
class _Inverse:
    """L⁻¹, to multiply with."""

    factor: Tensor

    def solve(self, rhs: Tensor, out: Tensor) -> None:
        """Write the solution for b (slice, H, W, n) into ``out``."""
        if rhs.shape[-1] <= _ONE_BY_ONE and uses_kernels(rhs):
            from upmri.physics.fused_solve import solve_rows

            for i in range(rhs.shape[-1]):
                solve_rows(self.factor, rhs[..., i], out[..., i])
        else:  # adjoints are taken of the vectors: that of the factor would be written out
            out.copy_(((self.factor @ rhs).mH @ self.factor).mH)


def _inverse(system: Tensor) -> Tensor:
    """L⁻¹ of a system L L*, by matrix products but for small systems."""
    _fill_inverse(system, out := torch.zeros_like(system))
    return out


def _fill_inverse(system: Tensor, out: Tensor) -> None:
    width = system.shape[-1]
    if width <= (_HALVED_FEW if system[..., 0, 0].numel() < _FEW else _HALVED):
        # A system that is not positive definite gives NaN: an accelerator would have to wait for an exception.
        factor, failed = torch.linalg.cholesky_ex(system)
        factor = factor.masked_fill_((failed != 0)[..., None, None], torch.nan)
        unit = torch.eye(width, dtype=factor.dtype, device=factor.device)
        out.copy_(torch.linalg.solve_triangular(factor, unit.expand_as(factor), upper=False))
        return
    k = -(-width // 16) * 8
    top, last = out[..., :k, :k], out[..., k:, k:]
    _fill_inverse(system[..., :k, :k], top)
    side = system[..., k:, :k] @ top.mH
    _fill_inverse(system[..., k:, k:] - side @ side.mH, last)
    torch.neg(last @ (side @ top), out=out[..., k:, :k])


def _area(block: Block) -> int:
    """Entries of a block's factors."""
    width = block.columns.stop - block.columns.start
    rows = block.rows.stop - block.rows.start
    return (block.slices.stop - block.slices.start) * rows * width**2


def row_blocks(maps: Tensor, support: Tensor | None = None) -> list[Block]:
    """Cut (slice, H, C, W) into blocks that hold all of the support, (slice, H, W), where any map is not 0."""
    n, height, _, width = maps.shape
    seen = (maps != 0).any(2) if support is None else support
    if maps.device.type == "cpu":
        n_step, h_step = 1, _CPU_ROWS
    else:
        most = max(1, _CUDA_BLOCK // (width**2 * maps.element_size()))
        h_step = min(height, most)
        n_step = max(1, most // h_step)
    parts = [(slice(s, min(s + n_step, n)), h) for s in range(0, n, n_step) for h in range(0, height, h_step)]
    inside = [seen[slices, h : h + h_step].any(0) for slices, h in parts]
    # To the CPU in one piece: an accelerator would have to wait for each.
    found = torch.cat([one.any(dim) for one in inside for dim in (1, 0)]).cpu()
    lengths = [length for one in inside for length in one.shape]
    edges = [_extent(one) for one in found.split(lengths)]
    blocks = []
    for (slices, h), rows, columns in zip(parts, edges[::2], edges[1::2], strict=True):
        if rows.stop:
            blocks.append(Block(slices, slice(h + rows.start, h + rows.stop), columns))
    return blocks


def _extent(inside: Tensor) -> slice:
    """Shortest range that holds all true entries; an empty one if there are none."""
    found = inside.nonzero().flatten()
    return slice(int(found[0]), int(found[-1]) + 1) if len(found) else slice(0, 0)
