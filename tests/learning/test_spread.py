"""The gain of the bootstrap's errors: recovered where it is known, and the same by plain transforms."""

import pytest
import torch

from upmri.learning import spread
from upmri.learning.bands import band_of, by_band
from upmri.learning.bootstrap import draw_errors
from upmri.learning.held_out import HeldOut
from upmri.learning.noise_split import split_noise
from upmri.learning.spread import error_ratio, fit_spread, scale_errors
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

H, W = 16, 128
GAINS, EXPONENT = torch.tensor([1.4, 1.2, 0.7, 1.0, 0.9]).double(), 0.5


@pytest.fixture
def image(rng):
    return rng(2, H, W)


def problem_of(image, rate, maps=None, noise=None, sigma=0.0):
    maps = torch.ones(2, 1, H, W, dtype=torch.complex128) if maps is None else maps
    mask = torch.stack([random_lines(W, rate, acs=8, seed=i) for i in range(2)])
    data = fft2c(maps * image[:, None]) + (0 if noise is None else noise)
    level = torch.full((2,), sigma, dtype=torch.float64)
    return Problem(SenseOperator(maps, mask), data, sigma=level, scaled=True, seeds=(1, 2))


def poor(image):
    """A reconstruction with an error of 10 % everywhere."""
    return lambda problem: 1.1 * image * problem.operator.support


def pretend(monkeypatch, errors):
    """The bootstrap has these errors, (slice, H, W), as a function of the problem."""
    monkeypatch.setattr(spread, "draw_errors", lambda _, problem, *__: errors(problem)[None])


def too_small(image):
    """Errors that are too small by a gain for each band, which depends on the unknowns."""

    def errors(problem):
        gain = GAINS * (problem.unknowns[:, None] / 2) ** EXPONENT  # (slice, band)
        return ifft2c(fft2c(0.1 * image) / gain[:, band_of((H, W))])

    return errors


def test_gains_and_exponents_of_all_bands_are_recovered(image, monkeypatch):
    """As a function of u; not quite exact, because sampled positions have all lines as input, and others fewer."""
    pretend(monkeypatch, too_small(image))
    found = fit_spread(poor(image), (problem_of(image, rate) for rate in (1.5, 2, 3, 4, 6, 8)))
    assert found["radius"] == [5, 12, 24, 40, 60]
    gain, exponent = torch.tensor(found["gain"]), torch.tensor(found["exponent"])
    for u in (2, 4, 8):
        expected = GAINS * (u / 2) ** EXPONENT
        torch.testing.assert_close((gain * (u / 2) ** exponent).double(), expected, rtol=0.12, atol=0)
    assert found["exponent"] == pytest.approx([EXPONENT] * 5, abs=0.1)  # drawn towards 0.3


def test_scans_with_the_same_unknowns_give_the_usual_exponent(image, monkeypatch):
    pretend(monkeypatch, lambda _: 0.1 * image / 1.5)
    problem = problem_of(image, 4)
    found = fit_spread(poor(image), [problem])
    assert found["exponent"] == pytest.approx([0.3] * 5, abs=0.01)
    at = (problem.unknowns.mean().item() * 8 / 7 / 2) ** 0.3  # an eighth of the lines is held out
    assert found["gain"] == pytest.approx([1.5 / at] * 5, rel=0.02)


def test_small_images_have_no_outer_bands(monkeypatch, rng):
    """24 columns: the largest radius is below 16, and the gain of the second band is that of the outer ones."""
    image = rng(2, H, 24)
    maps, mask = torch.ones(2, 1, H, 24, dtype=torch.complex128), random_lines(24, 2, acs=4, seed=0)
    level = torch.zeros(2, dtype=torch.float64)
    problem = Problem(SenseOperator(maps, mask), fft2c(image)[:, None], sigma=level, scaled=True)
    pretend(monkeypatch, lambda _: 0.1 * image / 1.4)
    found = fit_spread(poor(image), [problem])
    assert len(set(found["gain"])) == len(set(found["exponent"])) == 1
    assert found["gain"][0] == pytest.approx(1.4, rel=0.1)


@pytest.mark.parametrize(("times", "gain"), [(100.0, 0.2), (0.01, 3.0)])
def test_the_gain_is_bounded(image, monkeypatch, times, gain):
    pretend(monkeypatch, lambda _: times * 0.1 * image)
    assert fit_spread(poor(image), [problem_of(image, 2)])["gain"] == pytest.approx([gain] * 5, rel=0.1)


def test_noise_is_not_counted(image, monkeypatch, rng):
    """The true image has the noise as its misfit, on held-out lines and in the second measurement, and no error."""
    sigma = 0.5
    problem = problem_of(image, 2, noise=sigma * rng(2, 1, H, W), sigma=sigma)
    pretend(monkeypatch, lambda _: sigma * rng(2, H, W))
    ratio, _ = error_ratio(lambda _: image, problem)
    # The standard error of the estimate in the smallest band, of about 200 positions, is 2 √2 σ²/√200, and more.
    assert ratio.abs().max() < 0.8
    assert ratio.mean(0)[2:].abs().max() < 0.2


def test_ratios_written_out(image, rng):
    """With SENSE: the energy on sampled lines, and that of the others, times the ratio on held-out lines."""
    maps = rng(2, 3, H, W)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    problem = problem_of(image, 3, maps, 0.1 * rng(2, 3, H, W), 0.1)

    def sense(part):
        return part.operator.solve(part.adjoint, 0.05)

    def on_lines(estimate, errors, part, lines, level):
        """Energies of A*A η and of A*(A x̂ − y), by plain transforms, and the number of positions."""
        chosen = lines.expand(-1, H, -1)

        def back(data):
            return fft2c((maps.conj() * ifft2c(chosen[:, None] * data)).sum(1)).abs().square()

        noise = [back(level * part.unit_noise(3, H, W)) for _ in range(4)]
        off = back(fft2c(maps * estimate[:, None]) - part.kspace) - sum(noise) / 4
        possible = sum(back(fft2c(maps * e[:, None])) for e in errors) / len(errors)
        return torch.stack([by_band(possible), by_band(off), by_band(chosen.double())])

    again = problem.with_seeds((1, 2))
    held_out = 0
    for test in HeldOut.in_turn(again, 8):
        estimate = sense(test.inputs)
        errors = draw_errors(sense, test.inputs, estimate, again.generators, 1)
        held_out = held_out + on_lines(estimate, errors, test.lines, test.lines.lines, 0.1)
    inputs, other = split_noise(again)
    estimate = sense(inputs)
    errors = draw_errors(sense, inputs, estimate, inputs.generators, 2)
    sampled = on_lines(estimate, errors, other, problem.lines, 0.1 * 2**0.5)
    everywhere = sum(by_band(fft2c(e).abs().square()) for e in errors) / 2
    between = held_out[1] / held_out[0]
    assert (held_out[2][:, 0] == 0).any()  # lines of the calibration region are not held out
    between[:, 0] = torch.where(held_out[2][:, 0] == 0, between[:, 1], between[:, 0])
    expected = (sampled[1] + between * (everywhere - sampled[0])) / everywhere
    found, unknowns = error_ratio(sense, problem)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert unknowns == pytest.approx(problem.unknowns * 8 / 7, rel=0.05)


def test_errors_are_filtered_and_stay_in_the_support(rng):
    maps = torch.ones(2, 1, H, W, dtype=torch.complex128)
    maps[1, :, :6] = 0
    problem, errors = problem_of(rng(2, H, W), 4, maps), rng(3, 2, H, W)
    support = [H * W, (H - 6) * W]
    unknowns = torch.tensor([s / (H * int(m.sum())) for s, m in zip(support, problem.lines, strict=True)]).double()
    same = {"radius": [5.0, 60.0], "gain": [1.5, 1.5], "exponent": [0.7, 0.7]}
    found = scale_errors(errors, problem, same)
    factor = 1.5 * (unknowns / 2)[:, None, None] ** 0.7 * problem.operator.support
    torch.testing.assert_close(found, factor * errors, rtol=1e-4, atol=1e-5)
    rising = scale_errors(errors, problem, same | {"gain": [0.5, 2.0], "exponent": [0.0, 0.0]})
    energy = by_band(fft2c(rising[:, 0]).abs().square()) / by_band(fft2c(errors[:, 0]).abs().square())
    assert (energy.mean(0).diff() > 0).all()
    assert energy.mean(0)[-1] == pytest.approx(4, rel=0.2)
