"""Orthonormal Daubechies wavelets of images, Ψ with ΨΨ* = Ψ*Ψ = I."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.core.errors import InputError

# Scaling filters h; Σh = √2, Σ_k h[k] h[k + 2m] = δ_m.
_FILTERS = {
    "haar": (0.7071067811865476, 0.7071067811865476),
    "db2": (0.48296291314453416, 0.8365163037378079, 0.2241438680420134, -0.12940952255126037),
    "db4": (
        0.2303778133088965,
        0.7148465705529157,
        0.6308807679298589,
        -0.027983769416859854,
        -0.18703481171909309,
        0.030841381835560764,
        0.0328830116668852,
        -0.010597401785069032,
    ),
}
_DEEPEST = 8  # most levels; beyond it images would be padded to multiples of more than 256 pixels


@dataclass(frozen=True)
class Wavelet:
    """The periodic 2-D wavelet transform of (…, H, W), real or complex, on any device.

    One level filters and halves an axis of length n, indices mod n, with the scaling filter h of length L and the
    wavelet filter g[k] = (−1)^k h[L−1−k]::

        low[m] = Σ_k h[k] x[2m + k + 1 − L/2],   high[m] = Σ_k g[k] x[2m + k + 1 − L/2]

    first along H, then along W; the next level does the same to the low-low quarter. Coefficients keep the image's
    shape, the coarsest approximation in the corner [: H/2^levels, : W/2^levels]. These are PyWavelets' coefficients of
    mode "periodization", laid out by its ``coeffs_to_array``.

    Parameters
    ----------
    name
        "haar", "db2" or "db4".
    levels
        Number of halvings; H and W must be multiples of 2^levels (see :meth:`padded`).
    """

    name: str = "db4"
    levels: int = 4

    def __post_init__(self) -> None:
        if self.name not in _FILTERS:
            raise InputError(f"expected one of {', '.join(_FILTERS)}, got {self.name!r}", field="wavelet")
        if not 1 <= self.levels <= _DEEPEST:
            raise InputError(f"expected 1 to {_DEEPEST}, got {self.levels}", field="levels")

    def padded(self, height: int, width: int) -> tuple[int, int]:
        """Return the least multiples of 2^levels that hold an image of H×W."""
        unit = 2**self.levels
        return -(-height // unit) * unit, -(-width // unit) * unit

    def forward(self, image: Tensor) -> Tensor:
        """Ψ x."""
        coefficients = image.clone()
        for corner in self._corners(coefficients):
            corner.copy_(self._analyse(self._analyse(corner, -2), -1))
        return coefficients

    def adjoint(self, coefficients: Tensor) -> Tensor:
        """Ψ* c, which is Ψ⁻¹ c."""
        image = coefficients.clone()
        for corner in reversed(self._corners(image)):
            corner.copy_(self._synthesise(self._synthesise(corner, -1), -2))
        return image

    def scales(self, height: int, width: int) -> Tensor:
        """Return each coefficient's scale, (H, W): 1 for the finest details, levels + 1 for the approximation."""
        scales = torch.ones(height, width, dtype=torch.int64)
        for corner in self._corners(scales):
            corner[..., : corner.shape[-2] // 2, : corner.shape[-1] // 2] += 1
        return scales

    def _corners(self, coefficients: Tensor) -> list[Tensor]:
        """Return views of what each level transforms, the finest first."""
        h, w = coefficients.shape[-2:]
        if (h, w) != self.padded(h, w):
            raise InputError(f"expected H and W to be multiples of {2**self.levels}, got {h}×{w}", field="image")
        return [coefficients[..., : h >> level, : w >> level] for level in range(self.levels)]

    @property
    def _polyphase(self) -> list[tuple[int, tuple[tuple[float, float], ...]]]:
        """(s, ((h, g) at x[2m + 2s], (h, g) at x[2m + 2s + 1])): even and odd samples, shifted by s."""
        h = _FILTERS[self.name]
        first = 1 - len(h) // 2
        taps = {first + k: (h[k], (-1) ** k * h[-1 - k]) for k in range(len(h))}
        shifts = range(first // 2, (first + len(h) - 1) // 2 + 1)
        return [(s, (taps.get(2 * s, (0.0, 0.0)), taps.get(2 * s + 1, (0.0, 0.0)))) for s in shifts]

    def _analyse(self, x: Tensor, dim: int) -> Tensor:
        phases = [phase.contiguous() for phase in torch.unflatten(x, dim, (-1, 2)).unbind(dim)]
        low, high = torch.zeros_like(phases[0]), torch.zeros_like(phases[0])
        for shift, taps in self._polyphase:
            for phase, (h, g) in zip(phases, taps, strict=True):
                sample = phase.roll(-shift, dim)
                low.add_(sample, alpha=h)
                high.add_(sample, alpha=g)
        return torch.cat((low, high), dim)

    def _synthesise(self, c: Tensor, dim: int) -> Tensor:
        halves = [half.contiguous() for half in c.chunk(2, dim)]
        phases = torch.zeros_like(halves[0]), torch.zeros_like(halves[0])
        for shift, taps in self._polyphase:
            low, high = (half.roll(shift, dim) for half in halves)
            for phase, (h, g) in zip(phases, taps, strict=True):
                phase.add_(low, alpha=h).add_(high, alpha=g)
        return torch.stack(phases, dim).flatten(dim - 1, dim)
