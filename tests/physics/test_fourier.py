import numpy as np
import pytest
import torch

from upmri.physics.fourier import (
    centred,
    exponentials,
    fft1c,
    fft2c,
    ifft1c,
    ifft2c,
    lower_resolution,
    middle,
    mirror,
    without_oversampling,
)


@pytest.mark.parametrize("shape", [(8, 8), (7, 9), (3, 6, 5)])
def test_agrees_with_numpy(shape, rng):
    x = rng(*shape)
    axes = (-2, -1)
    expected = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(x.numpy(), axes), norm="ortho"), axes)
    assert np.allclose(fft2c(x).numpy(), expected, atol=1e-12)
    assert torch.allclose(ifft2c(fft2c(x)), x)


@pytest.mark.parametrize("n", [8, 9])
def test_a_point_at_the_centre_has_a_flat_spectrum(n):
    x = torch.zeros(n, n, dtype=torch.complex128)
    x[n // 2, n // 2] = 1
    assert torch.allclose(fft2c(x), torch.full((n, n), 1 / n, dtype=torch.complex128))


def test_two_one_dimensional_transforms_make_the_plane(rng):
    x = rng(6, 7)
    assert torch.allclose(fft1c(fft1c(x, -1), -2), fft2c(x))
    assert torch.allclose(ifft1c(ifft1c(x, -1), -2), ifft2c(x))


def test_is_unitary(rng):
    x, y = rng(5, 8), rng(5, 8)
    assert torch.allclose(torch.vdot(fft2c(x).flatten(), y.flatten()), torch.vdot(x.flatten(), ifft2c(y).flatten()))


@pytest.mark.parametrize(("samples", "length"), [(12, 6), (12, 5), (11, 6), (7, 7)])
@pytest.mark.parametrize("dim", [-1, -2])
def test_oversampling_is_cut_from_the_image(rng, samples, length, dim):
    """What is left lies around the same centre."""
    first = samples // 2 - length // 2
    x = rng(3, samples, samples)
    kept = x.narrow(dim, first, length)
    assert torch.allclose(without_oversampling(fft1c(x, dim), length, dim), fft1c(kept, dim))
    assert kept.select(dim, length // 2).equal(x.select(dim, samples // 2))


def test_lower_resolution_keeps_smooth_images_and_their_scale():
    y, x = torch.meshgrid(torch.arange(24) - 12, torch.arange(18) - 9, indexing="ij")
    wave = 2 + torch.exp(2j * torch.pi * (2 * y / 24 + x / 18))  # periods over the field of view
    y, x = torch.meshgrid(torch.arange(8) - 4, torch.arange(6) - 3, indexing="ij")
    expected = 2 + torch.exp(2j * torch.pi * (2 * y / 8 + x / 6))

    assert torch.allclose(lower_resolution(wave, 8, 6), expected, atol=1e-5)


@pytest.mark.parametrize("dims", [(), (-1,), (-2, -1)])
def test_mirroring_keeps_the_centre_in_image_and_kspace(rng, dims):
    x = rng(2, 1, 6, 5)
    mirrored = mirror(x, *dims)
    assert torch.allclose(fft2c(mirrored), mirror(fft2c(x), *dims))
    assert mirrored[..., 3, 2].equal(x[..., 3, 2])
    assert mirror(mirrored, *dims).equal(x)
    assert mirror(x, 1).equal(x)


def test_the_middle_of_a_plane_is_cut_where_it_is_larger(rng):
    x = rng(2, 9, 4)
    assert middle(x, 4, 3).equal(x[:, 2:6, 1:4])
    assert middle(x, 4, 30).equal(x[:, 2:6])
    assert middle(x, 9, 4).equal(x)


@pytest.mark.parametrize("n", [8, 9])
def test_exponentials_are_the_matrix_of_the_transform(n, rng):
    x = rng(n)
    assert torch.allclose(exponentials(centred(n), centred(n) / n) @ x / n**0.5, ifft1c(x))
    assert torch.allclose(exponentials(centred(n), -centred(n) / n) @ x / n**0.5, fft1c(x))
