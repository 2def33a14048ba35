"""The loss of the default method, and what its weights are calibrated with."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.learning.held_out import gain_over_sense
from upmri.learning.lines import LineSplit
from upmri.learning.training_noise import path_noise
from upmri.methods.upmri_objective import UpmriObjective, mean_image
from upmri.physics.fourier import fft2c
from upmri.physics.masks import calibration_region
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping

OBJECTIVE = UpmriObjective(cascades=2, width=4)
WITH_PATH = replace(OBJECTIVE, split=LineSplit(loss=(0.2, 0.2), path=(0.8, 0.8), calibration=1))


def network(std=0.02):
    """A network that does something: half of its layers would start at zero, and ignore the time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = OBJECTIVE.network()
        for name, value in made.named_parameters():
            if value.count_nonzero() == 0:
                torch.nn.init.normal_(value, std=std if ".out." in name else 0.1)
    return made


def make_problem(scan, seeds, step=1):
    """A problem of training draws its splits once: ``changed(problem)`` draws the same again."""
    problem = Problem.from_scan(scan).with_seeds(seeds)
    problem.step = step
    return problem


@pytest.fixture
def problem(scan):
    return make_problem(scan, (3, 14))


def parts(problem, split=OBJECTIVE.split):
    """Θ, Ξ and Λ that the objective will draw."""
    drawn = [
        split.draw(mask, problem.kspace.shape[-2], torch.Generator().manual_seed(seed))
        for mask, seed in zip(problem.operator.mask, problem.seeds, strict=True)
    ]
    return tuple(torch.stack(part) for part in zip(*drawn, strict=True))


class Recorder:
    """A network that records its calls, and may return a given image."""

    def __init__(self, image=None):
        self.calls, self.image = [], image

    def __call__(self, operator, adjoint, noisy, t, sigma):
        self.calls.append((operator, adjoint, noisy, t))
        return network(0.1)(operator, adjoint, noisy, t, sigma) if self.image is None else self.image


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cascades", 0),
        ("width", 0),
        ("damping", 0.0),
        ("damping", -0.02),
        ("damping", math.nan),
        ("sigma_jitter", -0.1),
        ("sigma_jitter", math.inf),
        ("path_every", -1),
    ],
)
def test_settings_of_the_objective_are_checked(field, value):
    with pytest.raises(InputError) as error:
        UpmriObjective(**{field: value})
    assert error.value.field == field


def test_the_gain_is_on_lines_that_were_not_input(scan):
    """The gain over the error of SENSE on the held-out lines, over all slices."""
    problem = Problem.from_scan(scan)
    x, recorder = problem.reference, Recorder(1.1 * problem.reference)
    first = gain_over_sense(partial(mean_image, Recorder(x)), problem)
    gain = gain_over_sense(partial(mean_image, recorder), problem)
    before, after = 0.0, 0.0
    for operator, adjoint, noisy, t in recorder.calls:
        aside = scan.mask & ~operator.mask
        assert aside.any()
        assert torch.equal(operator.mask | aside, scan.mask)
        assert torch.allclose(adjoint, operator.adjoint(problem.kspace))
        assert (noisy == 0).all()
        assert (t == 1).all()
        sense = operator.solve(adjoint, (5 * problem.sigma**1.5).clamp_min(1e-4))
        errors = [(fft2c(scan.maps * image[:, None]) - problem.kspace) * aside[:, None] for image in (sense, 1.1 * x)]
        before, after = before + errors[0].abs().square().sum(), after + errors[1].abs().square().sum()
    turns = torch.stack([scan.mask & ~operator.mask for operator, *_ in recorder.calls]).sum(0)
    outer = scan.mask.clone()
    for mask, mine in zip(scan.mask, outer, strict=True):
        mine[:, calibration_region(mask, scan.matrix[0])[1]] = False
    assert torch.equal(turns, outer.int())  # every line once, except calibration lines
    assert len(recorder.calls) == min(8, outer.sum((1, 2)).max())
    assert gain == pytest.approx(10 * (before / after).log10().item(), abs=0.01)
    assert first > gain


# The loss.


@pytest.mark.parametrize("step", [0, 1])
def test_the_true_image_has_no_loss(step, changed):
    silent = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0)
    problem = make_problem(silent, (5, 6), step)
    loss, more = (OBJECTIVE.loss(Recorder(a * problem.reference), changed(problem)) for a in (1, 0.9))
    assert loss.shape == (2,)
    assert (loss.abs() < 0.005 * more).all()


def test_the_loss_is_relative_to_the_error_of_sense(problem, changed):
    """Written out, on Λ; SENSE that has converged is within a tenth of the eight iterations that are taken."""
    theta, xi, loss_mask = parts(problem)
    theta = theta | xi
    x = 0.7 * problem.reference
    operator = SenseOperator(problem.operator.maps, theta)
    sense = operator.solve(operator.adjoint(problem.kspace), sense_damping(problem.sigma))

    def error(image):
        residual = (fft2c(problem.operator.maps * image[:, None]) - problem.kspace) * loss_mask[:, None]
        return residual.abs().square().sum((1, 2, 3))

    share = loss_mask.sum((1, 2)) / problem.operator.mask.sum((1, 2))
    assert torch.allclose(OBJECTIVE.loss(Recorder(x), problem), share * error(x) / error(sense), rtol=0.1)
    more, less = (OBJECTIVE.loss(Recorder(a * x), changed(problem)) for a in (1, 1.2))
    assert torch.allclose(more / less, error(x) / error(1.2 * x), rtol=1e-3)


def test_a_scan_without_noise_or_gaps_has_a_loss(changed):
    """There the error of SENSE, which scales the loss, is rounding."""
    full = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=1, noise=0)
    for seed in range(20):
        problem = make_problem(full, (seed, seed + 100))
        for objective in (OBJECTIVE, replace(OBJECTIVE, supervised=True)):
            loss = objective.loss(Recorder(0.99 * problem.reference), changed(problem))
            assert loss.isfinite().all()
            assert (loss > 0).all()
            assert (loss < 10).all()


@pytest.mark.parametrize("step", [0, 1])
def test_loss_lines_are_in_no_input(problem, changed, rng, step):
    """Neither of the network nor, on the path, of the point of the path."""
    _, _, loss_mask = parts(problem)
    other = torch.where(loss_mask[:, None], 100 * rng(2, 4, 32, 32, dtype=torch.complex64), problem.kspace)
    one, two = Recorder(), Recorder()
    first, second = (
        OBJECTIVE.loss(recorder, changed(problem, kspace=kspace, step=step))
        for recorder, kspace in ((one, problem.kspace), (two, other))
    )
    assert not torch.allclose(first, second, rtol=0.1)
    assert len(one.calls) == len(two.calls) == (2 if step == 0 else 1)
    for (operator, *rest), (same, *others) in zip(one.calls, two.calls, strict=True):
        assert not (operator.mask & loss_mask).any()
        assert torch.equal(operator.mask, same.mask)
        assert all(torch.equal(a, b) for a, b in zip(rest, others, strict=True))


def test_off_the_path_all_other_lines_are_input(problem):
    theta, xi, _ = parts(problem, WITH_PATH.split)
    assert xi.any((1, 2)).all()
    recorder = Recorder()
    WITH_PATH.loss(recorder, problem)
    ((operator, adjoint, noisy, t),) = recorder.calls
    assert torch.equal(operator.mask, theta | xi)
    assert torch.allclose(adjoint, SenseOperator(problem.operator.maps, theta | xi).adjoint(problem.kspace))
    assert (noisy == 0).all()
    assert (t == 1).all()


def test_on_the_path_some_lines_are_known_through_noise_alone(problem, changed):
    """First x̂ from Θ ∪ Ξ at t = 1, without a graph; then the network itself, from Θ and from (1−t) x̂ + t x₁."""
    theta, xi, _ = parts(problem, WITH_PATH.split)
    assert xi.any((1, 2)).all()
    model = network()
    calls = []

    def recorded(operator, adjoint, noisy, t, sigma):
        calls.append((operator, adjoint, noisy, t, model(operator, adjoint, noisy, t, sigma)))
        return calls[-1][-1]

    WITH_PATH.loss(recorded, changed(problem, step=8))
    (more, adjoint, noisy, t, end), (less, seen, point, times, prediction) = calls
    assert torch.equal(more.mask, theta | xi)
    assert torch.allclose(adjoint, SenseOperator(problem.operator.maps, theta | xi).adjoint(problem.kspace))
    assert (noisy == 0).all()
    assert (t == 1).all()
    assert not end.requires_grad
    assert prediction.requires_grad
    assert torch.equal(less.mask, theta)
    assert torch.allclose(seen, SenseOperator(problem.operator.maps, theta).adjoint(problem.kspace))
    assert ((times > 0) & (times < 1)).all()
    assert times[0] != times[1]
    s = times[:, None, None]
    assert torch.allclose(point, (1 - s) * end + s * path_noise(problem), atol=1e-5)


@pytest.mark.parametrize(("every", "on"), [(4, {0, 4, 8}), (1, set(range(9))), (0, set())])
def test_every_nth_step_is_on_the_path(problem, changed, every, on):
    objective, found = replace(OBJECTIVE, path_every=every), set()
    for step in range(9):
        recorder = Recorder(problem.reference)
        objective.loss(recorder, changed(problem, step=step))
        found |= {step} if len(recorder.calls) == 2 else set()
    assert found == on


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("supervised", [False, True])
def test_a_gradient_step_lowers_the_error_on_the_loss_lines(problem, changed, step, supervised):
    """With supervised training, the error against the reference."""
    objective, model = replace(OBJECTIVE, supervised=supervised), network()
    _, _, loss_mask = parts(problem)
    images = []

    def recorded(*args):
        images.append(model(*args))
        return images[-1]

    def error():
        images.clear()
        loss = objective.loss(recorded, changed(problem, step=step))
        residual = fft2c(problem.operator.maps * images[-1][:, None]) - problem.kspace
        true = (images[-1] - problem.reference) if supervised else residual * loss_mask[:, None]
        return loss, true.detach().abs().square().flatten(1).sum(1)

    loss, before = error()
    loss.sum().backward()
    slope = sum(p.grad.square().sum() for p in model.parameters() if p.grad is not None)
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.02 * loss.sum() / slope * p.grad
    lower, after = error()
    assert lower.sum() < 0.995 * loss.sum()
    assert after.sum() < before.sum()


def test_the_loss_is_unbiased():
    """Mean over the noise of Λ, against the error on Λ without it: they differ by σ₀² a sample, whatever D predicts.

    The loss is relative to the error of SENSE, which contains the same noise: the bias is below one sample in m.
    """
    draws, sigma = 1500, 0.3
    clean = upmri.simulate(upmri.demo.brain()[:1, ::6, ::6], coils=3, acceleration=1.5, acs=4, noise=0)
    one = make_problem(clean, (7,))
    theta, xi, loss_mask = parts(one)
    given = theta | xi
    samples = 3 * 16 * int(loss_mask.sum())
    generator = torch.Generator().manual_seed(0)
    noise = sigma * torch.randn(draws, 3, 16, 16, dtype=torch.complex64, generator=generator)
    fixed = one.kspace + given * noise[:1]  # the noise of the input stays
    maps = one.operator.maps
    operator = SenseOperator(maps, given)
    adjoint = operator.adjoint(fixed)
    sense = operator.solve(adjoint, sense_damping(torch.tensor([sigma])), "cg", tolerance=0, iterations=8)
    every = SenseOperator(maps.expand(draws, -1, -1, -1), one.operator.mask.expand(draws, -1, -1))
    many = Problem(every, fixed + loss_mask * noise, sigma=sigma, scaled=True, seeds=7, step=1)

    def error(image, kspace):
        return ((fft2c(maps * image[:, None]) - kspace) * loss_mask).abs().square().sum((1, 2, 3)).double()

    before, share = error(sense, many.kspace), loss_mask.sum() / one.operator.mask.sum()
    for image in (adjoint, torch.tanh(sense.real) + 0.3j * sense.imag, 0 * sense, sense):
        loss = OBJECTIVE.loss(Recorder(image.expand(draws, -1, -1)), many.with_seeds(7)).double()
        plain = loss * before / share
        true = error(image, one.kspace).item() + samples * sigma**2
        assert abs(plain.mean().item() - true) < 4 * plain.std().item() / draws**0.5
        assert plain.std().item() / draws**0.5 < 0.02 * true
        ratio = share.item() * true / (error(sense, one.kspace).item() + samples * sigma**2)
        assert loss.mean().item() == pytest.approx(ratio, abs=4 * loss.std().item() / draws**0.5 + 2 * ratio / samples)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("supervised", [False, True])
def test_slices_do_not_mix(problem, changed, step, supervised):
    objective, model = replace(OBJECTIVE, supervised=supervised), network()
    whole = objective.loss(model, changed(problem, step=step))
    for i in range(2):
        part = slice(i, i + 1)
        values = {name: getattr(problem, name)[part] for name in ("kspace", "sigma", "reference", "seeds")}
        operator = SenseOperator(problem.operator.maps[part], problem.operator.mask[part])
        alone = changed(problem, operator=operator, step=step, **values)
        assert torch.allclose(objective.loss(model, alone), whole[part], rtol=1e-3)
    assert whole[0] != whole[1]


@pytest.mark.parametrize("step", [0, 1])
def test_supervised_the_loss_is_the_error_against_the_reference(problem, changed, step):
    objective, recorder = replace(OBJECTIVE, supervised=True), Recorder(0.5 * problem.reference)
    loss = objective.loss(recorder, changed(problem, step=step))
    ((operator, adjoint, noisy, t),) = recorder.calls
    theta, xi, _ = parts(problem)
    assert torch.equal(operator.mask, theta if step == 0 else theta | xi)
    assert torch.allclose(adjoint, operator.adjoint(problem.kspace))
    sense = operator.solve(adjoint, sense_damping(problem.sigma))
    error = [(image - problem.reference).abs().square().sum((1, 2)) for image in (0.5 * problem.reference, sense)]
    assert torch.allclose(loss, error[0] / error[1], rtol=0.1)
    s = t[:, None, None]
    expected = (1 - s) * problem.reference + s * path_noise(problem) if step == 0 else 0 * noisy
    assert torch.allclose(noisy, expected, atol=1e-5)


def test_supervised_training_needs_a_reference(problem, changed):
    with pytest.raises(InputError, match="needs full images, and there are scans without a reference") as error:
        replace(OBJECTIVE, supervised=True).loss(network(), changed(problem, reference=None))
    assert error.value.field == "train"


def test_the_noise_level_that_is_input_has_an_error(problem, changed):
    levels = []

    def record(*args):
        levels.append(args[-1] / problem.sigma)
        return torch.zeros_like(problem.kspace[:, 0])

    for jitter in (0.0, 0.4):
        for seed in range(20):
            sample = changed(problem, seeds=(2 * seed, 2 * seed + 1), step=1)
            replace(OBJECTIVE, sigma_jitter=jitter).loss(record, sample)
    exact, off = (torch.cat(values).log() for values in (levels[:20], levels[20:]))
    assert exact.abs().max() < 1e-6
    assert 0.2 < off.std() < 0.6


# The gain of the bootstrap.


@pytest.mark.parametrize(("gain", "exponent"), [(1.5, 0.0), (0.8, 0.6)])
def test_the_gain_is_fitted_to_held_out_lines(monkeypatch, gain, exponent):
    """Errors are predicted too small by g (u/2)^p, without noise: g and p are found, for large and small objects."""
    large = upmri.demo.brain()[:1, ::2, ::2]
    small = np.zeros_like(large)
    small[:, : large.shape[1] // 2, : large.shape[2] // 2] = large[:, ::2, ::2]
    scans = [
        upmri.simulate(image, coils=4, acceleration=rate, acs=6, noise=0.0, seed=rate)
        for image in (large, small)
        for rate in (2, 3, 4, 6)
    ]
    problems = [make_problem(scan, (i,)) for i, scan in enumerate(scans)]

    def truth(operator):
        return next(each.reference for each in problems if torch.equal(each.operator.maps, operator.maps))

    def wrong(operator, adjoint, noisy, t, sigma):
        return 1.2 * truth(operator)

    def predicted(reconstruct, problem, image, generators, count):
        operator = problem.operator
        pixels = (operator.maps != 0).any(1).sum((1, 2))
        unknowns = pixels / (operator.maps.shape[2] * operator.mask.sum((1, 2)))
        off = (image - truth(operator)) / (gain * (unknowns / 2) ** exponent)[:, None, None]
        return off.expand(count, -1, -1, -1)

    monkeypatch.setattr("upmri.learning.spread.draw_errors", predicted)
    spread = OBJECTIVE.calibrate(wrong, problems)["spread"]
    for unknowns in (1, 2, 4):
        expected = gain * (unknowns / 2) ** exponent
        found = [g * (unknowns / 2) ** p for g, p in zip(spread["gain"], spread["exponent"], strict=True)]
        assert found == pytest.approx([expected] * 5, rel=0.12)
    assert spread["exponent"] == pytest.approx([exponent] * 5, abs=0.12)
