"""Ambient diffusion: the input of its network, its loss against the true error, and sampling."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.diffusion import Cosine, denoise
from upmri.learning.partition import SecondMask, split
from upmri.learning.training_noise import path_noise
from upmri.methods.ambient import Ambient, AmbientObjective, noise_in
from upmri.methods.dds import proximal_step
from upmri.physics.fourier import fft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.weights.files import load_prior

COILS, HEIGHT, WIDTH = 2, 3, 16


@pytest.fixture(scope="module")
def model(save):
    return save("ambient", AmbientObjective(size="tiny"))


def recon(scan, model=None, **settings):
    return upmri.reconstruct(scan, "ambient", model=model, **({"steps": 3, "device": "cpu"} | settings))


# The loss.


def make_problem(count, sigma=0.5):
    """Noisy scans with masks that differ, in double precision, and the true images."""
    generator = torch.Generator().manual_seed(0)
    maps, x0 = (
        torch.randn(count, *shape, HEIGHT, WIDTH, dtype=torch.complex128, generator=generator)
        for shape in [(COILS,), ()]
    )
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.stack([random_lines(WIDTH, 2, 2, seed=generator) for _ in range(count)])
    e = sigma * torch.randn(maps.shape, dtype=torch.complex128, generator=generator)
    kspace = mask[:, None] * (fft2c(maps * x0[:, None]) + e)
    level = torch.full((count,), sigma, dtype=torch.float64)
    seeds = range(10, 10 + 2 * count, 2)
    return Problem(SenseOperator(maps, mask), kspace, sigma=level, scaled=True, seeds=seeds), x0


def network(z, t):
    """Nonlinear, not holomorphic."""
    return torch.tanh(1.5 * z.real) + 0.5j * torch.sin(z.imag + z.roll(1, -1).real) + t[:, None, None] * z.conj()


def again(objective, problem):
    """Level, Λ, Ω∖Λ and z_t = A_Λ*(a_t y + σ_t A ε) of a problem, drawn once more."""
    fresh = problem.with_seeds(problem.seeds)
    level = objective.schedule.draw(fresh.generators)
    inputs, aside = split(SecondMask(objective.kept).draw, fresh)
    signal = objective.schedule.signal[level][:, None, None, None]
    y = signal.sqrt() * problem.kspace + (1 - signal).sqrt() * fft2c(problem.operator.maps * path_noise(fresh)[:, None])
    return level, inputs.operator.mask, aside.operator.mask, inputs.operator.adjoint(y)


def test_the_loss_written_out():
    objective = AmbientObjective(size="tiny", schedule=Cosine(levels=50), kept=0.6)
    problem, _ = make_problem(5)
    level, given, aside, z = again(objective, problem)
    assert len(set(level.tolist())) > 1
    assert aside.any()
    assert torch.equal(given | aside, problem.operator.mask)
    x = network(z, level / 50)
    error = (
        (problem.operator.mask[:, None] * (fft2c(problem.operator.maps * x[:, None]) - problem.kspace))
        .abs()
        .square()
        .sum((1, 2, 3))
    )
    assert torch.allclose(objective.loss(network, problem), error / (HEIGHT * WIDTH), rtol=1e-5)


def test_the_input_of_the_network_are_the_lines_of_lambda_alone(changed):
    objective, (problem, _) = AmbientObjective(size="tiny", kept=0.5), make_problem(3)
    _, given, aside, _ = again(objective, problem)
    seen = []

    def recorded(z, t):
        seen.append(z)
        return z

    losses = [
        objective.loss(recorded, changed(problem, kspace=problem.kspace * torch.where(lines[:, None], 3.0, 1.0)))
        for lines in (torch.zeros_like(given), aside, given)
    ]
    assert aside.any((1, 2)).any()
    assert torch.equal(seen[0], seen[1])
    assert (seen[0] - seen[2]).norm() > 0.1 * seen[0].norm()
    assert not torch.equal(losses[0], losses[1])  # yet the loss is on all of Ω


@pytest.fixture(scope="module")
def gaps():
    """Loss minus the true error of many scans, with divergence and without, at levels of little noise."""
    problem, x0 = make_problem(6000)
    objective = AmbientObjective(size="tiny", schedule=Cosine(levels=4), kept=0.5)
    level, given, aside, z = again(objective, problem)
    x = network(z, level / 4)
    gap = fft2c(problem.operator.maps * (x - x0)[:, None])
    noise_ = problem.kspace - problem.operator.mask[:, None] * fft2c(problem.operator.maps * x0[:, None])
    truth = (problem.operator.mask[:, None] * gap.abs().square() + noise_.abs().square()).sum((1, 2, 3))
    found = [
        replace(objective, divergence=on).loss(network, problem.with_seeds(problem.seeds)) * HEIGHT * WIDTH
        for on in (True, False)
    ]
    cross = [-2 * (lines[:, None] * gap.conj() * noise_).real.sum((1, 2, 3)) for lines in (given, aside)]
    return *(loss - truth for loss in found), *cross


def score(values):
    return (values.mean() / values.std() * len(values) ** 0.5).item()


def test_only_the_noise_of_the_input_lines_biases_the_loss(gaps):
    """−2 Re⟨A h, e⟩, whose mean is 0 on the lines that were not input."""
    _, plain, inputs, aside = gaps
    assert torch.allclose(plain, inputs + aside, atol=1e-3)
    assert score(inputs) < -15
    assert abs(score(aside)) < 3.5


def test_with_the_divergence_the_loss_is_the_error_of_the_truth(gaps):
    """Its factor 2 a_t σ₀²: half or twice of it would be seen."""
    corrected, plain, _, _ = gaps
    assert abs(score(corrected)) < 3.5
    assert score(plain) < -12


def test_dropout_is_the_same_in_both_evaluations():
    problem, _ = make_problem(2)
    objective = AmbientObjective(size="tiny", divergence=True)

    def rough(z, t):
        return network(z, t) * (1 + 0.2 * (torch.rand(z.shape) - 0.5))

    calm, other = (objective.loss(net, problem.with_seeds(problem.seeds)) for net in (network, rough))
    assert ((other - calm).abs() < 0.5 * calm.abs() + 1).all()


# Sampling.


def test_the_noise_that_remains_beside_an_image(rng):
    """ε̂ = (x_t − a h(N x_t))/σ: the estimate of x₀ is h of the lines of the scan alone."""
    schedule, (problem, _) = Cosine(levels=10), make_problem(2)
    operator, x = problem.operator, rng(2, HEIGHT, WIDTH)
    for level in (1, 6, 10):
        a, sigma = schedule.scales(level)
        t = torch.full((2,), level / 10)
        eps = noise_in(network, schedule, operator)(x, t)
        assert torch.allclose((x - sigma * eps) / a, network(operator.normal(x), t), rtol=1e-5, atol=1e-6)


def test_one_step_is_the_proximal_step_from_the_networks_image(rng):
    schedule, (problem, _) = Cosine(levels=10), make_problem(2)
    operator, adjoint, start = problem.operator, problem.adjoint, rng(2, HEIGHT, WIDTH)
    found = denoise(
        noise_in(network, schedule, operator), schedule, start, proximal_step(operator, adjoint, 3.0),
        steps=1, eta=0.5, generators=problem.generators,
    )  # fmt: skip
    guess = network(operator.normal(start), torch.ones(2))
    assert torch.allclose(operator.normal(found) * 3 + found, guess + 3 * adjoint, atol=1e-4)


def test_the_more_weight_the_nearer_to_the_data(scan, model):
    operator, gaps = SenseOperator(scan.maps, scan.mask), []
    for weight in (0.1, 1.0, 1e4):
        image = recon(scan, model, weight=weight).image
        gaps.append(((operator.normal(image) - operator.adjoint(scan.kspace)).norm() / image.norm()).item())
    assert gaps[0] > 1.3 * gaps[1]
    assert gaps[2] < 1e-3


def test_validation_takes_few_steps_from_the_same_noise(scan, model):
    prior, problem = load_prior(model), Problem.from_scan(scan[0])
    with torch.no_grad():
        image = Ambient(model=prior, **Ambient.validation).reconstruct(problem)
        assert torch.equal(image, Ambient(model=prior, steps=20).reconstruct(problem.with_seeds(problem.seeds)))


@pytest.mark.parametrize("settings", [{"size": "vast"}, {"kept": 0.0}, {"kept": 1.0}])
def test_settings_are_checked(settings):
    with pytest.raises(InputError) as error:
        AmbientObjective(**settings)
    assert [error.value.field] == list(settings)
    assert Ambient() == Ambient(steps=100, eta=0.85, weight=1.0)
