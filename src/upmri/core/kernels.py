"""Whether kernels written in Triton can be used."""

from __future__ import annotations

from functools import cache
from importlib import util

import torch
from torch import Tensor


def uses_kernels(x: Tensor) -> bool:
    """Whether work on a tensor is done by Triton kernels: on CUDA devices, but for ``torch.func`` and double precision.

    Transforms of ``torch.func`` have no rules for them.
    """
    short = x.dtype not in (torch.float64, torch.complex128)
    return x.is_cuda and short and triton_installed() and not torch._C._are_functorch_transforms_active()


@cache
def triton_installed() -> bool:
    """Whether Triton can be imported; PyTorch for CUDA brings it along on Linux."""
    return util.find_spec("triton") is not None
