"""DPS: its gradient against differences, and the distribution of its ancestral step."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri.flow.diffusion import Cosine
from upmri.methods.ddnm import DiffusionObjective
from upmri.methods.dps import Dps, ancestor, misfit_gradient
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator


@pytest.fixture(scope="module")
def model(save):
    return save("ddnm", DiffusionObjective(size="tiny"))


def network(z, t):
    """Nonlinear, not holomorphic."""
    return torch.tanh(0.5 * z.real) + 0.5j * torch.sin(z.imag + z.roll(1, -1).real) + t[:, None, None] * z.conj()


@pytest.mark.parametrize("level", [1, 12, 20])
def test_the_gradient_is_that_of_the_misfit(rng, level):
    """Of ‖y − A x̂₀‖, each slice by itself, x̂₀ cut off at a magnitude of 4 (at the last level, it all is)."""
    maps, mask = rng(2, 3, 4, 6), torch.tensor([True, False, False, True, False, True])[None, None]
    operator, schedule = SenseOperator(maps, mask), Cosine(levels=20)
    y, x, direction = operator.forward(rng(2, 4, 6)), rng(2, 4, 6), rng(2, 4, 6)
    a, sigma = schedule.scales(level)

    def image(at):
        guess = (at - sigma * network(at, torch.full((2,), level / 20, dtype=torch.float64))) / a
        return torch.where(guess.abs() > 4, 4 * guess / guess.abs(), guess)

    def misfit(at):
        return (operator.forward(image(at)) - y).flatten(1).norm(dim=1)

    guess, slope = misfit_gradient(network, schedule, operator, y, x, level)
    assert torch.allclose(guess, image(x))
    assert bool((guess.abs() > 4 - 1e-9).any()) == (level > 1)
    h = 1e-6
    plus, minus = (misfit(x + s * h * direction) for s in (1, -1))
    found = (slope.conj() * direction).real.sum((1, 2))
    assert torch.allclose(found, (plus - minus) / (2 * h), rtol=1e-5)


def test_where_the_data_agree_the_gradient_is_zero(rng):
    operator = SenseOperator(rng(1, 2, 4, 6), torch.ones(1, 1, 6, dtype=torch.bool))
    schedule, x = Cosine(levels=20), 0.1 * rng(1, 4, 6)
    a, _ = schedule.scales(3)
    _, slope = misfit_gradient(lambda z, _: 0 * z, schedule, operator, operator.forward(x / a), x, 3)
    assert (slope == 0).all()


@pytest.mark.parametrize(("now", "then"), [(20, 13), (9, 8), (5, 1)])
def test_the_ancestral_step_keeps_the_distribution(rng, now, then):
    """From x_t = a x₀ + σ ε with x₀ known to x_t' = a' x₀ + σ' ε', ε' ~ CN(0, 2I), which is correlated with ε."""
    schedule, draws = Cosine(levels=20), 200_000
    (a, sigma), (next_a, next_sigma) = schedule.scales(now), schedule.scales(then)
    x0, eps = rng(1, 1, 1), 2**0.5 * rng(draws, 1, 1)
    generators = [torch.Generator().manual_seed(1)]
    x = ancestor(schedule, (a * x0 + sigma * eps)[:, None], x0, now, then, generators)[:, 0]
    made = (x - next_a * x0) / next_sigma
    assert made.mean().abs() < 0.02
    assert made.real.var().item() == pytest.approx(1, rel=0.02)
    assert made.imag.var().item() == pytest.approx(1, rel=0.02)
    # Cov(x_t, x_t') = (a/a') σ'², as x_t is x_t' with more noise.
    shared = (made * eps.conj()).real.mean().item() / 2
    assert shared == pytest.approx(a / next_a * next_sigma / sigma, abs=0.01)


def test_the_last_step_returns_the_estimate(rng):
    x, guess = rng(1, 4, 6), rng(1, 4, 6)
    assert torch.allclose(ancestor(Cosine(levels=20), x, guess, 3, 0, [torch.Generator()]), guess)


def test_samples_that_are_held_out_have_no_effect(scan, model):
    problem = Problem.from_scan(scan)
    columns = scan.mask.any(1).any(0).nonzero().flatten()
    kept = scan.mask.clone()
    kept[..., columns[::4]] = False
    part = problem.restrict(kept)
    other = Problem(part.operator, kept[:, None] * problem.kspace, sigma=problem.sigma, scaled=True)
    one, two = (Dps(model=upmri.prior(model), steps=3).draw(each, 1) for each in (part, other))
    assert torch.equal(one, two)


@pytest.mark.filterwarnings("ignore:maps")  # the other data have their coils in another order
def test_without_strength_the_data_have_no_effect(scan, model):
    assert Dps().strength == 1
    other = replace(scan, kspace=scan.kspace.flip(1))  # of nearly the same scale
    scales = [Problem.from_scan(s).scale[:, None, None] for s in (scan, other)]
    for strength, alike in [(0.0, True), (1.0, False)]:
        settings = {"model": model, "strength": strength, "steps": 3, "device": "cpu"}
        one, two = (
            upmri.reconstruct(s, "dps", **settings).image / q for s, q in zip((scan, other), scales, strict=True)
        )
        assert ((one - two).norm() < 1e-4 * one.norm()) == alike
