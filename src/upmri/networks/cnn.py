"""Small convolutional networks for unrolled reconstructions, with real channels; their output is zero before training.

Group norm replaces batch norm: the result for a slice does not depend on the batch, and there are no running means.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from upmri.networks.layers import ConvNormReLU, Convolution, halve, join, zeroed


class Cnn(nn.Sequential):
    """Convolutions of 3×3, all except the last with group norm and ReLU: (batch, 2, H, W) → (batch, 2, H, W).

    Parameters
    ----------
    layers, width
        Number of convolutions, and number of channels between them.
    """

    def __init__(self, layers: int = 5, width: int = 64) -> None:
        inner = [ConvNormReLU(2 if i == 0 else width, width) for i in range(layers - 1)]
        super().__init__(*inner, last_convolution(width, 3))


class UNet(nn.Module):
    """U-Net without attention, (batch, inputs, H, W) → (batch, outputs, H, W), for any H×W.

    Every level has two convolutions of 3×3 with group norm and ReLU on the way down, and two on the way up. Levels are
    connected by mean pooling over 2×2 pixels and by nearest-neighbour interpolation.

    Parameters
    ----------
    width, multipliers
        Channels of the first level, and their multiples at each level.
    inputs, outputs
        Numbers of input and output channels.
    """

    def __init__(
        self, width: int = 32, multipliers: tuple[int, ...] = (1, 2, 3), *, inputs: int = 2, outputs: int = 2
    ) -> None:
        super().__init__()
        levels = [width * m for m in multipliers]
        self.down = nn.ModuleList(self._stage(i, o) for i, o in zip([inputs, *levels[:-1]], levels, strict=True))
        self.up = nn.ModuleList(self._stage(low + high, high) for high, low in pairwise(levels))
        self.out = last_convolution(width, 1, outputs)

    @staticmethod
    def _stage(inputs: int, outputs: int) -> nn.Module:
        """Return the layers of one level, on the way down or up."""
        return nn.Sequential(ConvNormReLU(inputs, outputs), ConvNormReLU(outputs, outputs))

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        """Output (batch, outputs, H, W); every stage gets the context, too."""
        height, width = x.shape[-2:]
        grid = 2 ** len(self.up)
        if height % grid or width % grid:
            x = nnf.pad(x, (0, -width % grid, 0, -height % grid))
        levels: list[Tensor] = []
        for stage in self.down:
            x = stage(halve(x) if levels else x, *context)
            levels.append(x)
        x = levels.pop()
        for stage in reversed(self.up):
            x = stage(join(x, levels.pop()), *context)
        out: Tensor = self.out(x)
        return out[..., :height, :width]


def on_channels(network: nn.Module, image: Tensor) -> Tensor:
    """Evaluate a real network on the two channels of a complex image (slice, H, W), in the network's precision.

    Real and imaginary part are neighbours in memory, so the channels are last: the faster order for convolutions.
    """
    return torch.view_as_complex(on_last_channels(network, torch.view_as_real(image.resolve_conj().contiguous())))


def on_last_channels(network: nn.Module, channels: Tensor) -> Tensor:
    """Evaluate a real network on (slice, H, W, channel), in the network's precision; the result has the same order."""
    x = channels.permute(0, 3, 1, 2)
    if torch._C._are_functorch_transforms_active():
        x = x.contiguous()  # the forward-mode rule of group norm needs channels first
    result: Tensor = network(x.to(next(network.parameters()).dtype))
    return result.to(channels.dtype).permute(0, 2, 3, 1).contiguous()


def last_convolution(inputs: int, size: int, outputs: int = 2) -> nn.Conv2d:
    """A convolution to the output channels, zero at first, so that an untrained network does not change the image."""
    return zeroed(Convolution(inputs, outputs, size))
