"""Denoising VarNet: its cascade in k-space, as published, and which entries each U-Net changes."""

import pytest
import torch

from upmri.networks.cnn import on_channels
from upmri.networks.denoising_varnet import DenoisingVarNet
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.sense import SenseOperator


@pytest.fixture
def setting(rng):
    maps = rng(2, 3, 8, 12, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.rand(2, 1, 12, generator=torch.Generator().manual_seed(0)) < 0.5
    torch.manual_seed(0)
    network = DenoisingVarNet(cascades=2, width=8)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return SenseOperator(maps, mask), rng(2, 3, 8, 12, dtype=torch.complex64), network


@torch.no_grad()
def test_a_cascade_is_that_of_coil_k_space(setting):
    """k ← k − η M (k − y) + (1−M) F S R(x) + M F S D(x), x = S*F*k, each time combined to an image."""
    operator, y, network = setting
    maps, mask = operator.maps, operator.mask[:, None]
    x = (maps.conj() * ifft2c(mask * y)).sum(1)
    for eta, fill, clean in zip(network.steps, network.filling, network.denoising, strict=True):
        k = fft2c(maps * x[:, None])
        k = k - eta * mask * (k - y)
        k = (
            k
            + ~mask * fft2c(maps * on_channels(fill, x)[:, None])
            + mask * fft2c(maps * on_channels(clean, x)[:, None])
        )
        x = (maps.conj() * ifft2c(k)).sum(1)
    assert torch.allclose(network(operator, operator.adjoint(y)), x, atol=1e-4 * x.abs().max().item())


@torch.no_grad()
def test_before_training_it_is_a_gradient_step(setting):
    operator, y, _ = setting
    adjoint = operator.adjoint(y)
    made = DenoisingVarNet(cascades=1, width=8)(operator, adjoint)
    assert torch.allclose(made, 2 * adjoint - operator.normal(adjoint), atol=1e-5)


def test_gradients_reach_every_weight(setting):
    operator, y, network = setting
    network(operator, operator.adjoint(y)).abs().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    assert (network.steps.grad != 0).all()
