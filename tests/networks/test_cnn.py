"""The small networks inside unrolled ones."""

import pytest
import torch
from torch import nn

from upmri.networks.cnn import Cnn, UNet, on_channels
from upmri.networks.layers import Convolution


def random_weights(network):
    """The network with random weights in place of zeros."""
    for parameter in network.parameters():
        if parameter.count_nonzero() == 0:
            nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(1))
    return network.double()


def test_the_cnn_is_that_of_modl_except_for_the_norm():
    convolutions = [layer for layer in Cnn().modules() if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [(2, 64), (64, 64), (64, 64), (64, 64), (64, 2)]
    assert {c.kernel_size for c in convolutions} == {(3, 3)}
    kinds = [type(layer) for layer in Cnn(3, 8).modules() if not list(layer.children())]
    assert kinds == 2 * [Convolution, nn.GroupNorm, nn.ReLU] + [Convolution]


@pytest.mark.parametrize("network", [Cnn(3, 6), UNet(3), UNet(8, (1, 2))])
@pytest.mark.parametrize("shape", [(16, 12), (13, 9)])
def test_any_size_and_no_mixing_of_slices(rng, network, shape):
    x = rng(3, *shape)
    out = on_channels(random_weights(network), x)
    assert out.shape == x.shape
    assert out.dtype == x.dtype
    assert out.abs().min() > 0
    assert torch.allclose(on_channels(network, x[1:2]), out[1:2], rtol=1e-9)
    x[0] = 7
    assert torch.allclose(on_channels(network, x)[1:], out[1:], rtol=1e-9)


@pytest.mark.parametrize("kind", [Cnn, UNet])
def test_untrained_its_output_is_zero(rng, kind):
    assert (on_channels(kind(), rng(1, 8, 8, dtype=torch.complex64)) == 0).all()


def test_the_u_net_has_a_large_and_a_small_reach(rng):
    """A pixel changes some that are 9 away, through the lowest level, and its neighbours differently."""
    torch.manual_seed(0)
    network, x = random_weights(UNet(8)), rng(1, 64, 64)
    for module in network.modules():
        if isinstance(module, nn.GroupNorm):
            module.forward = lambda h: h  # it would make every pixel depend on every other
    moved = x.clone()
    moved[0, 32, 32] += 5
    with torch.no_grad():
        change = (on_channels(network, moved) - on_channels(network, x))[0].abs()
    assert change[:, :24].max() > 0
    assert change[0, 0] == 0
    assert len(change[32:34, 32:34].unique()) == 4


def test_channels_are_the_real_and_the_imaginary_part(rng):
    x = rng(2, 4, 5)

    class Rotate(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.ones((), dtype=torch.float64))

        def forward(self, channels):
            return self.one * torch.stack([-channels[:, 1], channels[:, 0]], 1)

    assert torch.equal(on_channels(Rotate(), x), 1j * x)


def test_the_network_s_precision_is_its_own(rng):
    x = rng(1, 8, 8, dtype=torch.complex64)
    assert on_channels(Cnn(2, 4).to(torch.bfloat16), x).dtype == torch.complex64


def test_levels_of_the_u_net_are_means_and_odd_sizes_are_padded_at_the_end(rng):
    network, x = random_weights(UNet(4)), rng(1, 13, 9)
    outputs = []
    network.down[0].register_forward_hook(lambda *call: outputs.append(call[2]))
    network.down[1].register_forward_pre_hook(lambda *call: outputs.append(call[1][0]))
    padded = torch.nn.functional.pad(x, (0, 3, 0, 3))
    with torch.no_grad():
        assert torch.allclose(on_channels(network, x), on_channels(network, padded)[:, :13, :9], rtol=1e-9)
    above, below = outputs[:2]
    assert torch.allclose(below, above.unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1)))
