"""Remove the copy of the object from coil maps that were estimated from every second line.

Every second line shows the sum of the object and its copy, shifted by half a field of view, r̄ = r + W/2, with the sign
s = 1 if DC is sampled and s = −1 if not: S(r) x(r) + s S(r̄) x(r̄). Any smooth h(r) gives other maps and another image
that explain these data as well,

    S'(r) = S(r) + h(r) S(r̄),    x(r) = x'(r) + s h(r̄) x'(r̄)    up to a common factor.

Joint estimation finds S' with an h that is small in the middle of the field of view and grows towards the sides, as
maps there are extrapolated. The image decides what the maps leave open: the edges of the object and those of its copy
are at different places, so that of all images x' + s h̄ x̄' the right one has the fewest edges; v̄(r) is v(r̄). With few
waves φ_k (:class:`~upmri.physics.waves.Waves`), h̄(r) = (2 r̄₂/W)² Σ_k q_k φ_k(r), |r̄₂| ≤ W/2. With ∇ the differences of
neighbours along both axes, ⟨·⟩ the mean over 3×3 pixels and g² the mean of |∇x'|², q minimises

    Σ_r log(⟨|∇x' + s h̄ ∇x̄'|²⟩ / g² + ε²) + λ Σ_k (1 + |k/2L|²)⁶ |q_k|²

by iteratively reweighted least squares. Then S ∝ S' − h S̄', and the same is done again with the image of these maps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as nnf
from torch import Tensor

from upmri.physics.sense import SenseOperator
from upmri.physics.tensors import unit_maps
from upmri.physics.waves import Waves

# Chosen on simulated scans of validation people: heads that fill 50 to 95 % of the field of view, 6 to 16 coils,
# σ₀ from 0.003 to 0.03.
_ORDER, _FIELD = 5, 1.5  # largest k and L
_SMOOTH, _SMALL = 3e3, 0.02  # λ and ε
_ROUNDS, _REWEIGHTED = 3, 8
# Samples are multiplied by exp(−|k/width|²): outer ones show noise, which is not independent in object and copy.
_WIDTH = 96
# λ of the SENSE image.
_DAMPING = 1e-3
# Lines around DC, all of which are looked at.
_CENTRAL = 48


def every_second(mask: Tensor) -> bool:
    """Whether a mask, bool (1 or H, W), holds every second line around DC and none between them anywhere.

    Examples
    --------
    >>> import torch
    >>> every_second(torch.arange(64)[None] % 2 == 1), every_second(torch.arange(64)[None] % 3 == 1)
    (True, False)
    """
    height, width = mask.shape
    if height != 1:
        return False
    odd, even = (bool(mask[0, start::2].any()) for start in (1, 0))
    near = mask[0, max(0, width // 2 - _CENTRAL // 2) : width // 2 + _CENTRAL // 2]
    return odd != even and bool((near[1:] ^ near[:-1]).all())


def remove_copy(kspace: Tensor, mask: Tensor, maps: Tensor) -> tuple[Tensor, Tensor]:
    """Maps with the copy removed, and the share of the copy that was found first, ‖h̄ x̄'‖ / ‖x'‖.

    What is left of the copy grows with this share; the data cannot show it, as they are explained in any case.

    Parameters
    ----------
    kspace, maps
        (slice, coil, H, W), on one device.
    mask
        Every second line, bool (slice, 1, W).

    Returns
    -------
    tuple[Tensor, Tensor]
        Maps (slice, coil, H, W), Σ|S_c|² = 1 where the given ones are not 0, and shares (slice,).
    """
    found = [_slice(*one) for one in zip(kspace.split(1), mask.split(1), maps.split(1), strict=True)]
    return torch.cat([maps for maps, _ in found]), torch.stack([share for _, share in found])


def _slice(kspace: Tensor, mask: Tensor, maps: Tensor) -> tuple[Tensor, Tensor]:
    """Maps of one slice, (1, coil, H, W), and the share of the copy."""
    sign = 1 if bool(mask[0, 0, mask.shape[-1] // 2]) else -1
    inside = (maps != 0).any(1, keepdim=True)
    smooth = kspace * _window(kspace)
    first: Tensor | None = None
    for _ in range(_ROUNDS):
        operator = SenseOperator(maps, mask)
        image = operator.solve(operator.adjoint(smooth), _DAMPING)
        found = mixing(image)
        if first is None:
            first = (found * _copy(image)).norm() / image.norm().clamp_min(torch.finfo(image.dtype).tiny)
        share = sign * _copy(found)
        maps = unit_maps(inside * (maps - share[:, None] * _copy(maps)))
    assert first is not None  # noqa: S101
    return maps, first


def mixing(image: Tensor) -> Tensor:
    """Find h̄, (slice, H, W), for which x' + h̄ x̄' of an image x' has the fewest edges; 0 for an image of 0."""
    width = image.shape[-1]
    position = torch.arange(width, device=image.device, dtype=image.real.dtype) / (width / 2) - 1
    side = _copy(position.square())  # (2 r/W)² at r̄
    edges = _differences(image)
    level = edges.abs().square().mean((1, 2, 3), keepdim=True)
    edges = edges / torch.where(level > 0, level, 1).sqrt()
    copied = _copy(edges) * side
    waves = Waves.over((image.shape[-2], width), _ORDER, _FIELD, image)
    penalty = torch.diag(_SMOOTH * waves.penalty**1.5).to(image.dtype)
    share = torch.zeros_like(image)
    for _ in range(_REWEIGHTED):
        energy = (edges + share[:, None] * copied).abs().square().mean(1, keepdim=True)
        weight = 1 / (nnf.avg_pool2d(energy, 3, stride=1, padding=1, count_include_pad=False) + _SMALL**2)
        gram = waves.gram((weight * copied.abs().square()).mean(1))
        toward = -waves.adjoint((weight * copied.conj() * edges).mean(1, keepdim=True))
        share = waves.maps(torch.linalg.solve(gram + penalty, toward))[:, 0]
    return share * side


def _differences(image: Tensor) -> Tensor:
    """Differences of neighbours down and across, (slice, 2, H, W), around the edges of the image."""
    return torch.stack([image.roll(-1, dim) - image for dim in (-2, -1)], 1)


def _copy(x: Tensor) -> Tensor:
    """Shift by half the width; between two pixels, where it is odd, their mean."""
    width = x.shape[-1]
    shifted = x.roll(width // 2, -1)
    return (shifted + x.roll(width // 2 + 1, -1)) / 2 if width % 2 else shifted


def _window(kspace: Tensor) -> Tensor:
    """exp(−|k/width|²), (H, W)."""
    down, across = (
        torch.exp(-(((torch.arange(n, device=kspace.device, dtype=kspace.real.dtype) - n // 2) / _WIDTH) ** 2))
        for n in kspace.shape[-2:]
    )
    return down[:, None] * across
