"""The precision of convolutional networks at inference: 16 bits where a processor computes in them."""

from __future__ import annotations

import copy
import weakref

import torch
from torch import Tensor, nn

_copies: weakref.WeakKeyDictionary[nn.Module, tuple[object, nn.Module]] = weakref.WeakKeyDictionary()


def for_inference(network: nn.Module) -> nn.Module:
    """Return a copy of a network whose submodules compute in 16 bits where the device has instructions for it.

    Parameters of the network itself, such as a damping, keep their precision, and so does everything that is not a
    submodule, such as solvers. The copy is kept, and made anew when weights have changed. Where gradients are recorded
    the network itself is returned.

    Parameters
    ----------
    network
        Unrolled network in single precision; one in another precision is returned as it is.
    """
    weights = list(network.parameters())
    if torch.is_grad_enabled() or not weights or weights[0].dtype != torch.float32:
        return network
    short = short_type(weights[0].device)
    if short is None:
        return network
    state = [(w.data_ptr(), w.device, _version(w)) for w in weights]
    if network not in _copies or _copies[network][0] != state:
        fast = copy.deepcopy(network).requires_grad_(False)
        for child in fast.children():
            child.to(short, memory_format=torch.channels_last)  # type: ignore[call-overload]
        _copies[network] = state, fast
    return _copies[network][1]


def short_type(device: torch.device) -> torch.dtype | None:
    """Number format of 16 bits in which the device computes, None for one that only emulates them.

    An accelerator has float16, with three bits more than bfloat16. Group norms keep the networks within its range.
    """
    if device.type == "cuda":
        return torch.float16 if torch.cuda.get_device_capability(device) >= (7, 0) else None
    if device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return torch.bfloat16
    return None


def _version(tensor: Tensor) -> int:
    """Count of changes in place; tensors made in inference mode keep none, and cannot be trained."""
    return 0 if tensor.is_inference() else tensor._version
