"""SENSE with Tikhonov damping, solved exactly."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from upmri.core.errors import InputError
from upmri.methods.base import Method, Problem


def default_damping(sigma: Tensor) -> Tensor:
    """λ = 5 σ^1.5 for noise σ on the problem's scale, (slice,).

    White images would ask for λ ∝ σ²; the spectra of real ones fall off. The rule was chosen on four validation slices
    (three brains, a heart; 4× and 8×, σ from 0.003 to 0.03), where it is within 0.3 dB of the best λ in 32 of 48
    cases and at worst 1.6 dB behind (ESPIRiT maps, 8×, σ = 0.003). The floor covers noise-free simulations.
    """
    return (5 * sigma**1.5).clamp_min(1e-4)


@dataclass(frozen=True)
class Sense(Method):
    """x = argmin ‖Ax − y‖² + λ‖x‖² = (N + λI)⁻¹ A*y.

    Parameters
    ----------
    damping
        λ on the scale where the image's peak is about 1; from σ₀ when not given.
    """

    name = "sense"
    summary = "least squares with Tikhonov damping, solved exactly (Pruessmann 1999)"

    damping: float | None = None

    def __post_init__(self) -> None:
        if self.damping is not None and not self.damping > 0:
            raise InputError(f"damping: expected λ > 0, got {self.damping}")

    def reconstruct(self, problem: Problem) -> Tensor:
        """(N + λI)⁻¹ A*y."""
        damping = default_damping(problem.sigma) if self.damping is None else self.damping
        return problem.operator.solve(problem.adjoint, damping)
