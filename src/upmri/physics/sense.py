"""The SENSE operator A = M F S and everything that is done with N = A*A."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.solve import (
    Block,
    CirculantPreconditioner,
    RowSolver,
    conjugate_gradients,
    factor_bytes,
    per_slice,
    row_blocks,
)

Solver = Literal["auto", "direct", "cg"]

# Bytes of coil images in flight: what a CPU's cache holds, and what keeps an accelerator busy without crowding it.
_CHUNK = {"cpu": 3 << 20}
_CUDA_CHUNK = 1 << 30
# Bytes of Cholesky factors that are kept for the next solve.
_KEEP = {"cpu": 1 << 30}
_CUDA_KEEP = 24 << 30


class SenseOperator:
    """Multi-coil Cartesian acquisition, A x = M F (S_c x), batched over slices, on any device.

    Images are (…, slice, H, W), k-space is (…, slice, coil, H, W), with any leading axes (several images of the same
    slices). With orthonormal F and Σ|S_c|² ∈ {0, 1} the normal operator obeys 0 ≤ N ≤ I. Gradients flow to images,
    right-hand sides and damping; maps and mask are constants.

    Parameters
    ----------
    maps
        Coil sensitivities (slice, coil, H, W), complex.
    mask
        Sampled entries, (slice or 1, 1 or H, W). One row (a 1-D mask) opens the fast paths.
    """

    def __init__(self, maps: Tensor, mask: Tensor) -> None:
        if maps.ndim != 4 or not maps.is_complex():
            raise InputError(f"maps: expected complex (slice, coil, H, W), got {maps.dtype} {tuple(maps.shape)}")
        n, _, h, w = maps.shape
        if mask.ndim != 3 or mask.shape[0] not in (1, n) or mask.shape[1] not in (1, h) or mask.shape[2] != w:
            raise InputError(f"mask: expected ({n} or 1, 1 or {h}, {w}), got {tuple(mask.shape)}")
        maps = maps.detach()
        self.mask = mask.to(maps.device).bool().expand(n, -1, -1)
        self.cartesian_1d = mask.shape[1] == 1
        # Rows first for 1-D masks, so that a block of rows is one piece of memory.
        self._rows = maps.transpose(1, 2).contiguous() if self.cartesian_1d else maps.transpose(1, 2)
        self._weights = torch.fft.ifftshift(self.mask, (-2, -1)).to(maps.real.dtype)
        self._last: _Kept | None = None

    @property
    def maps(self) -> Tensor:
        """Coil sensitivities (slice, coil, H, W)."""
        return self._rows.transpose(1, 2)

    @property
    def support(self) -> Tensor:
        """Where any coil sees anything, bool (slice, H, W)."""
        return (self._rows != 0).any(2)

    @property
    def acceleration(self) -> Tensor:
        """R of each slice, (slice,)."""
        return 1 / self.mask.float().mean((1, 2))

    @property
    def unknowns(self) -> Tensor:
        """Pixels of the support for each sampled position, (slice,): R of an object that fills the field of view."""
        support = self.support
        return self.acceleration * support.sum((1, 2)).clamp_min(1) / support[0].numel()

    def forward(self, image: Tensor) -> Tensor:
        """A x: (…, slice, H, W) → (…, slice, coil, H, W)."""
        return self.mask[:, None] * fft2c(self.maps * image[..., None, :, :])

    def adjoint(self, kspace: Tensor) -> Tensor:
        """A* y = Σ_c conj(S_c) F* M y_c: (…, slice, coil, H, W) → (…, slice, H, W)."""
        return (self.maps.conj() * ifft2c(self.mask[:, None] * kspace)).sum(-3)

    def normal(self, image: Tensor) -> Tensor:
        """N x = A*A x, without the shifts of a centred transform (they cancel), 1-D where the mask is."""
        result: Tensor = _Normal.apply(image, self)
        return result

    def solve(
        self,
        rhs: Tensor,
        damping: float | Tensor,
        solver: Solver = "auto",
        *,
        tolerance: float = 1e-6,
        iterations: int = 1000,
    ) -> Tensor:
        """(N + λI)⁻¹ b.

        Parameters
        ----------
        rhs
            b, (…, slice, H, W).
        damping
            λ, a number or a tensor of one or of (slice,) values; positive for the direct solver.
        solver
            ``direct`` (1-D masks: factored on first use, kept for the same damping), ``cg``, or ``auto``: direct
            where it applies and its factors can be kept.
        tolerance, iterations
            For conjugate gradients: relative residual to reach, and the most iterations to take. 2-D masks are
            preconditioned when there is a tolerance.
        """
        if solver not in ("auto", "direct", "cg"):
            raise InputError(f"solver: expected 'auto', 'direct' or 'cg', got {solver!r}")
        positive = isinstance(damping, Tensor) or damping > 0  # a tensor is taken at its word: asking it would wait
        if solver == "direct" and not (self.cartesian_1d and positive):
            raise InputError("solver: 'direct' needs a 1-D mask and a damping > 0; use 'cg'")
        direct = solver == "direct" or (solver == "auto" and positive and self._affords_factors())

        def run(b: Tensor, value: float | Tensor) -> Tensor:
            if direct:
                return self._factored(value)(b)
            # Few iterations without a tolerance are wanted for what they leave out; those are not to be shaped.
            shape = None
            if tolerance and positive and not self.cartesian_1d:
                shape = CirculantPreconditioner(self.maps, self._weights, value)
            return conjugate_gradients(
                self._normal, b, value, iterations=iterations, tolerance=tolerance, precondition=shape
            )

        result: Tensor = _Solve.apply(rhs, damping, run)
        return result

    def _affords_factors(self) -> bool:
        return self.cartesian_1d and factor_bytes(self._blocks, self._rows) <= self._keep

    @cached_property
    def _blocks(self) -> list[Block]:
        return row_blocks(self._rows)

    @property
    def _keep(self) -> int:
        return _KEEP.get(self._rows.device.type, _CUDA_KEEP)

    def _factored(self, damping: float | Tensor) -> RowSolver:
        """The row solver for this damping: the last one is kept, together with the values it was made for."""
        if self._last is None or not self._last.serves(damping):
            self._last = None  # frees the old factors before the new ones are made
            solver = RowSolver(self._rows, self._weights[:, 0], damping, keep=self._keep, blocks=self._blocks)
            self._last = _Kept(solver, damping)
        return self._last.solver

    def _normal(self, image: Tensor) -> Tensor:
        out = torch.zeros_like(image)
        rows, (_, h, c, w) = self._rows, self._rows.shape
        limit = _CHUNK.get(image.device.type, _CUDA_CHUNK)
        copies = image.numel() // (h * w)
        if self.cartesian_1d:
            step = max(1, limit // (copies * c * w * image.element_size()))
            for i in range(0, h, step):
                maps = rows[:, i : i + step]
                z = torch.fft.fft(maps * image[..., i : i + step, None, :])
                z = torch.fft.ifft(z.mul_(self._weights[:, :, None]))
                out[..., i : i + step, :] = torch.linalg.vecdot(maps, z, dim=-2)
        else:
            step = max(1, limit // (image.numel() * image.element_size()))
            for i in range(0, c, step):
                maps = self.maps[:, i : i + step]
                z = torch.fft.fft2(maps * image[..., None, :, :])
                z = torch.fft.ifft2(z.mul_(self._weights[:, None]))
                out += torch.linalg.vecdot(maps, z, dim=-3)
        return out


class _Kept:
    """A solver and the damping it was made for."""

    def __init__(self, solver: RowSolver, damping: float | Tensor) -> None:
        self.solver, self._damping = solver, damping
        if isinstance(damping, Tensor):
            self._values, self._version = damping.detach().clone(), damping._version

    def serves(self, damping: float | Tensor) -> bool:
        if not isinstance(damping, Tensor) or not isinstance(self._damping, Tensor):
            return (
                not isinstance(damping, Tensor) and not isinstance(self._damping, Tensor) and damping == self._damping
            )
        # The same tensor, untouched since, need not be asked for its values: an accelerator would have to wait.
        if damping is self._damping and damping._version == self._version:
            return True
        return torch.equal(damping, self._values)


class _Normal(torch.autograd.Function):
    """N is linear and Hermitian: it is its own derivative, forwards and backwards."""

    @staticmethod
    def forward(image: Tensor, operator: SenseOperator) -> Tensor:
        return operator._normal(image)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.operator = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.operator.normal(grads[0]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        result: Tensor = ctx.operator.normal(tangents[0])
        return result


class _Solve(torch.autograd.Function):
    """x = M b, M = (N + λI)⁻¹, by the implicit rule: no graph through the solver.

    dx = M (db − dλ x), so with an incoming gradient g the gradient in b is M g and in λ it is −Re⟨M g, x⟩.
    """

    @staticmethod
    def forward(rhs: Tensor, damping: Any, run: Any) -> Tensor:
        return run(rhs, damping)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, damping, ctx.run = inputs
        ctx.damping = damping
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (x,) = ctx.saved_tensors
        back = _Solve.apply(grads[0], ctx.damping, ctx.run)
        slope = None
        if ctx.needs_input_grad[1]:
            slope = -(back.conj() * x).real.sum((-2, -1))
            slope = slope.reshape(-1, slope.shape[-1]).sum(0) if ctx.damping.ndim else slope.sum()
            slope = slope.reshape(ctx.damping.shape).to(ctx.damping.dtype)
        return back, slope, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        rhs_t, damping_t = tangents[0], tangents[1]
        change = torch.zeros_like(x) if rhs_t is None else rhs_t
        if damping_t is not None:
            change = change - per_slice(damping_t, x) * x
        result: Tensor = _Solve.apply(change, ctx.damping, ctx.run)
        return result
