"""The factor of the bootstrap's errors: recovered where it is known, and the same by plain transforms."""

import pytest
import torch

from upmri.learning import spread
from upmri.learning.bootstrap import bootstrap_errors
from upmri.learning.held_out import HeldOut
from upmri.learning.spread import fit_spread, scale_errors
from upmri.physics.fourier import fft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

H, W = 16, 64


@pytest.fixture
def scene(rng):
    """Maps of two slices, of which the second has a smaller support, and their images."""
    maps = rng(2, 3, H, W)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    maps[1, :, :6] = 0
    return maps, rng(2, H, W)


def problem_of(scene, rate, noise=None, sigma=0.0):
    maps, image = scene
    mask = torch.stack([random_lines(W, rate, acs=6, seed=i) for i in range(2)])
    data = fft2c(maps * image[:, None]) + (0 if noise is None else noise)
    return Problem(SenseOperator(maps, mask), data, sigma=torch.full((2,), sigma).double(), scaled=True, seeds=(1, 2))


def poor(scene):
    """A reconstruction with an error of 10 % everywhere."""
    return lambda problem: 1.1 * scene[1] * problem.operator.support


def pretend(monkeypatch, errors):
    """The bootstrap has these errors, (slice, H, W), as a function of the problem."""
    monkeypatch.setattr(spread, "bootstrap_errors", lambda _, problem, *__: errors(problem)[None])


def test_factor_and_exponent_are_recovered(scene, monkeypatch):
    """Errors of the bootstrap that are c (u/2)^p too small; 0.01 in the variance of log u damps the exponent."""
    c, p, unknowns = 1.6, 0.8, []

    def errors(problem):
        unknowns[-1].append(problem.unknowns)
        return 0.1 * scene[1] * problem.operator.support / (c * (problem.unknowns / 2) ** p)[:, None, None]

    def problems():
        for rate in (1.5, 2, 4, 6):
            unknowns.append([])
            yield problem_of(scene, rate)

    pretend(monkeypatch, errors)
    found = fit_spread(poor(scene), problems())
    x = torch.cat([torch.stack(parts).mean(0) / 2 for parts in unknowns]).log()
    variance = x.var(correction=0).item()
    exponent = p * variance / (variance + 0.01)
    assert variance > 0.1
    assert found["exponent"] == pytest.approx(exponent, abs=0.01)
    assert found["factor"] == pytest.approx(c * torch.exp((p - exponent) * x.mean()).item(), rel=0.01)


@pytest.mark.parametrize(("times", "factor"), [(100.0, 0.2), (0.01, 5.0)])
def test_the_ratio_is_bounded(scene, monkeypatch, times, factor):
    pretend(monkeypatch, lambda _: times * 0.1 * scene[1])
    assert fit_spread(poor(scene), [problem_of(scene, 2)]) == {"factor": factor, "exponent": 0.0}


def test_noise_of_the_held_out_lines_is_not_counted(scene, monkeypatch, rng):
    """The true image has the noise as its misfit, and no error."""
    sigma = 0.5
    problem = problem_of(scene, 2, noise=sigma * rng(2, 3, H, W), sigma=sigma)
    pretend(monkeypatch, lambda _: sigma * rng(2, H, W))
    found = fit_spread(lambda _: scene[1], [problem])
    assert found["factor"] < 0.6


def test_ratios_written_out(scene, rng):
    """With SENSE: ‖A_Λ (x̂ − x₀)‖² from the misfit less the noise, over the bootstrap's, each line once."""
    problem = problem_of(scene, 3, noise=0.1 * rng(2, 3, H, W), sigma=0.1)

    def sense(part):
        return part.operator.solve(part.adjoint, 0.05)

    true, predicted, again = torch.zeros(2).double(), torch.zeros(2).double(), problem.with_seeds((1, 2))
    for test in list(HeldOut.in_turn(again, 8)):
        image, maps = sense(test.inputs), problem.operator.maps
        off = bootstrap_errors(sense, test.inputs, image, again.generators, 1)[0]
        for i in range(2):
            chosen = test.lines.lines[i].expand(H, -1)
            coils = [fft2c(maps[i] * part)[:, chosen] for part in (image[i], off[i])]
            true[i] += (coils[0] - problem.kspace[i][:, chosen]).abs().square().sum() - 0.01 * coils[0].numel()
            predicted[i] += coils[1].abs().square().sum()
    ratio = (true / predicted).sqrt()
    assert ((ratio > 0.21) & (ratio < 4.9)).all()
    found = fit_spread(sense, [problem])
    at = problem.unknowns.mean().item() * 8 / 7 / 2  # the mean over parts of the lines, roughly
    assert found["factor"] * at ** found["exponent"] == pytest.approx(ratio.log().mean().exp().item(), rel=0.02)


def test_errors_are_scaled_by_the_factor(scene, rng):
    problem, errors = problem_of(scene, 4), rng(3, 2, H, W)
    support = [H * W, (H - 6) * W]
    unknowns = torch.tensor([s / (H * int(m.sum())) for s, m in zip(support, problem.lines, strict=True)]).double()
    found = scale_errors(errors, problem, {"factor": 1.5, "exponent": 0.7})
    assert torch.allclose(found, 1.5 * (unknowns / 2)[:, None, None] ** 0.7 * errors, rtol=1e-5)
