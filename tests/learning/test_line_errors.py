"""Held-out lines: errors as a plain transform gives them, every line once, and features that can be known before."""

import pytest
import torch

from upmri.learning.line_errors import NAMES, measure_lines
from upmri.learning.regions import calibration
from upmri.physics.fourier import fft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

H, W, SIGMA = 12, 48, 0.1


@pytest.fixture
def problem(rng):
    maps = rng(2, 3, H, W)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.stack([random_lines(W, 3, acs=6, seed=i) for i in range(2)])
    sigma = torch.full((2,), SIGMA).double()
    return Problem(SenseOperator(maps, mask), rng(2, 3, H, W) * mask[:, None], sigma=sigma, scaled=True)


def test_errors_are_those_of_a_plain_transform(problem, rng):
    """A reconstruction that is always the same image: each line outside the calibration region has its residual."""
    image = rng(2, H, W)
    found = measure_lines(lambda _: image, problem, image)
    residual = (fft2c(problem.operator.maps * image[:, None]) - problem.kspace).abs().square().mean((1, 2))
    for index, lines in enumerate(found):
        mask = problem.lines[index]
        outer = (mask & ~calibration(mask, H))[0]
        torch.testing.assert_close(lines.errors.sort().values, residual[index, outer].sort().values)
        assert lines.columns.tolist() == (~mask[0]).nonzero().flatten().tolist()
        assert lines.samples == 3 * H
        assert lines.noise == pytest.approx(SIGMA**2)


def test_a_held_out_line_is_not_among_the_inputs(problem, rng):
    """The reconstruction sees 1/4 of the outer lines less in each turn, and every one of them is missing once."""
    image, seen = rng(2, H, W), []

    def reconstruct(inputs):
        seen.append(inputs.lines)
        return image

    measure_lines(reconstruct, problem, image)
    assert len(seen) == 4
    missing = torch.stack([problem.lines & ~lines for lines in seen]).sum(0)
    for index, mask in enumerate(problem.lines):
        assert torch.equal(missing[index].bool(), mask & ~calibration(mask, H))
    assert missing.max() == 1


def test_features_of_missing_lines(problem, rng):
    image = rng(2, H, W)
    (lines, _) = measure_lines(lambda _: image, problem, image)
    known = dict(zip(NAMES, lines.missing.T, strict=True))
    sampled = problem.lines[0, 0].nonzero().flatten()
    gap = (lines.columns[:, None] - sampled).abs().amin(1).double()
    energy = fft2c(problem.operator.maps * image[:, None]).abs().square().mean((1, 2))[0, lines.columns]
    radius = ((lines.columns - W // 2).abs() + 1) / (W / 2)
    torch.testing.assert_close(known["gap"].exp(), gap)
    torch.testing.assert_close(known["energy"].exp(), energy + SIGMA**2)
    torch.testing.assert_close(known["radius"].exp(), radius.double())
    torch.testing.assert_close(known["radius squared"], known["radius"].square())
    assert bool((known["one"] == 1).all())
    # As of the turns, in which fewer lines are known than in the scan.
    assert bool((known["unknowns"].exp() > problem.unknowns[0]).all())


def test_the_same_whatever_was_drawn_before(problem, rng):
    image = rng(2, H, W)
    first = measure_lines(lambda _: image, problem, image)
    for generator in problem.generators:
        torch.rand(7, generator=generator)
    again = measure_lines(lambda _: image, problem, image)
    assert all(torch.equal(one.held_out, other.held_out) for one, other in zip(first, again, strict=True))


def test_a_scan_without_outer_lines_or_noise(rng):
    """Only the centre was sampled: there is nothing to hold out."""
    mask = torch.zeros(1, 1, W, dtype=torch.bool)
    mask[..., W // 2 - 2 : W // 2 + 2] = True
    maps = torch.ones(1, 1, H, W, dtype=torch.complex128)
    problem = Problem(SenseOperator(maps, mask), rng(1, 1, H, W) * mask[:, None], sigma=torch.zeros(1), scaled=True)
    (lines,) = measure_lines(lambda _: rng(1, H, W), problem, rng(1, H, W))
    assert len(lines.errors) == 0
    assert lines.held_out.shape == (0, len(NAMES))
    assert bool(lines.missing.isfinite().all())
