"""The test of draws: right for exact posterior draws of a linear Gaussian model, and wrong ones are found."""

import pytest
import torch

from upmri.learning.bands import by_band
from upmri.learning.draw_test import BandTest, compare, energies, on_held_out, on_sampled, on_truth
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

SIZE, SCANS, COUNT, SIGMA = 12, 40, 12, 0.25
EDGES = (2.5, 4.5)  # three bands of a small k-space


@pytest.fixture(scope="module")
def model():
    """Coil maps, the square root of the prior's covariance (stationary, a falling spectrum), images and their scans."""
    generator = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(*(torch.linspace(-1, 1, SIZE, dtype=torch.float64),) * 2, indexing="ij")
    maps = torch.stack(
        [torch.exp(-((y - a) ** 2 + (x - b) ** 2)) * (1 + 0.5j * a * x) for a, b in ((-1, 0), (1, 1), (0, -1))]
    )
    maps = maps / maps.abs().square().sum(0).sqrt()
    distance = torch.hypot(y, x) * SIZE / 2
    spectrum = 6 / (1 + distance**2 / 4)

    def draw(count):
        white = torch.randn(count, SIZE, SIZE, dtype=torch.complex128, generator=generator)
        return ifft2c(spectrum * fft2c(white))

    images = draw(SCANS)
    eye = torch.eye(SIZE**2, dtype=torch.complex128).reshape(-1, SIZE, SIZE)
    root = ifft2c(spectrum * fft2c(eye)).flatten(1).T
    mask = torch.stack([random_lines(SIZE, 2, acs=4, seed=i) for i in range(SCANS)])
    operator = SenseOperator(maps.expand(SCANS, -1, -1, -1), mask)
    noise = SIGMA * torch.randn(SCANS, 3, SIZE, SIZE, dtype=torch.complex128, generator=generator)
    data = operator(images) + noise * mask[:, None]
    problem = Problem(
        operator, data, sigma=torch.full((SCANS,), SIGMA, dtype=torch.float64), scaled=True, seeds=range(SCANS)
    )
    return problem, images, root @ root.mH


def exact(covariance, width=1.0):
    """Mean and draws of the posterior, C = (Σ⁻¹ + N/σ²)⁻¹, by dense algebra, with deviations times ``width``."""
    inverse = torch.linalg.inv(covariance)
    eye = torch.eye(SIZE**2, dtype=torch.complex128).reshape(-1, 1, SIZE, SIZE)

    def sample(problem):
        normal = problem.operator.normal(eye.expand(-1, len(problem), -1, -1)).flatten(2).permute(1, 2, 0)
        level = problem.sigma.square()[:, None, None]
        posterior = torch.linalg.inv(inverse + normal / level)
        mean = (posterior @ (problem.adjoint.flatten(1)[..., None] / level))[..., 0]
        root = torch.linalg.cholesky((posterior + posterior.mH) / 2)
        white = torch.stack(
            [torch.randn(SIZE**2, COUNT, dtype=torch.complex128, generator=g) for g in problem.generators]
        )
        draws = mean[None] + width * (root @ white).permute(2, 0, 1)
        return mean.unflatten(1, (SIZE, SIZE)), draws.unflatten(2, (SIZE, SIZE))

    return sample


def results(model, sample):
    """The three tests: held-out lines, sampled positions, and the truth."""
    problem, images, _ = model
    return {
        "held out": on_held_out(sample, problem.with_seeds(range(SCANS)), 4, EDGES),
        "sampled": on_sampled(sample, problem.with_seeds(range(SCANS)), 1.0, EDGES),
        "truth": on_truth(*sample(problem.with_seeds(range(SCANS))), images, problem.unknowns, EDGES),
    }


def bands_of(name):
    """The calibration region, in the first band, is never held out."""
    return slice(int(name == "held out"), None)


def test_exact_draws_pass_in_every_band(model):
    for name, found in results(model, exact(model[2])).items():
        bands = bands_of(name)
        assert ((found.ratio[bands] - 1).abs() < 0.15).all(), (name, found.ratio)
        assert ((found.outer_ranks[bands] - 1).abs() < 0.12).all(), (name, found.outer_ranks)
        share = found.ranks.sum((0, 1)) / found.ranks.sum()
        assert ((share * (COUNT + 1) - 1).abs() < 0.15).all(), name


@pytest.mark.parametrize(("width", "ratio"), [(0.7, 0.49), (1.4, 1.96)])
def test_wrong_spread_is_found(model, width, ratio):
    for name, found in results(model, exact(model[2], width)).items():
        bands = bands_of(name)
        assert ((found.ratio[bands] / ratio - 1).abs() < 0.15).all(), (name, found.ratio)
    outer = found.outer_ranks  # of the truth, which no noise hides
    assert (outer > 1.5).all() if width < 1 else (outer < 0.7).all()


def test_held_out_lines_and_the_truth_agree_on_a_spread_that_is_wrong_in_one_band(model):
    """Draws whose variation is low-pass filtered: right in the centre, too small outside."""
    sample = exact(model[2])
    distance = torch.hypot(*torch.meshgrid(*(torch.arange(SIZE) - SIZE / 2,) * 2, indexing="ij"))

    def smooth(problem):
        mean, draws = sample(problem)
        return mean, mean + ifft2c((distance < EDGES[1]) * fft2c(draws - mean))

    found = results(model, smooth)
    assert (found["held out"].ratio - found["truth"].ratio)[-1].abs() < 0.15
    assert found["truth"].ratio[0] > 0.8
    assert found["truth"].ratio[-1] < 0.1
    assert found["held out"].ratio[-1] < 0.25  # coils mix neighbouring positions


def test_energies_written_out(model, rng):
    problem, images, _ = model
    errors, wrong = rng(3, SCANS, SIZE, SIZE), images + 0.1
    predicted, true = energies(wrong, errors, problem.with_seeds(0), EDGES)
    operator = problem.operator

    def back(data):
        return by_band(fft2c(operator.adjoint(data)).abs().square(), EDGES)

    torch.testing.assert_close(predicted, sum(back(operator.forward(part)) for part in errors) / 3)
    again = problem.with_seeds(0)
    noise = sum(back(SIGMA * again.unit_noise(3, SIZE, SIZE)) for _ in range(4)) / 4
    torch.testing.assert_close(true, back(operator.forward(wrong) - problem.kspace) - noise)


def test_slices_are_joined_and_selected_by_their_unknowns(model):
    problem, images, covariance = model
    found = compare(*exact(covariance)(problem), problem, torch.arange(SCANS), EDGES)
    part = found.select(2, 5)
    assert part.unknowns.tolist() == [2, 3, 4]
    whole = BandTest.join([found.select(0, 7), found.select(7, SCANS)])
    torch.testing.assert_close(whole.ratio, found.ratio)
    assert torch.equal(whole.ranks, found.ranks)
    assert found.ranks.sum().item() == 2 * 3 * SIZE * int(problem.lines.sum())
