"""Layers of the U-Nets, with kernels of their own on CUDA devices."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from upmri.core.kernels import uses_kernels

# Largest number of groups of a group norm.
_GROUPS = 8
# Channels that tensor cores take at once in 16 bits; of other numbers, gradients in the weights take far longer.
_TOGETHER = 8


class ConvNormReLU(nn.Sequential):
    """Convolution with 3×3 pixels, group norm and ReLU: (batch, inputs, H, W) → (batch, outputs, H, W).

    Parameters
    ----------
    inputs, outputs
        Number of input and output channels.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(Convolution(inputs, outputs, 3), group_norm(outputs), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Output of the three layers."""
        if not uses_kernels(x):
            out: Tensor = super().forward(x)
            return out
        conv, norm, _ = self
        assert isinstance(conv, nn.Conv2d)  # noqa: S101
        assert isinstance(norm, nn.GroupNorm)  # noqa: S101
        assert conv.bias is not None  # noqa: S101
        # The bias is added with the norm.
        return add_norm_relu(convolve(x, conv.weight), conv.bias, norm)


class Convolution(nn.Conv2d):
    """Convolution with zeros around the image, quick for any number of channels."""

    def __init__(self, inputs: int, outputs: int, size: int) -> None:
        super().__init__(inputs, outputs, size, padding=size // 2)

    def forward(self, x: Tensor) -> Tensor:
        """Output (batch, outputs, H, W)."""
        return convolve(x, self.weight, self.bias)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolution with zeros around the image, (batch, inputs, H, W) → (batch, outputs, H, W)."""
    padding = weight.shape[-1] // 2
    if uses_kernels(x) and x.dtype.itemsize == 2:
        x, weight, bias, outputs = fill_channels(x, weight, bias)
        return nnf.conv2d(x, weight, bias, padding=padding)[:, :outputs]
    return nnf.conv2d(x, weight, bias, padding=padding)


def fill_channels(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Add zeros up to a multiple of eight input and output channels; return the number of outputs, too."""
    outputs, inputs = weight.shape[:2]
    more_outputs, more_inputs = -outputs % _TOGETHER, -inputs % _TOGETHER
    if more_inputs:
        x = nnf.pad(x, (0, 0, 0, 0, 0, more_inputs))
    if more_inputs or more_outputs:
        weight = nnf.pad(weight, (0, 0, 0, 0, 0, more_inputs, 0, more_outputs))
    if bias is not None and more_outputs:
        bias = nnf.pad(bias, (0, more_outputs))
    return x, weight, bias, outputs


def zeroed(layer: nn.Conv2d) -> nn.Conv2d:
    """Return the layer with weights of 0, so that what it is added to does not change before training."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def group_norm(channels: int) -> nn.GroupNorm:
    """A group norm with up to eight groups."""
    return nn.GroupNorm(math.gcd(_GROUPS, channels), channels)


def add_norm_relu(x: Tensor, bias: Tensor, norm: nn.GroupNorm) -> Tensor:
    """ReLU of the group norm of x + b, (batch, channel, H, W), with a bias b for each channel."""
    if not uses_kernels(x):
        return norm(x + bias[:, None, None]).relu()
    from upmri.networks import fused_norm

    return fused_norm.norm_relu(x, bias, norm.weight, norm.bias, norm.num_groups, norm.eps)


def log_parameter(value: float) -> nn.Parameter:
    """The logarithm of a number as a parameter; NaN of a negative one, which a loaded value replaces.

    Not ``.log()`` of a tensor: on the meta device, where weights are loaded, it imports torch's compiler, for 1.5 s.
    """
    logarithm = math.log(value) if value > 0 else -math.inf if value == 0 else math.nan
    return nn.Parameter(torch.tensor(logarithm))


def halve(x: Tensor) -> Tensor:
    """Mean over 2×2 pixels."""
    if not uses_kernels(x):
        return nnf.avg_pool2d(x, 2)
    from upmri.networks import fused_resample

    return fused_resample.halve_pixels(x)


def join(low: Tensor, skip: Tensor) -> Tensor:
    """Channels of ``low``, interpolated to twice its size (nearest neighbour), followed by those of ``skip``."""
    if not uses_kernels(low):
        return torch.cat([nnf.interpolate(low, scale_factor=2, mode="nearest"), skip], 1)
    from upmri.networks import fused_resample

    return fused_resample.join_levels(low, skip)
