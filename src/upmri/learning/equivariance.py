"""Rotations and flips of images about the centre of the field of view, together with their coil maps.

If only the image rotated, it would leave the support of the maps, outside which nothing is measured. An image and maps
that rotate together are the scan of a rotated object in a rotated coil array. The sampled lines do not rotate. Pixels
are assumed to be square. Parts that leave the field of view are cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as nnf
from torch import Tensor

from upmri.core.errors import InputError
from upmri.networks.channels import channels
from upmri.physics.operator import Operator
from upmri.physics.sense import SenseOperator
from upmri.physics.tensors import unit_maps

Transform = Literal["rotations", "turns", "flips"]
TRANSFORMS: tuple[str, ...] = get_args(Transform)


def draw_turns(kind: Transform, generators: Sequence[torch.Generator]) -> Tensor:
    """Draw one orthogonal matrix B per slice, (slice, 2, 2), for x'(r) = x(B r), r = (y, x) from the centre.

    Parameters
    ----------
    kind
        ``rotations`` by any angle, ``turns`` (rotations by 90°, 180° or 270°), or ``flips`` of one axis or both.
    generators
        One random generator per slice, on the CPU.
    """
    return torch.stack([_DRAW[kind](generator) for generator in generators])


def turn(image: Tensor, matrix: Tensor) -> Tensor:
    """Rotate or flip a real image (slice, channel, H, W): x'(r) = x(B r), r = (y, x) from the centre; 0 outside.

    Interpolation is cubic. For a head of 96×96 pixels it keeps the energy to 0.05 %; linear interpolation loses 1 %
    of it, and detail.
    """
    h, w = image.shape[-2:]
    y, x = (torch.arange(n, dtype=image.dtype, device=image.device) - n // 2 for n in (h, w))
    place = torch.stack(torch.meshgrid(y, x, indexing="ij"), -1) @ matrix.to(image).mT[:, None]
    # `grid_sample` takes (x, y), with −1 and 1 at the first and the last pixel.
    grid = [2 * (place[..., i] + n // 2) / max(n - 1, 1) - 1 for i, n in ((1, w), (0, h))]
    return nnf.grid_sample(image, torch.stack(grid, -1), mode="bicubic", padding_mode="zeros", align_corners=True)


def turn_scan(image: Tensor, operator: Operator, matrix: Tensor) -> tuple[Tensor, SenseOperator]:
    """Rotate or flip an image (slice, H, W) and the coil maps of its operator; the sampled lines stay.

    The maps are normalised again, Σ|S_c|² = 1 on the support. Gradients flow to the image only.
    """
    if not isinstance(operator, SenseOperator):
        raise InputError("expected a SenseOperator, because its coil maps rotate with the image", field="operator")
    with torch.no_grad():
        maps = operator.maps
        support = turn(operator.support[:, None].to(maps.real.dtype), matrix) > 0.5
        turned = turn(channels(maps), matrix).unflatten(1, (-1, 2)).movedim(2, -1).contiguous()
        turned = torch.where(support, unit_maps(torch.view_as_complex(turned)), 0)
    moved = torch.view_as_complex(turn(channels(image), matrix).movedim(1, -1).contiguous())
    return moved * support[:, 0], SenseOperator(turned, operator.mask)


def _rotation(generator: torch.Generator) -> Tensor:
    angle = 2 * math.pi * torch.rand((), dtype=torch.float64, generator=generator)
    return torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)


def _pick(*matrices: list[list[int]]) -> Callable[[torch.Generator], Tensor]:
    choices = torch.tensor(matrices, dtype=torch.float64)
    return lambda generator: choices[torch.randint(len(choices), (), generator=generator)]


_DRAW = {
    "rotations": _rotation,
    "turns": _pick([[0, -1], [1, 0]], [[-1, 0], [0, -1]], [[0, 1], [-1, 0]]),
    "flips": _pick([[-1, 0], [0, 1]], [[1, 0], [0, -1]], [[-1, 0], [0, -1]]),
}
