"""Small convolutional networks for unrolled reconstructions: real channels in and out, and zero before they are taught.

Group norm stands for batch norm: a slice gives the same alone as within a batch, and nothing but weights is to be kept.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from upmri.networks.channels import channels

# Channels that a group norm takes together, at the least, are width / _GROUPS.
_GROUPS = 8


class Cnn(nn.Sequential):
    """Convolutions of 3×3, each but the last with group norm and ReLU: (batch, 2, H, W) → (batch, 2, H, W).

    Parameters
    ----------
    layers, width
        How many convolutions, and channels between them.
    """

    def __init__(self, layers: int = 5, width: int = 64) -> None:
        inner = [_layer(2 if i == 0 else width, width) for i in range(layers - 1)]
        super().__init__(*inner, _last(width, 3))


class UNet(nn.Module):
    """A plain U-Net without attention, (batch, inputs, H, W) → (batch, 2, H, W) for any H×W.

    Every level has two convolutions of 3×3 with group norm and ReLU, is half as large in each direction as the one
    above (mean pooling), and is joined to it again on the way up (nearest neighbour).

    Parameters
    ----------
    width, multipliers
        Channels of the first level, and their multiples at each level.
    inputs
        Channels that go in.
    """

    def __init__(self, width: int = 32, multipliers: tuple[int, ...] = (1, 2, 3), *, inputs: int = 2) -> None:
        super().__init__()
        levels = [width * m for m in multipliers]
        self.down = nn.ModuleList(_pair(i, o) for i, o in zip([inputs, *levels[:-1]], levels, strict=True))
        self.up = nn.ModuleList(_pair(low + high, high) for high, low in pairwise(levels))
        self.out = _last(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate."""
        height, width = x.shape[-2:]
        grid = 2 ** len(self.up)
        x = nnf.pad(x, (0, -width % grid, 0, -height % grid))
        levels: list[Tensor] = []
        for stage in self.down:
            x = stage(nnf.avg_pool2d(x, 2) if levels else x)
            levels.append(x)
        x = levels.pop()
        for stage in reversed(self.up):
            x = stage(torch.cat([nnf.interpolate(x, scale_factor=2, mode="nearest"), levels.pop()], 1))
        out: Tensor = self.out(x)
        return out[..., :height, :width]


def on_channels(network: nn.Module, image: Tensor) -> Tensor:
    """Evaluate a real network on the two channels of a complex image (slice, H, W), in the network's precision."""
    made = network(channels(image).to(next(network.parameters()).dtype))
    return torch.view_as_complex(made.to(image.real.dtype).movedim(1, -1).contiguous())


def _pair(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(_layer(inputs, outputs), _layer(outputs, outputs))


def _layer(inputs: int, outputs: int) -> nn.Sequential:
    norm = nn.GroupNorm(math.gcd(_GROUPS, outputs), outputs)
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), norm, nn.ReLU())


def _last(inputs: int, size: int) -> nn.Conv2d:
    """A convolution to two channels that starts at zero, so that an untaught network leaves the data alone."""
    layer = nn.Conv2d(inputs, 2, size, padding=size // 2)
    nn.init.zeros_(layer.weight)
    assert layer.bias is not None  # noqa: S101
    nn.init.zeros_(layer.bias)
    return layer
