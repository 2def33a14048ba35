"""The SENSE operator of an image whose phase is known in part: its imaginary part, after demodulation, is small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.derivatives import Run
from upmri.physics.fourier import mirror
from upmri.physics.operator import Operator, Solver
from upmri.physics.row_solver import Block
from upmri.physics.sense import Kept, SenseOperator
from upmri.physics.solve import conjugate_gradients, per_slice, slice_values
from upmri.physics.tensors import Array, Target, as_tensor, expect


class PhaseConstrainedOperator(Operator):
    """A x = (A_Ω x, √β Im(φ̄ x)): the data y of a scan, and zeros for the imaginary part of the demodulated image.

    φ is the expected phase factor, and β(r) ≥ 0 says how well it is known: with noise of variance σ₀² in y and an
    imaginary part of variance τ², β = σ₀²/2τ². Least squares with this operator is the solution with a regularised
    imaginary part,

        min ‖A_Ω x − y‖² + Σ_r β(r) Im(φ̄ x)² + λ‖x‖²,    N x = N_Ω x + i β φ Im(φ̄ x).

    The operator is linear over real numbers only, and N is symmetric for Re⟨a, b⟩. For masks of whole lines it falls
    apart by readout rows, too: with P + iQ = φ̄_i N_h[i, j] φ_j the system of a row is

        [ P + λI       −Q      ] [Re φ̄x]   [Re φ̄b]
        [   Q     P + λI + β   ] [Im φ̄x] = [Im φ̄b].

    Parameters
    ----------
    maps, mask
        As for :class:`~upmri.physics.sense.SenseOperator`.
    phase, weight
        φ and β, (slice, H, W); |φ| is 1, or 0 where the phase is not known at all. Where no coil sees the object it is
        set to 0.
    missing
        Positions that were left out in lines that count as sampled (an asymmetric echo), bool (slice, 1 or H, W).
    """

    def __init__(self, maps: Array, mask: Array, phase: Array, weight: Array, missing: Array | None = None) -> None:
        full = SenseOperator(maps, mask)
        self.mask: Tensor = full.mask
        self.shape = full.shape
        self.phase, self.weight = as_tensor(phase), as_tensor(weight)
        for name, value in (("phase", self.phase), ("weight", self.weight)):
            if value.shape != full.shape:
                raise InputError(f"expected {full.shape}, got {tuple(value.shape)}", field=name)
        self.phase = torch.where(full.support, self.phase, 0)
        self._missing = None if missing is None else as_tensor(missing)
        self.sampled = full if self._missing is None else full.restrict(full.mask & ~self._missing)
        self._last: Kept | None = None

    @property
    def support(self) -> Tensor:
        """Pixels that any coil sees, bool (slice, H, W)."""
        return self.sampled.support

    @property
    def data_shape(self) -> tuple[int, ...]:
        """(slice, coils + 1, H, W)."""
        n, c, h, w = self.sampled.data_shape
        return n, c + 1, h, w

    @property
    def acceleration(self) -> Tensor:
        """R of each slice, (slice,), by the samples of the scan."""
        return self.sampled.acceleration

    def norm_bound(self) -> Tensor:
        """Upper bound of ‖N‖, (slice,): that of N_Ω, and max β."""
        return self.sampled.norm_bound() + self.weight.flatten(1).amax(1)

    def extended(self, data: Tensor) -> Tensor:
        """Data of the scan with zeros for the imaginary part: (…, coil, H, W) → (…, coil + 1, H, W)."""
        return torch.cat([data, torch.zeros_like(data[..., :1, :, :])], -3)

    def forward(self, image: Tensor) -> Tensor:
        """A x: (…, slice, H, W) → (…, slice, coil + 1, H, W)."""
        expect(image, self.shape, "image")
        imaginary = self.weight.sqrt() * (self.phase.conj() * image).imag
        return torch.cat([self.sampled.forward(image), imaginary.to(image.dtype)[..., None, :, :]], -3)

    def adjoint(self, data: Tensor) -> Tensor:
        """A* (y, d) = A_Ω* y + i √β φ Re d, the adjoint for Re⟨a, b⟩."""
        expect(data, self.data_shape, "data")
        last = self.weight.sqrt() * data[..., -1, :, :].real
        return self.sampled.adjoint(data[..., :-1, :, :]) + 1j * self.phase * last

    _forward, _adjoint = forward, adjoint

    def restrict(self, mask: Array) -> PhaseConstrainedOperator:
        """Return the operator of some of the samples."""
        return PhaseConstrainedOperator(self.sampled.maps, mask, self.phase, self.weight, self._missing)

    def take(self, which: Sequence[int]) -> PhaseConstrainedOperator:
        """Return the operator of some of the slices, by their numbers, in this order; a number may be repeated."""
        at = torch.tensor(which, device=self.device)
        missing = None if self._missing is None else self._missing[at]
        return PhaseConstrainedOperator(self.sampled.maps[at], self.mask[at], self.phase[at], self.weight[at], missing)

    def mirror(self, axes: tuple[int, ...]) -> PhaseConstrainedOperator:
        """Return the operator of the mirrored object, ``axes`` out of (-2, -1)."""
        if not set(axes) <= {-2, -1}:
            raise InputError(f"expected a choice of (-2, -1), got {axes}", field="axes")
        parts = [self.sampled.maps, self.mask, self.phase, self.weight]
        parts += [] if self._missing is None else [self._missing]
        return PhaseConstrainedOperator(*(mirror(part, *axes) for part in parts))

    def to(self, target: Target) -> Self:
        """Return a copy on a device, or in another precision (a complex type or its real one)."""
        moved = super().to(target)
        moved._last = None
        return moved

    def _normal(self, image: Tensor) -> Tensor:
        return self.sampled._normal(image) + 1j * self.phase * (self.weight * (self.phase.conj() * image).imag)

    def _inverse(self, solver: Solver, positive: bool, tolerance: float, accuracy: float, iterations: int) -> Run:
        lines = self.sampled.cartesian_1d and self.sampled.turned is None
        if solver == "direct" and not (lines and positive):
            raise InputError("'direct' needs a 1-D mask and a damping > 0; use 'cg'", field="solver")
        if solver == "direct" or (solver == "auto" and positive and lines and self._affords_factors):
            return lambda rhs, damping, _: self._factored(damping)(rhs)

        def run(rhs: Tensor, damping: float | Tensor, start: Tensor | None) -> Tensor:
            # As in SenseOperator: few iterations without a tolerance are wanted for what they leave out.
            precondition = None
            if tolerance and positive and not lines:
                precondition = self.sampled.preconditioner.damped(damping)
            return conjugate_gradients(
                self._normal, rhs, damping, iterations=iterations, tolerance=tolerance, accuracy=accuracy,
                precondition=precondition, start=start,
            )  # fmt: skip

        return run

    @cached_property
    def _affords_factors(self) -> bool:
        # A real matrix of twice the size takes twice the memory of a complex one.
        return self.sampled.rows.affordable(2)

    def _factored(self, damping: float | Tensor) -> Callable[[Tensor], Tensor]:
        """The row solver for this damping; the last one is kept."""
        if self._last is None or not self._last.serves(damping):
            self._last = None  # frees the old factors before the new ones are made
            self._last = Kept(RealRowSolver(self, damping), damping)
        return self._last.solver


class RealRowSolver:
    """Exact solver for masks of whole lines: one real symmetric system of 2W unknowns a readout row, factored once.

    Parameters
    ----------
    operator
        Operator with a mask of whole lines.
    damping
        λ > 0, a number or a tensor of one or of (slice,) values.
    """

    def __init__(self, operator: PhaseConstrainedOperator, damping: float | Tensor) -> None:
        self._operator, self._damping, self._rows = operator, damping, operator.sampled.rows
        self._factors = [self._factor(block) for block in self._rows.blocks]

    def __call__(self, rhs: Tensor) -> Tensor:
        """Solve for b (…, slice, H, W)."""
        rhs = rhs.resolve_conj()
        x = rhs / per_slice(self._damping, rhs)
        for block, factor in zip(self._rows.blocks, self._factors, strict=True):
            index = (..., block.slices, block.rows, block.columns)
            phase = self._phase(block)
            known = phase.conj() * rhs[index]
            found = torch.cholesky_solve(torch.cat([known.real, known.imag], -1)[..., None], factor)[..., 0]
            x[index] = phase * torch.complex(*found.chunk(2, -1))
        return x

    def _phase(self, block: Block) -> Tensor:
        """φ of a block; 1 where it is not known, which β = 0 makes right."""
        phase = self._operator.phase[block.slices, block.rows, block.columns]
        return torch.where(phase == 0, 1, phase)

    def _factor(self, block: Block) -> Tensor:
        operator, phase = self._operator, self._phase(block)
        normal = phase.conj()[..., :, None] * self._rows.normal(block) * phase[..., None, :]
        system = torch.cat([torch.cat([normal.real, -normal.imag], -1), torch.cat([normal.imag, normal.real], -1)], -2)
        known = operator.phase[block.slices, block.rows, block.columns] != 0
        weight = operator.weight[block.slices, block.rows, block.columns] * known
        damping = slice_values(self._damping, block.slices)
        damping = damping.to(weight) if isinstance(damping, Tensor) else damping
        system.diagonal(dim1=-2, dim2=-1).add_(torch.cat([torch.zeros_like(weight), weight], -1) + damping)
        # A system that is not positive definite gives NaN: an accelerator would have to wait for an exception.
        factor, failed = torch.linalg.cholesky_ex(system)
        return factor.masked_fill_((failed != 0)[..., None, None], torch.nan)
