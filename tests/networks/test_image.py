"""The U-Net as a map of complex images."""

import torch

from upmri.networks.adm import SIZES, Adm
from upmri.networks.channels import channels, complex_image
from upmri.networks.image import ImageNetwork


def network():
    """With random weights in place of zeros."""
    torch.manual_seed(0)
    made = ImageNetwork("tiny").eval()
    for parameter in made.parameters():
        if parameter.abs().max() == 0:
            torch.nn.init.normal_(parameter, std=0.1)
    return made


def test_it_is_the_u_net_on_real_and_imaginary_parts(rng):
    z, t, made = rng(3, 17, 12, dtype=torch.complex64), torch.tensor([0.0, 0.4, 1.0]), network()
    with torch.no_grad():
        found = made(z, t)
        assert torch.equal(found, complex_image(made.network(channels(z), t)))
        assert torch.allclose(made(z[1:2], t[1:2]), found[1:2], atol=1e-5)
    assert found.shape == z.shape
    assert found.dtype == torch.complex64
    assert found.abs().max() > 0


def test_it_starts_at_zero(rng):
    z = rng(2, 16, 16, dtype=torch.complex64)
    assert torch.equal(ImageNetwork("tiny")(z, torch.rand(2)), torch.zeros_like(z))


def test_the_size_is_that_of_the_u_net():
    for size in ("tiny", "small"):
        count = sum(parameter.numel() for parameter in ImageNetwork(size).parameters())
        assert count == sum(parameter.numel() for parameter in Adm(SIZES[size]).parameters())


def test_the_u_net_may_be_of_half_precision(rng):
    z, t, made = rng(1, 16, 16, dtype=torch.complex64), torch.tensor([0.3]), network()
    with torch.no_grad():
        whole = made(z, t)
        made.network.to(torch.bfloat16)
        half = made(z, t)
    assert half.dtype == torch.complex64
    assert 0 < (half - whole).norm() < 0.05 * whole.norm()
