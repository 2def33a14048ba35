"""Ambient diffusion: what its network is shown, how it is judged against the truth, and the way back."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.diffusion import Cosine, denoise
from upmri.learning.partition import SecondMask, split
from upmri.methods.ambient import Ambient, AmbientObjective, noise_in
from upmri.physics.problem import Problem
from upmri.methods.dds import proximal_step
from upmri.physics.fourier import fft2c
from upmri.physics.masks import random_lines
from upmri.physics.sense import SenseOperator

CPU = torch.device("cpu")
COILS, HEIGHT, WIDTH = 2, 3, 16


@pytest.fixture(scope="module")
def model(save):
    return save("ambient", AmbientObjective(size="tiny"))


def recon(scan, model=None, **settings):
    return upmri.reconstruct(scan, "ambient", model=model, **({"steps": 3, "device": "cpu"} | settings))


# The objective.


def make_batch(count, sigma=0.5):
    """Noisy scans with masks that differ, in double precision, and their truth."""
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
    return Batch(kspace, maps, mask, level, None, tuple(range(10, 10 + 2 * count, 2))), x0


def network(z, t):
    """Nonlinear, not holomorphic."""
    return torch.tanh(1.5 * z.real) + 0.5j * torch.sin(z.imag + z.roll(1, -1).real) + t[:, None, None] * z.conj()


def again(objective, batch):
    """Level, Λ, Ω∖Λ and z_t = A_Λ*(a_t y + σ_t A ε) of a batch, drawn once more."""
    fresh = changed(batch)
    level = objective.schedule.draw(fresh.generators)
    given, judged = split(SecondMask(objective.kept).draw, fresh.lines, HEIGHT, fresh.generators)
    signal = objective.schedule.signal[level][:, None, None, None]
    y = signal.sqrt() * batch.kspace + (1 - signal).sqrt() * fft2c(batch.operator.maps * fresh.noise()[:, None])
    return level, given, judged, SenseOperator(batch.operator.maps, given).adjoint(y)


def test_the_loss_written_out():
    objective = AmbientObjective(size="tiny", schedule=Cosine(levels=50), kept=0.6)
    batch, _ = make_batch(5)
    level, given, judged, z = again(objective, batch)
    assert len(set(level.tolist())) > 1
    assert judged.any()
    assert torch.equal(given | judged, batch.operator.mask)
    x = network(z, level / 50)
    error = (
        (batch.operator.mask[:, None] * (fft2c(batch.operator.maps * x[:, None]) - batch.kspace))
        .abs()
        .square()
        .sum((1, 2, 3))
    )
    assert torch.allclose(objective.loss(network, changed(batch)), error / (HEIGHT * WIDTH), rtol=1e-5)


def test_the_network_is_shown_nothing_but_the_lines_of_lambda():
    objective, (batch, _) = AmbientObjective(size="tiny", kept=0.5), make_batch(3)
    _, given, judged, _ = again(objective, batch)
    seen = []

    def watched(z, t):
        seen.append(z)
        return z

    losses = [
        objective.loss(watched, changed(batch, kspace=batch.kspace * torch.where(lines[:, None], 3.0, 1.0)))
        for lines in (torch.zeros_like(given), judged, given)
    ]
    assert judged.any((1, 2)).any()
    assert torch.equal(seen[0], seen[1])
    assert (seen[0] - seen[2]).norm() > 0.1 * seen[0].norm()
    assert not torch.equal(losses[0], losses[1])  # yet all of Ω judges


@pytest.fixture(scope="module")
def judged():
    """Loss less the truth's, with the divergence and without, of many scans, at the levels of little noise."""
    batch, x0 = make_batch(6000)
    objective = AmbientObjective(size="tiny", schedule=Cosine(levels=4), kept=0.5)
    level, given, aside, z = again(objective, batch)
    x = network(z, level / 4)
    gap = fft2c(batch.operator.maps * (x - x0)[:, None])
    noise_ = batch.kspace - batch.operator.mask[:, None] * fft2c(batch.operator.maps * x0[:, None])
    truth = (batch.operator.mask[:, None] * gap.abs().square() + noise_.abs().square()).sum((1, 2, 3))
    found = [replace(objective, divergence=on).loss(network, changed(batch)) * HEIGHT * WIDTH for on in (True, False)]
    cross = [-2 * (lines[:, None] * gap.conj() * noise_).real.sum((1, 2, 3)) for lines in (given, aside)]
    return *(loss - truth for loss in found), *cross


def score(values):
    return (values.mean() / values.std() * len(values) ** 0.5).item()


def test_only_the_noise_of_the_lines_shown_is_in_the_way(judged):
    """−2 Re⟨A h, e⟩, which vanishes in the mean on the lines that were not shown."""
    _, plain, shown, aside = judged
    assert torch.allclose(plain, shown + aside, atol=1e-3)
    assert score(shown) < -15
    assert abs(score(aside)) < 3.5


def test_with_the_divergence_the_loss_is_the_error_of_the_truth(judged):
    """Its factor 2 a_t σ₀²: half or twice of it would be seen."""
    corrected, plain, _, _ = judged
    assert abs(score(corrected)) < 3.5
    assert score(plain) < -12


def test_dropout_is_the_same_in_both_evaluations():
    batch, _ = make_batch(2)
    objective = AmbientObjective(size="tiny", divergence=True)

    def rough(z, t):
        return network(z, t) * (1 + 0.2 * (torch.rand(z.shape) - 0.5))

    calm, other = (objective.loss(net, changed(batch)) for net in (network, rough))
    assert ((other - calm).abs() < 0.5 * calm.abs() + 1).all()


# The way back.


def test_the_noise_that_an_image_leaves(rng):
    """ε̂ = (x_t − a h(N x_t))/σ: the guess of the way back is h, of the lines of the scan alone."""
    schedule, (batch, _) = Cosine(levels=10), make_batch(2)
    operator, x = SenseOperator(batch.operator.maps, batch.operator.mask), rng(2, HEIGHT, WIDTH)
    for level in (1, 6, 10):
        a, sigma = schedule.scales(level)
        t = torch.full((2,), level / 10)
        eps = noise_in(network, schedule, operator)(x, t)
        assert torch.allclose((x - sigma * eps) / a, network(operator.normal(x), t), rtol=1e-5, atol=1e-6)


def test_one_step_is_the_proximal_step_from_the_networks_image(rng):
    schedule, (batch, _) = Cosine(levels=10), make_batch(2)
    operator = SenseOperator(batch.operator.maps, batch.operator.mask)
    adjoint, start = operator.adjoint(batch.kspace), rng(2, HEIGHT, WIDTH)
    found = denoise(
        noise_in(network, schedule, operator), schedule, start, proximal_step(operator, adjoint, 3.0),
        steps=1, eta=0.5, generator=torch.Generator(),
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


def test_what_validation_looks_at(scan, model):
    """A few steps, always from the same noise."""
    loaded = load_prior(model)
    problem = Problem.from_scan(scan[0], seed=0)
    problem.__dict__["scale"] = torch.ones(1)  # or A*y would be rounded in two ways
    with torch.no_grad():
        image = loaded.objective.predict(loaded.network, problem.operator, problem.kspace, problem.sigma)
        assert torch.equal(image, Ambient(model=str(model), steps=20).reconstruct(problem))


def test_settings_are_checked():
    with pytest.raises(InputError, match="objective.size: expected one of tiny"):
        AmbientObjective(size="vast")
    for kept in (0.0, 1.0):
        with pytest.raises(InputError, match="objective.kept: expected a probability between 0 and 1"):
            AmbientObjective(kept=kept)
    assert Ambient() == Ambient(steps=100, eta=0.85, weight=1.0)
