"""The precision of convolutional networks: 16 bits where a processor computes in them."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_copies: weakref.WeakKeyDictionary[nn.Module, _Copy] = weakref.WeakKeyDictionary()


def for_inference(network: nn.Module) -> nn.Module:
    """Return a copy of a network whose submodules compute in 16 bits where the device has instructions for it.

    Parameters of the network itself, such as a damping, keep their precision, and so does everything that is not a
    submodule, such as solvers. The copy is kept; weights that have changed in place since are copied into it. A change
    shows in a tensor's version, but not that by a ``torch._foreach_…_`` function on an accelerator, and optimisers use
    those: weights that require gradients are always copied, and for others :func:`note_change` must be called. Where
    gradients are recorded the network itself is returned.

    Parameters
    ----------
    network
        Unrolled network in single precision; one in another precision is returned as it is.
    """
    weights: list[Tensor] = list(network.parameters())
    if torch.is_grad_enabled() or not weights or weights[0].dtype != torch.float32:
        return network
    short = short_type(weights[0].device)
    if short is None:
        return network
    where, versions = [(w.data_ptr(), w.device) for w in weights], [_version(w) for w in weights]
    kept = _copies.get(network)
    if kept is None or kept.where != where:
        kept = _copies[network] = _Copy(_short_copy(network, short).requires_grad_(False), where, versions)
    elif kept.versions != versions or any(w.requires_grad for w in weights):
        # In place: on an accelerator the recorded passes of the copy stay valid.
        torch._foreach_copy_(list(kept.network.parameters()), weights)
        kept.versions = versions
    return kept.network


def note_change(weights: Iterable[Tensor]) -> None:
    """Count a change of these weights in place, so that :func:`for_inference` sees it."""
    torch.autograd.graph.increment_version(list(weights))


class ShortPasses:
    """A copy of a network for forward and backward passes, whose submodules compute in bfloat16.

    The weights in single precision stay with the given network: bfloat16 would round small steps away.

    Parameters
    ----------
    network
        Network that is trained.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = _short_copy(network, torch.bfloat16)
        self._weights: list[Tensor] = list(network.parameters())
        self._copies: list[Tensor] = list(self.network.parameters())
        self._buffers = list(zip(network.buffers(), self.network.buffers(), strict=True))

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the trained weights and the buffers into the network for the passes."""
        torch._foreach_copy_(self._copies, self._weights)
        for buffer, copied in self._buffers:
            copied.copy_(buffer)

    @torch.no_grad()
    def hand_over(self) -> None:
        """Move the gradients of the passes to the trained weights, and buffers that the passes have changed."""
        for weight, copied in zip(self._weights, self._copies, strict=True):
            if copied.grad is not None:
                weight.grad = torch.empty_like(weight).copy_(copied.grad)
                copied.grad = None
        for buffer, copied in self._buffers:
            if not torch.equal(buffer.to(copied.dtype), copied):  # others keep their precision
                buffer.copy_(copied)


def trains_in_16_bits(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16, whose range gradients need."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return short_type(device) is torch.bfloat16


def short_type(device: torch.device) -> torch.dtype | None:
    """Number format of 16 bits in which the device computes, None for one that only emulates them.

    An accelerator has float16, with three bits more than bfloat16. Group norms keep the networks within its range.
    """
    if device.type == "cuda":
        return torch.float16 if torch.cuda.get_device_capability(device) >= (7, 0) else None
    if device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return torch.bfloat16
    return None


@dataclass
class _Copy:
    """A copy for inference, and the memory and versions of the weights it was made of."""

    network: nn.Module
    where: list[tuple[int, torch.device]]
    versions: list[int]


def _short_copy(network: nn.Module, short: torch.dtype) -> nn.Module:
    fast = copy.deepcopy(network)
    for child in fast.children():
        child.to(short, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return fast


def _version(tensor: Tensor) -> int:
    """Count of changes in place; tensors made in inference mode keep none, and cannot be trained."""
    return 0 if tensor.is_inference() else tensor._version
