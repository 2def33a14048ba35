"""The second measurement, computed with images, against the same with coil data."""

import pytest
import torch

from upmri.learning.remeasure import inconsistency, sure_with_consistency
from upmri.learning.sure import sure
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("rows", [1, 6])
def test_values_and_gradients_are_those_of_coil_data(rng, rows, moving):
    maps, unit, sigma = rng(2, 3, 6, 8), rng(2, 3, 6, 8), torch.tensor([0.3, 2.0], dtype=torch.float64)
    mask = torch.rand(2, rows, 8, generator=torch.Generator().manual_seed(0)) < 0.5
    image, gain = rng(2, 6, 8).requires_grad_(), torch.tensor(0.4, dtype=torch.float64, requires_grad=True)

    def network(operator, z):
        return gain * z + torch.sin(z.real) - 0.1j * z.imag**2

    ours = inconsistency(network, SenseOperator(maps, mask), image, sigma, unit, moving=moving)
    data = mask[:, None] * (fft2c(maps * image[:, None]) + sigma[:, None, None, None] * unit)
    again = network(None, (maps.conj() * ifft2c(data)).sum(1))
    plain = (again - (image if moving else image.detach())).abs().square().sum((1, 2))
    assert torch.allclose(ours, plain)
    weight = torch.tensor([1.0, -2.0])
    for of in (image, gain):
        slopes = [torch.autograd.grad((weight * loss).sum(), of, retain_graph=True)[0] for loss in (ours, plain)]
        assert torch.allclose(*slopes)
        assert slopes[0].abs().max() > 0.1


def test_the_mean_over_the_noise(rng):
    """For a linear network c: ‖(c N − 1) x‖² + c² σ₀² tr N."""
    count, sigma, c = 8000, 0.5, 0.7
    maps = rng(1, 3, 4, 6).expand(count, -1, -1, -1)
    mask = torch.tensor([True, False, True, True, False, True])[None, None].expand(count, -1, -1)
    operator, x = SenseOperator(maps, mask), rng(1, 4, 6).expand(count, -1, -1)
    sigmas = torch.full((count,), sigma, dtype=torch.float64)
    found = inconsistency(lambda _, z: c * z, operator, x, sigmas, rng(count, 3, 4, 6), moving=True)
    fixed = (c * operator.normal(x)[0] - x[0]).abs().square().sum()
    trace = maps[0].abs().square().sum() * 4 / 6  # each coil's pixels, by the share of lines
    expected = fixed + c**2 * sigma**2 * trace
    assert abs(found.mean() - expected) < 4 * found.std() / count**0.5
    assert found.std() / count**0.5 < 0.1 * (expected - fixed)


@pytest.mark.parametrize("rows", [1, 6])
def test_sure_with_consistency_is_the_weighted_sum(rng, rows):
    """[SURE(x̂)/s + α gap(x̂)] / ‖y‖²: s the sampled share of k-space, b the problem's own noise."""
    mask = torch.rand(2, rows, 8, generator=torch.Generator().manual_seed(0)) < 0.5
    kspace, sigma = rng(2, 3, 6, 8), torch.tensor([0.3, 2.0], dtype=torch.float64)
    problem = Problem(SenseOperator(rng(2, 3, 6, 8), mask), kspace, sigma=sigma, scaled=True, seeds=(3, 4))
    images = []

    def gap(image):
        images.append(image)
        return image.abs().square().sum((1, 2))

    found = sure_with_consistency(lambda _, z: 0.5 * z, problem, gap, 0.7)
    unit = problem.with_seeds((3, 4)).unit_noise(3, 6, 8)
    error, image = sure(lambda _, z: 0.5 * z, problem, unit)
    assert torch.equal(images[0], image)
    share, energy = mask.double().mean((1, 2)), (mask[:, None] * kspace).abs().square().sum((1, 2, 3))
    assert torch.allclose(found, (error / share + 0.7 * image.abs().square().sum((1, 2))) / energy)
