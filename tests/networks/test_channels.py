"""Complex images as real channels and back."""

import torch

from upmri.networks.channels import channels, complex_image


def test_channels_round_trip(rng):
    x = rng(2, 5, 7, dtype=torch.complex64)
    assert torch.equal(complex_image(channels(x)), x)
    assert torch.equal(channels(x)[:, 1], x.imag)


def test_several_images_of_a_slice_lie_side_by_side(rng):
    x = rng(2, 3, 5, 7, dtype=torch.complex64)
    made = channels(x)
    assert made.shape == (2, 6, 5, 7)
    assert torch.equal(made[:, 4], x[:, 2].real)
    assert torch.equal(made[:, 5], x[:, 2].imag)
