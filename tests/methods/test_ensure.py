"""ENSURE: its weights, the normal equations it does not need, and its expectation over masks."""

import pytest
import torch

from upmri.learning.partition import energy, misfit
from upmri.methods.ensure import EnsureObjective, inverse_probability
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

H, W, ACS = 6, 32, 6
CENTRE = torch.zeros(1, W, dtype=torch.bool)
CENTRE[0, (W - ACS + 1) // 2 :][:ACS] = True


def weights(parts):
    """The weight of every entry of k-space, (slice, 1 or H, W)."""
    return sum(part.mask * part.weight[:, None, None] for part in parts)


def test_the_weights_by_hand():
    """Of nine lines outside two were sampled: p = 2/9."""
    mask = torch.zeros(1, 1, 12, dtype=torch.bool)
    mask[..., [1, 5, 6, 7, 10]] = True
    found = weights(inverse_probability(mask, 9, torch.ones(1)))
    expected = torch.zeros(12)
    expected[[5, 6, 7]], expected[[1, 10]] = 1, 4.5
    assert torch.allclose(found[0, 0], expected)


@pytest.mark.parametrize("rows", [1, 12])
def test_the_weights_sum_to_all_of_k_space(rows):
    mask = torch.rand(5, rows, 40, generator=torch.Generator().manual_seed(0)) < 0.4
    mask[:, 4:8, 18:22] = True
    if rows == 1:
        mask[..., 18:22] = True
    found = weights(inverse_probability(mask, 12, torch.ones(5)))
    assert torch.allclose(found.sum((1, 2)), torch.full((5,), rows * 40.0))
    assert torch.equal(found > 0, mask)
    full = torch.ones(1, 1, 12, dtype=torch.bool)
    assert torch.equal(weights(inverse_probability(full, 9, torch.ones(1))), torch.ones(1, 1, 12))


def make_problem(count, coils, sigma, rng):
    """A problem of white images, in which all lines have the same mean energy; and the images."""
    maps = torch.ones(count, 1, H, W) + 0j if coils == 1 else rng(1, coils, H, W).expand(count, -1, -1, -1)
    maps = (maps / maps.abs().square().sum(1, keepdim=True).sqrt()).to(torch.complex128)
    x = rng(count, H, W)
    masks = torch.stack([random_lines(W, 2, ACS, seed=i) for i in range(count)])
    kspace = (fft2c(maps * x[:, None]) + sigma * rng(count, coils, H, W)) * masks[:, None]
    sigmas = torch.full((count,), sigma, dtype=torch.float64)
    return Problem(SenseOperator(maps, masks), kspace, sigma=sigmas, scaled=True, seeds=range(count)), x


def gap(network, problem, x):
    """Mean of estimate − true error of the whole image, its standard error, and the mean true error."""
    images = []

    def recorded(operator, z):
        images.append(network(operator, z))
        return images[-1]

    estimate = EnsureObjective().loss(recorded, problem) * energy(problem)
    truth = (images[0] - x).abs().square().sum((1, 2))
    off = estimate - truth
    return off.mean().item(), off.std().item() / len(off) ** 0.5, truth.mean().item()


def of_the_centre(operator, z):
    """A nonlinear network that looks at calibration lines alone: its error does not depend on the mask."""
    low = CENTRE * fft2c(z)
    return ifft2c(1.5 * torch.tanh(low.real) + 0.5j * low.imag + 0.3 * CENTRE * low.conj().roll(1, -1))


def test_with_one_coil_it_is_the_error_of_the_whole_image(rng, changed):
    """In the mean over masks and noise, for errors that do not depend on the mask."""
    problem, x = make_problem(4000, 1, 0.8, rng)
    mean, error, size = gap(of_the_centre, problem, x)
    assert error < 0.01 * size
    assert abs(mean) < 4 * error
    silent, _, _ = gap(of_the_centre, changed(problem, sigma=0 * problem.sigma), x)
    assert silent > 10 * error  # without Stein's terms it is not


def test_with_many_coils_it_is_the_error_of_the_whole_image_too(rng):
    """E[A* w A] = I: for a prediction that does not depend on the scan there is no bias."""
    problem, x = make_problem(4000, 3, 0.8, rng)
    image = 0.7 * x + 0.3 * rng(H, W)
    mean, error, size = gap(lambda _, z: image + 0 * z, problem, x)
    assert error < 0.02 * size
    assert abs(mean) < 4 * error


@pytest.mark.parametrize(("coils", "low", "high"), [(1, 0.0, 0.05), (3, 0.2, 0.7)])
def test_the_error_of_a_network_that_fits_its_samples_is_underestimated(rng, coils, low, high):
    """Least squares is right on the samples. ENSURE sees none of its error with one coil, and half with three."""
    problem, x = make_problem(500, coils, 0.01, rng)
    mean, error, size = gap(lambda operator, z: operator.solve(z, 1e-2), problem, x)
    assert low < (mean + size) / size < high


@pytest.mark.parametrize("coils", [1, 3])
def test_the_misfit_of_the_data_replaces_that_of_least_squares(rng, dense, coils):
    """‖√w (A x − y)‖² is ‖√w A (x − u)‖² but for a constant; with one coil u is A⁺y."""
    problem, _ = make_problem(1, coils, 0.5, rng)
    parts = inverse_probability(problem.operator.mask, H, problem.sigma)
    A, y = dense(problem.operator.forward, (1, H, W)), problem.kspace.flatten()
    root = weights(parts).sqrt()[:, None].expand(1, coils, H, W).flatten().to(A)
    u = torch.linalg.lstsq(root[:, None] * A, root * y, driver="gelsd").solution
    if coils == 1:
        assert torch.allclose(u, torch.linalg.pinv(A) @ y, atol=1e-8)
    images = rng(5, H * W)
    ours = torch.stack(
        [sum(p.weight * misfit(x.reshape(1, H, W), problem.restrict(p.mask)) for p in parts)[0] for x in images]
    )
    theirs = torch.stack([(root * (A @ (x - u))).abs().square().sum() for x in images])
    assert torch.allclose(ours - theirs, (ours - theirs)[0].expand(5), atol=1e-6)
    assert theirs.std() > 1


@pytest.mark.parametrize("bend", [0.0, 0.5], ids=["linear", "nonlinear"])
def test_the_loss_and_its_gradient_written_out(problem, Recorder, Plain, monkeypatch, rng, bend):
    unit, network = rng(*problem.kspace.shape), Recorder(bend)
    monkeypatch.setattr(Problem, "unit_noise", lambda *_: unit)
    found = EnsureObjective().loss(network, problem)
    w = weights(inverse_probability(problem.operator.mask, problem.kspace.shape[-2], problem.sigma))[:, None]
    _, error = Plain(problem.operator.maps, problem.operator.mask).sure(network, problem, unit, w)
    network.agrees(found, error / problem.kspace.abs().square().sum((1, 2, 3)))
