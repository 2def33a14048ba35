"""Receive arrays: circular loops on a helmet or around a torso, and the field of each of them (Biot–Savart).

Lengths are in units of the longer side of the field of view; x runs along the columns of an image, y along its rows
and z along B₀, through the slices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from upmri.core.checks import is_whole
from upmri.core.errors import InputError

Anatomy = Literal["head", "torso"]

# The distance of the elements and their size are chosen so that the singular values of 16 simulated coil images, and
# the g-factor of regular undersampling, fall where those of a real 16-channel head array do.
_CLEARANCE: dict[Anatomy, float] = {"head": 1.3, "torso": 1.15}  # half-axes of the array over those of the body
_REACH: dict[Anatomy, tuple[float, float]] = {
    "head": (-0.6, 0.9),
    "torso": (-0.4, 0.4),
}  # range of z over c
_OVERLAP = 1.1  # area of the elements over the area of the surface they share
_LARGEST = 0.6  # radius of an element over c, however few there are
_JITTER = 0.25  # random displacement over an element's radius: subjects and arrays differ
_WIRE = 0.01  # half the thickness of the conductor


@dataclass(frozen=True)
class Loops:
    """Circular loops: ``centre`` and unit ``normal`` (coil, 3), ``radius`` (coil,)."""

    centre: Tensor
    normal: Tensor
    radius: Tensor


def surround(
    coils: int, anatomy: Anatomy, middle: tuple[float, float], axes: tuple[float, float], generator: torch.Generator
) -> Loops:
    """Spread loops over a surface that holds the body, each a little displaced, tilted and resized at random.

    The surface is x²/a² + y²/b² = 1 for a torso (an elliptic cylinder) and x²/a² + y²/b² + z²/c² = 1 with c = (a+b)/2,
    open below, for a head (a helmet); (a, b) are the body's half-axes times a clearance. The loops follow a spiral of
    golden angles from a random first one, so that any number of them covers the surface evenly.

    Parameters
    ----------
    coils
        Number of loops.
    anatomy
        ``"head"`` or ``"torso"``.
    middle, axes
        Centre (x, y) and half-axes of an ellipse that holds the body in every slice.
    generator
        Random generator for the first angle and the displacements.
    """
    if not is_whole(coils) or coils < 1:
        raise InputError(f"expected a whole number, at least 1, got {coils!r}", field="coils")
    if anatomy not in get_args(Anatomy):
        raise InputError(f"expected one of {', '.join(get_args(Anatomy))}, got {anatomy!r}", field="anatomy")
    a, b = (_CLEARANCE[anatomy] * axis for axis in axes)
    c = (a + b) / 2
    single = torch.float32  # in double precision other numbers are drawn
    scale = torch.tensor([a, b, c], dtype=single)
    low, high = _REACH[anatomy]
    head = anatomy == "head"

    index = torch.arange(coils, dtype=single)
    angle = math.pi * (3 - math.sqrt(5)) * index + 2 * math.pi * torch.rand((), generator=generator, dtype=single)
    z = low + (high - low) * (index + 0.5) / coils
    girth = (1 - z.square()).sqrt() if head else torch.ones(coils, dtype=single)
    unit = torch.stack([girth * angle.cos(), girth * angle.sin(), z], dim=-1)  # on the unit sphere or cylinder
    # Along the gradient of the surface's equation.
    normal = _unit(unit / scale * torch.tensor([1.0, 1.0, float(head)], dtype=single))

    # A step dz has the area 2π dz on the unit sphere and on the unit cylinder alike (Archimedes).
    radius = min(c * math.sqrt(_OVERLAP * 2 * (high - low) / coils), c * _LARGEST)
    jitter = _JITTER * torch.randn(2, coils, 3, generator=generator, dtype=single).clamp(-1, 1)
    middle_z = 0.2 * c * (torch.rand((), generator=generator, dtype=single).item() - 0.5)
    inwards = (jitter[0] * normal).sum(-1, keepdim=True).clamp_max(0)  # towards the body: no element moves there
    return Loops(
        centre=torch.tensor([*middle, middle_z], dtype=single) + unit * scale + radius * (jitter[0] - inwards * normal),
        normal=_unit(normal + jitter[1]),
        radius=radius * (1 + _JITTER * (torch.rand(coils, generator=generator, dtype=single) - 0.5)),
    )


def receive(points: Tensor, loops: Loops) -> Tensor:
    r"""Return the signal of each loop for each point, B₁ₓ − i B₁ᵧ for unit current (principle of reciprocity).

    In cylinder coordinates (ρ, ζ) of a loop of radius a, with s = a² + ρ² + ζ², α² = s − 2aρ, β² = s + 2aρ and
    k² = 1 − α²/β², up to a common factor,

    B_ρ = ζ/(α² β ρ) [s E(k) − α² K(k)],  B_ζ = 1/(α² β) [(2a² − s) E(k) + α² K(k)].

    K and E come from the arithmetic–geometric mean, K = π/(2 a_∞) and E = K (1 − Σ 2ⁿ⁻¹ c_n²). On the axis the bracket
    of B_ρ is a difference of equal numbers; with this sum it is simplified first, and the result is exact there, too.

    Parameters
    ----------
    points
        Positions (x, y, z), (point, 3).
    loops
        Loops of the array.

    Returns
    -------
    Tensor
        Complex (coil, point).
    """
    offset = points - loops.centre[:, None]  # (coil, point, 3)
    normal = loops.normal[:, None]
    zeta = (offset * normal).sum(-1)
    radial = offset - zeta[..., None] * normal
    a, rho = loops.radius[:, None], radial.norm(dim=-1)
    s = a * a + rho * rho + zeta * zeta
    alpha2 = (s - 2 * a * rho).clamp_min(_WIRE**2)
    beta2 = s + 2 * a * rho
    beta, ratio = beta2.sqrt(), (alpha2 / beta2).sqrt()

    # c_n = ρ γ_n: without the factor ρ, B_ρ/ρ has no 0/0. c₀² = k² = 4aρ/β² and c₁ = k²/(2(1 + k')), k' = α/β.
    gamma = 2 * a / (beta2 * (1 + ratio))
    mean, geometric = (1 + ratio) / 2, ratio.sqrt()
    tail = torch.zeros_like(rho)  # Σ_{n≥1} 2ⁿ⁻¹ γ_n²
    for n in range(4):
        tail = tail + 2**n * gamma.square()
        mean, geometric = (mean + geometric) / 2, (mean * geometric).sqrt()
        gamma = gamma * gamma * rho / (4 * mean)
    first = 1 / (alpha2 * beta * mean)
    b_rho = first * zeta * (4 * a * a / beta2 - s * tail)  # B_ρ/ρ
    e_over_k = 1 - 2 * a * rho / beta2 - rho * rho * tail
    b_zeta = first * ((2 * a * a - s) * e_over_k + alpha2)
    field = b_rho[..., None] * radial[..., :2] + b_zeta[..., None] * normal[..., :2]
    return torch.complex(field[..., 0], -field[..., 1])


def _unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)
