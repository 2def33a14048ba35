"""The ADM U-Net: sizes, dependence on time, and derivatives."""

from dataclasses import replace

import pytest
import torch

from upmri.networks.adm import SIZES, Adm, AdmConfig

TINY = SIZES["tiny"]


def random_weights(config, seed=0):
    """A network with random weights in place of zeros."""
    torch.manual_seed(seed)
    network = Adm(config).double().eval()
    for parameter in network.parameters():
        if parameter.abs().max() == 0:
            torch.nn.init.normal_(parameter, std=0.1)
    return network


@pytest.mark.parametrize(("name", "most"), [("tiny", 0.5e6), ("small", 5.5e6), ("base", 26e6)])
def test_sizes(name, most):
    count = sum(p.numel() for p in Adm(SIZES[name]).parameters())
    assert 0.5 * most < count <= most


def test_starts_at_zero():
    x = torch.randn(2, 2, 24, 24)
    assert torch.equal(Adm(TINY)(x, torch.rand(2)), torch.zeros(2, 2, 24, 24))


@pytest.mark.parametrize("shape", [(16, 16), (17, 23), (5, 40)])
@pytest.mark.parametrize("unshuffle", [1, 2])
def test_any_size_by_padding(shape, unshuffle):
    network = random_weights(replace(TINY, unshuffle=unshuffle))
    out = network(torch.randn(2, 2, *shape, dtype=torch.float64), torch.rand(2).double())
    assert out.shape == (2, 2, *shape)
    assert out.abs().max() > 0


def test_depends_on_the_time():
    network, x = random_weights(TINY), torch.randn(1, 2, 16, 16, dtype=torch.float64)
    early, late = (network(x, torch.tensor([t])) for t in (0.1, 0.9))
    assert (early - late).norm() > 1e-3 * early.norm()


def test_slices_do_not_mix():
    network, x = random_weights(TINY), torch.randn(3, 2, 16, 16, dtype=torch.float64)
    t = torch.tensor([0.1, 0.5, 0.9])
    assert torch.allclose(network(x, t)[1:2], network(x[1:2], t[1:2]))


def test_dropout_and_attention_only_at_the_two_lowest_levels():
    network = Adm(AdmConfig(width=16, multipliers=(1, 1, 2, 2), blocks=1, head=16))
    stages = [stage for stage in network.down if hasattr(stage, "residual")]
    assert [stage.residual.dropout.p for stage in stages] == [0, 0, 0.1, 0.1]
    assert [isinstance(stage.attention, torch.nn.Identity) for stage in stages] == [True, True, False, False]


def test_forward_mode_agrees_with_differences():
    network = random_weights(TINY)
    x, v = (torch.randn(1, 2, 16, 16, dtype=torch.float64) for _ in range(2))
    t = torch.tensor([0.3])
    _, tangent = torch.func.jvp(lambda z: network(z, t), (x,), (v,))
    step = 1e-5
    difference = (network(x + step * v, t) - network(x - step * v, t)) / (2 * step)
    assert torch.allclose(tangent, difference, rtol=1e-5, atol=1e-7)


def test_double_backward():
    network = random_weights(TINY)
    x = torch.randn(1, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(network(x, torch.tensor([0.3])).square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert x.grad.abs().max() > 0
