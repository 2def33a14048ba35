"""Where kernels are used."""

import torch

from upmri.core import kernels
from upmri.core.kernels import uses_kernels


class OnCuda:
    """What is asked of a tensor on a CUDA device."""

    is_cuda = True

    def __init__(self, dtype):
        self.dtype = dtype


def test_only_on_cuda_in_single_precision_with_triton(monkeypatch):
    monkeypatch.setattr(kernels, "triton_installed", lambda: True)
    assert uses_kernels(OnCuda(torch.float16))
    assert uses_kernels(OnCuda(torch.complex64))
    assert not uses_kernels(OnCuda(torch.float64))
    assert not uses_kernels(OnCuda(torch.complex128))
    assert not uses_kernels(torch.zeros(2))
    monkeypatch.setattr(kernels, "triton_installed", lambda: False)
    assert not uses_kernels(OnCuda(torch.float16))


def test_not_within_transforms(monkeypatch):
    monkeypatch.setattr(kernels, "triton_installed", lambda: True)
    found = []
    torch.func.vmap(lambda x: found.append(uses_kernels(OnCuda(torch.float32))) or x)(torch.zeros(2))
    assert found == [False]
