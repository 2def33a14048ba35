"""Phantoms of ellipses whose k-space, through every coil, has a closed form: data made without an FFT.

Positions are (y, x) in units of the field of view, from −½ to ½ along each axis; pixel (i, j) is centred at
((i − H//2)/H, (j − W//2)/W), and k-space sample (i, j) lies at (i − H//2, j − W//2) cycles per field of view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import generator_of, random_lines, seed_for
from upmri.physics.simulate import complex_normal

_BANDWIDTH = 0.5  # distance of the spatial frequencies of the coil sensitivities, in cycles per field of view
_MARGIN = 2  # pixels around the ellipses that count as object: where their ringing is strongest


@dataclass(frozen=True)
class Ellipse:
    """An ellipse with ``value`` inside: half-axes (b, a) along y and x, then turned by ``angle`` from x towards y."""

    value: float
    centre: tuple[float, float]
    axes: tuple[float, float]
    angle: float = 0.0

    def __post_init__(self) -> None:
        if min(self.axes) <= 0:
            raise InputError(f"expected two half-axes > 0, got {self.axes}", field="axes")

    @property
    def area(self) -> float:
        """Return π a b."""
        return math.pi * self.axes[0] * self.axes[1]

    def contains(self, y: Tensor, x: Tensor) -> Tensor:
        """Return which points lie inside: (u/a)² + (v/b)² ≤ 1."""
        v, u = self._along_axes(y - self.centre[0], x - self.centre[1])
        return (v / self.axes[0]).square() + (u / self.axes[1]).square() <= 1

    def transform(self, ky: Tensor, kx: Tensor) -> Tensor:
        """Return ∫ value · exp(−2πi k·r) dr = value · a b J₁(2πκ)/κ · exp(−2πi k·centre), κ² = (a k_u)² + (b k_v)²."""
        kv, ku = self._along_axes(ky, kx)
        kappa = torch.hypot(kv * self.axes[0], ku * self.axes[1])
        tiny = kappa < 1e-8
        radial = torch.where(tiny, math.pi, torch.special.bessel_j1(2 * math.pi * kappa) / kappa.masked_fill(tiny, 1.0))
        phase = -2 * math.pi * (ky * self.centre[0] + kx * self.centre[1])
        return self.value * self.axes[0] * self.axes[1] * radial * _cis(phase)

    def _along_axes(self, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return cos * y - sin * x, sin * y + cos * x


def _toft(value: float, a: float, b: float, x: float, y: float, degrees: float) -> Ellipse:
    """Return an ellipse from a row of the published tables: in [−1, 1]², y upwards."""
    return Ellipse(value, (-y / 2, x / 2), (b / 2, a / 2), -math.radians(degrees))


# The head of Shepp and Logan with the contrasts of Toft (1996).
SHEPP_LOGAN: tuple[Ellipse, ...] = (
    _toft(1.0, 0.69, 0.92, 0.0, 0.0, 0.0),
    _toft(-0.8, 0.6624, 0.874, 0.0, -0.0184, 0.0),
    _toft(-0.2, 0.11, 0.31, 0.22, 0.0, -18.0),
    _toft(-0.2, 0.16, 0.41, -0.22, 0.0, 18.0),
    _toft(0.1, 0.21, 0.25, 0.0, 0.35, 0.0),
    _toft(0.1, 0.046, 0.046, 0.0, 0.1, 0.0),
    _toft(0.1, 0.046, 0.046, 0.0, -0.1, 0.0),
    _toft(0.1, 0.046, 0.023, -0.08, -0.605, 0.0),
    _toft(0.1, 0.023, 0.023, 0.0, -0.606, 0.0),
    _toft(0.1, 0.023, 0.046, 0.06, -0.605, 0.0),
)

# A body and three inserts: they show resolution, contrast and orientation at a glance.
INSERTS: tuple[Ellipse, ...] = (
    Ellipse(0.6, (0.0, 0.0), (0.4, 0.34)),
    Ellipse(0.4, (-0.16, 0.08), (0.12, 0.05), angle=0.5),
    Ellipse(-0.4, (0.12, -0.12), (0.07, 0.09)),
    Ellipse(0.3, (0.15, 0.14), (0.03, 0.03)),
)


def image(shape: tuple[int, int], ellipses: Sequence[Ellipse] = SHEPP_LOGAN, *, supersampling: int = 4) -> Tensor:
    """Rasterise: the mean of ``supersampling``² points in each pixel, real float64 (H, W)."""
    if min(shape) < 1:
        raise InputError(f"expected lengths ≥ 1, got {shape}", field="shape")
    if supersampling < 1:
        raise InputError(f"expected at least 1, got {supersampling}", field="supersampling")
    y, x = (_positions(length, supersampling) for length in shape)
    fine = torch.zeros(len(y), len(x), dtype=torch.float64)
    for ellipse in ellipses:
        fine += ellipse.value * ellipse.contains(y[:, None], x).double()
    return fine.reshape(shape[0], supersampling, shape[1], supersampling).mean((1, 3))


def kspace(
    shape: tuple[int, int], ellipses: Sequence[Ellipse] = SHEPP_LOGAN, *, shift: tuple[float, float] = (0.0, 0.0)
) -> Tensor:
    """Return the exact k-space √(HW) ∫ f(r) exp(−2πi (k − ν)·r) dr, complex128 (H, W).

    The factor makes it what the centred orthonormal FFT of ever finer pixels tends to. ``shift`` is ν, in cycles per
    field of view: the k-space of f(r) exp(2πi ν·r).
    """
    ky, kx = (torch.arange(length, dtype=torch.float64) - length // 2 for length in shape)
    grid = torch.meshgrid(ky - shift[0], kx - shift[1], indexing="ij")
    total = torch.zeros(shape, dtype=torch.complex128)
    for ellipse in ellipses:
        total += ellipse.transform(*grid)
    return math.sqrt(shape[0] * shape[1]) * total


def sensitivities(coils: int) -> tuple[Tensor, Tensor]:
    """Return coils of a few spatial frequencies, S_c(r) = Σ_m A_cm exp(2πi ν_m·r), with Σ_c|S_c(r)|² = 1 everywhere.

    ν_m are the ``coils`` lowest points of a grid of half a cycle per field of view. √C·A is the unitary matrix nearest
    to exp(−2πi ν_m·r_c), which points coil c at a place r_c of its own; that it is unitary gives the sum of squares.

    Returns
    -------
    tuple of Tensor
        A, complex128 (coil, m), and ν, float64 (m, 2).
    """
    if coils < 1:
        raise InputError(f"expected at least 1, got {coils}", field="coils")
    near = range(-coils, coils + 1)
    grid = sorted(((p, q) for p in near for q in near), key=lambda k: (math.hypot(*k), k))[:coils]
    frequencies = _BANDWIDTH * torch.tensor(grid, dtype=torch.float64)
    index = torch.arange(coils, dtype=torch.float64)
    angle = math.pi * (3 - math.sqrt(5)) * index
    radius = 0.6 * ((index + 1) / coils).sqrt()
    places = torch.stack([radius * angle.sin(), radius * angle.cos()])
    phase = -2 * math.pi * frequencies @ places
    u, _, vh = torch.linalg.svd(_cis(phase).T)
    return u @ vh / math.sqrt(coils), frequencies


def phantom_scan(
    shape: tuple[int, int] = (256, 256),
    coils: int = 8,
    acceleration: float = 1,
    acs: int | None = None,
    noise: float = 0.0,
    seed: int = 0,
    *,
    ellipses: Sequence[Ellipse] = SHEPP_LOGAN,
) -> Scan:
    """Scan a phantom of ellipses: y_c = M (Σ_m A_cm f̂(k − ν_m) + e), without an FFT anywhere.

    Parameters
    ----------
    shape
        (H, W).
    coils
        Number of the coils of :func:`sensitivities`.
    acceleration, acs, noise, seed
        As in :func:`upmri.simulate`.
    ellipses
        Ellipses of the object, such as ``SHEPP_LOGAN`` and ``INSERTS``.

    Returns
    -------
    Scan
        With ``maps``, cut two pixels away from the object, and as ``reference`` what the fully sampled, noiseless
        k-space shows through them, Σ_c conj(S_c) F* y_c: as sharp as this matrix can be, and with its ringing.
    """
    if not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"expected a finite σ₀ ≥ 0, got {noise}", field="noise")
    mask = random_lines(shape[1], acceleration, acs, seed=seed_for(str(seed), 0, acceleration))
    mixture, frequencies = sensitivities(coils)
    modes = torch.stack([kspace(shape, ellipses, shift=(p, q)) for p, q in frequencies.tolist()])
    full = torch.einsum("cm,mhw->chw", mixture, modes)

    y, x = (_positions(length, 1) for length in shape)
    waves = _cis(2 * math.pi * (y[:, None] * frequencies[:, :1, None] + x * frequencies[:, 1:, None]))  # (m, H, W)
    grown = [replace(e, axes=(e.axes[0] + _MARGIN / shape[0], e.axes[1] + _MARGIN / shape[1])) for e in ellipses]
    support = torch.stack([e.contains(y[:, None], x) for e in grown]).any(0)
    maps = torch.einsum("cm,mhw->chw", mixture, waves) * support
    reference = (maps.conj() * ifft2c(full)).sum(0)
    if noise > 0:
        full = full + complex_normal(full.shape, generator_of(seed), sigma=noise)
    return Scan(
        kspace=full * mask,
        mask=mask,
        maps=maps,
        reference=reference,
        noise=noise,
        name="phantom",
        meta={
            "simulated": {"coils": coils, "acceleration": float(acceleration), "noise": float(noise), "seed": int(seed)}
        },
    )


def _positions(length: int, supersampling: int) -> Tensor:
    """Return where the points of ``length`` pixels lie, evenly spread in each."""
    index = torch.arange(length * supersampling, dtype=torch.float64)
    return ((index + 0.5) / supersampling - 0.5 - length // 2) / length


def _cis(phase: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(phase), phase)
