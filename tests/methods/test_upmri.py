"""The default method with weights of its own: what comes out, and what its objective teaches."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.evaluation import evaluate
from upmri.learning.bootstrap import deviation
from upmri.learning.lines import LineSplit
from upmri.physics.problem import Problem
from upmri.methods.upmri import UpmriObjective, held_out_gain
from upmri.physics.fourier import fft2c, mirror
from upmri.physics.masks import calibration_region, poisson_disc
from upmri.physics.sense import SenseOperator

OBJECTIVE = UpmriObjective(cascades=2, width=4)
TOLD = replace(OBJECTIVE, split=LineSplit(loss=(0.2, 0.2), path=(0.8, 0.8), calibration=1))
SPREAD = {"factor": 1.5, "exponent": 0.5}


def network(std=0.02):
    """A network that does something: half of its layers would start at zero, and hide the time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = OBJECTIVE.network()
        for name, value in made.named_parameters():
            if value.count_nonzero() == 0:
                torch.nn.init.normal_(value, std=std if ".out." in name else 0.1)
    return made


def write(path, *, std=0.02, **card):
    return save_weights(path, network(std).state_dict(), "upmri", OBJECTIVE, {"name": path.stem, **card})


def recon(scan, model=None, **settings):
    return upmri.reconstruct(scan, "upmri", model=model, device="cpu", **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def model(folder):
    return write(folder / "calibrated.safetensors", spread=SPREAD)


@pytest.fixture(scope="module")
def bare(folder):
    return write(folder / "bare.safetensors")


@pytest.fixture
def ship(tmp_path, monkeypatch):
    """``ship(name=std, …)``: a package that comes with such weights and no others."""
    monkeypatch.setattr(weights, "_FOLDER", tmp_path)

    def make(**stds):
        for name, std in stds.items():
            write(tmp_path / f"{name}.safetensors", std=std)

    return make


def make_batch(scan, seeds, step=1):
    """A batch draws its splits but once: ``changed(batch)`` is one that will draw the same."""
    problem = Problem.from_scan(scan)
    reference = None if scan.reference is None else scan.reference / problem.scale[:, None, None]
    operator = problem.operator
    return Batch(problem.kspace, operator.maps, operator.mask, problem.sigma, reference, tuple(seeds), step)


@pytest.fixture
def batch(scan):
    return make_batch(scan, (3, 14))


def parts(batch, law=OBJECTIVE.split):
    """Θ, Ξ and Λ that the objective will draw."""
    drawn = [
        law.draw(mask, batch.kspace.shape[-2], torch.Generator().manual_seed(seed))
        for mask, seed in zip(batch.operator.mask, batch.seeds, strict=True)
    ]
    return tuple(torch.stack(part) for part in zip(*drawn, strict=True))


class Watched:
    """A network that remembers what it was asked, and may answer something else."""

    def __init__(self, answer=None):
        self.asked, self.answer = [], answer

    def __call__(self, operator, adjoint, noisy, t, sigma):
        self.asked.append((operator, adjoint, noisy, t))
        return network(0.1)(operator, adjoint, noisy, t, sigma) if self.answer is None else self.answer


# The image, and images around it.


def test_image_and_settings(scan, model):
    rec = recon(scan, model)
    assert rec.image.shape == scan.reference.shape
    assert rec.image.dtype == torch.complex64
    assert rec.samples is None
    assert rec.std is None
    assert rec.settings["model"] == str(model)
    assert rec.settings["sha256"] == load_prior(model).digest
    sense = upmri.reconstruct(scan, "sense").image
    off = (rec.image - sense).norm() / sense.norm()
    assert 0.01 < off < 0.5  # the network does something, and is not all there is


def test_the_image_is_the_single_evaluation_of_the_network(scan, model):
    problem = Problem.from_scan(scan)
    with torch.no_grad():
        x = load_prior(model).network(
            problem.operator, problem.adjoint, torch.randn_like(problem.adjoint), torch.ones(2), problem.sigma
        )
    assert torch.allclose(recon(scan, model).image, x * problem.scale[:, None, None], rtol=1e-4, atol=1e-5)


def test_what_the_weights_would_be_without_learning_is_near_sense(scan, folder):
    """λ = 0.02 (σ₀/0.01)^1.5 at first, and the U-Net silent."""
    image = recon(scan, write(folder / "silent.safetensors", std=0.0)).image
    assert evaluate(replace(recon(scan, folder / "silent.safetensors"), image=image))["psnr"] > 20
    scale = Problem.from_scan(scan).sigma.mean().item() / 0.01
    near = upmri.reconstruct(scan, "sense", damping=0.02 * scale**1.5 / 3).image  # three blocks of λ: nearly one of λ/3
    assert (image - near).norm() < 0.03 * near.norm()


@pytest.mark.parametrize("settings", [{}, {"samples": 3}, {"samples": 3, "steps": 2}])
def test_everything_is_in_the_units_of_the_scan(scan, model, settings):
    loud = replace(scan, kspace=1000 * scan.kspace, noise=1000 * scan.noise)
    soft, loud = recon(scan, model, **settings), recon(loud, model, **settings)
    for name in ("image", "samples", "std") if settings else ("image",):
        one, other = getattr(soft, name), getattr(loud, name)
        assert (other - 1000 * one).norm() < 1e-3 * other.norm()


@pytest.mark.parametrize("settings", [{"samples": 5}, {"samples": 5, "steps": 2}])
def test_shapes_and_support(scan, model, settings):
    rec = recon(scan, model, **settings)
    assert rec.samples.shape == (5, *rec.image.shape)
    assert rec.std.shape == rec.image.shape
    assert rec.std.dtype == torch.float32
    assert torch.equal(rec.image, recon(scan, model).image)
    outside = (scan.maps == 0).all(1)
    assert 0.1 < outside.float().mean() < 0.9
    assert (rec.image[outside] == 0).all()
    assert (rec.samples[:, outside] == 0).all()
    assert (rec.std[~outside] > 0).all()
    assert (rec.image[~outside] != 0).all()
    spread = (rec.samples - rec.image).abs().square().mean().sqrt()
    assert 0.2 < rec.std[~outside].square().mean().sqrt() / spread < 2


def test_the_deviation_of_samples_along_the_flow_is_theirs(scan, model):
    rec = recon(scan, model, samples=4, steps=3)
    assert torch.allclose(rec.std, rec.samples.abs().std(0), rtol=1e-4, atol=1e-6)


def test_the_deviation_by_the_bootstrap_is_that_of_magnitudes_around_the_image(scan, model):
    rec = recon(scan, model, samples=4)
    assert torch.allclose(rec.std, deviation(rec.samples, rec.image), rtol=1e-3, atol=1e-5)


def test_the_spread_on_the_card_scales_the_bootstrap(scan, model, folder):
    """c (u/2)^p: three times c makes it three times as wide, and one more of p u/2 times; u, pixels for each sample."""
    one = recon(scan, model, samples=3)
    off = one.samples - one.image
    assert off.abs().max() > 0.01
    pixels = (scan.maps != 0).any(1).sum((1, 2))
    unknowns = (pixels / (scan.matrix[0] * scan.mask.sum((1, 2))))[:, None, None]
    assert (unknowns - 2).abs().min() > 0.1
    for change, factor in (({"factor": 4.5}, 3), ({"exponent": 1.5}, unknowns / 2)):
        other = recon(scan, write(folder / "wide.safetensors", spread=SPREAD | change), samples=3)
        assert torch.equal(one.image, other.image)
        assert torch.allclose(other.samples - other.image, factor * off, rtol=1e-3, atol=1e-5)


def test_what_cannot_be_asked_for(scan, model, bare):
    with pytest.raises(InputError, match="steps: they are taken to draw images"):
        recon(scan, model, steps=4)
    with pytest.raises(InputError, match="samples: .*bare.safetensors was trained without validation scans"):
        recon(scan, bare, samples=4)
    assert recon(scan, bare, samples=2, steps=1).std is not None
    for settings, match in [({"samples": 0}, "samples"), ({"samples": 2, "steps": 0}, "steps")]:
        with pytest.raises(InputError, match=f"{match}: expected at least 1, got 0"):
            recon(scan, model, **settings)
    for start in (0.0, 0.005, 1.01, float("nan")):
        with pytest.raises(InputError, match="start: expected a time"):
            recon(scan, model, samples=2, steps=2, start=start)
    with pytest.raises(InputError, match="objective.cascades: expected 1 to 64, got 0"):
        UpmriObjective(cascades=0)
    with pytest.raises(InputError, match="objective.width: expected 1 to 256, got 0"):
        UpmriObjective(width=0)


@pytest.mark.parametrize("settings", [{"samples": 3}, {"samples": 3, "steps": 2}])
def test_the_same_seed_gives_the_same_result(scan, model, settings):
    one, same, other = (recon(scan, model, seed=seed, **settings) for seed in (1, 1, 2))
    for name in ("image", "samples", "std"):
        assert torch.equal(getattr(one, name), getattr(same, name))
    assert torch.equal(one.image, other.image)
    assert not torch.allclose(one.samples, other.samples, rtol=0.01)
    assert not torch.allclose(one.samples[0], one.samples[1], rtol=0.01)


@pytest.mark.parametrize("settings", [{}, {"samples": 3}, {"samples": 3, "steps": 2}])
def test_a_slice_alone_is_the_slice_in_the_volume(scan, model, settings):
    whole, alone = recon(scan, model, **settings), recon(scan[1], model, **settings)
    assert torch.equal(whole.image[1:], alone.image)
    if settings:
        assert torch.equal(whole.samples[:, 1:], alone.samples)
        assert torch.equal(whole.std[1:], alone.std)


def test_points_instead_of_lines(scan, model):
    full = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=1, noise=0.02)
    mask = poisson_disc((32, 32), 2, (10, 10))
    points = replace(full, kspace=full.kspace * mask, mask=mask)
    rec = recon(points, model, samples=2)
    assert rec.image.shape == rec.std.shape == (1, 32, 32)
    assert evaluate(rec)["psnr"] > 15
    A = SenseOperator(points.maps, points.mask)
    misfit = (A.forward(rec.image) - points.kspace).norm() / points.kspace.norm()
    assert misfit < 0.1
    assert upmri.reconstruct(points, "upmri", model=model, device="cpu").image.equal(rec.image)


# Which weights.


@pytest.mark.parametrize("good", ["alpha", "omega"])
def test_without_a_name_the_weights_that_foretell_the_scan_are_taken(scan, ship, good):
    bad = {"alpha": "omega", "omega": "alpha"}[good]
    ship(**{good: 0.0, bad: 100.0})
    rec = recon(scan)
    assert rec.settings["model"] == good
    assert rec.settings["sha256"] == load_prior(good).digest
    assert torch.equal(rec.image, recon(scan, good).image)
    assert evaluate(rec)["psnr"] > evaluate(recon(scan, bad))["psnr"] + 3


def test_what_is_foretold_was_not_given(scan):
    """Whatever lines the network is not given, the gain is over SENSE's error on them, over the slices."""
    problem = Problem.from_scan(scan)
    x = scan.reference / problem.scale[:, None, None]
    model, first = (
        SimpleNamespace(network=Watched(1.1 * x)),
        held_out_gain(SimpleNamespace(network=Watched(x)), problem),
    )
    gain = held_out_gain(model, problem)
    asked = model.network.asked
    before, after = 0.0, 0.0
    for operator, adjoint, noisy, t in asked:
        aside = scan.mask & ~operator.mask
        assert aside.any()
        assert torch.equal(operator.mask | aside, scan.mask)
        assert torch.allclose(adjoint, operator.adjoint(problem.kspace))
        assert (noisy == 0).all()
        assert (t == 1).all()
        sense = operator.solve(adjoint, (5 * problem.sigma**1.5).clamp_min(1e-4))
        errors = [(fft2c(scan.maps * image[:, None]) - problem.kspace) * aside[:, None] for image in (sense, 1.1 * x)]
        before, after = before + errors[0].abs().square().sum(), after + errors[1].abs().square().sum()
    turns = torch.stack([scan.mask & ~operator.mask for operator, *_ in asked]).sum(0)
    outer = scan.mask.clone()
    for mask, mine in zip(scan.mask, outer, strict=True):
        mine[:, calibration_region(mask, scan.matrix[0])[1]] = False
    assert torch.equal(turns, outer.int())  # every line once, but those of calibration
    assert len(asked) == min(8, outer.sum((1, 2)).max())
    assert gain == pytest.approx(10 * (before / after).log10().item(), abs=0.01)
    assert first > gain


def test_weights_of_other_methods_are_no_candidates(scan, ship, tmp_path):
    from upmri.methods.upmri_paper import PaperObjective

    ship(bad=100.0)
    objective = PaperObjective(size="tiny")
    save_weights(tmp_path / "a.safetensors", objective.network().state_dict(), "upmri-paper", objective, {"name": "a"})
    assert recon(scan).settings["model"] == "bad"


def test_where_there_are_no_weights_it_says_so(scan, ship):
    ship()
    with pytest.raises(InputError, match="model: no weights"):
        recon(scan)


# The objective.


@pytest.mark.parametrize("step", [0, 1])
def test_the_truth_has_no_loss(scan, step):
    silent = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0)
    batch = make_batch(silent, (5, 6), step)
    loss, more = (OBJECTIVE.loss(Watched(a * batch.reference), changed(batch)) for a in (1, 0.9))
    assert loss.shape == (2,)
    assert (loss.abs() < 0.005 * more).all()


def test_the_loss_is_what_remains_of_sense_s_error(scan, batch):
    """Written out, on Λ; SENSE converged is within a tenth of the eight iterations that are taken."""
    theta, _, judged = parts(batch)
    theta = theta | parts(batch)[1]
    x = 0.7 * batch.reference
    operator = SenseOperator(batch.operator.maps, theta)
    sense = operator.solve(operator.adjoint(batch.kspace), sense_damping(batch.sigma))

    def error(image):
        residual = (fft2c(batch.operator.maps * image[:, None]) - batch.kspace) * judged[:, None]
        return residual.abs().square().sum((1, 2, 3))

    share = judged.sum((1, 2)) / batch.operator.mask.sum((1, 2))
    assert torch.allclose(OBJECTIVE.loss(Watched(x), batch), share * error(x) / error(sense), rtol=0.1)
    more, less = (OBJECTIVE.loss(Watched(a * x), changed(batch)) for a in (1, 1.2))
    assert torch.allclose(more / less, error(x) / error(1.2 * x), rtol=1e-3)


def test_a_scan_without_noise_or_gaps_has_a_loss():
    """There SENSE's error is rounding: nothing to be measured by."""
    full = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=1, noise=0)
    for seed in range(20):
        batch = make_batch(full, (seed, seed + 100))
        for objective in (OBJECTIVE, replace(OBJECTIVE, supervised=True)):
            loss = objective.loss(Watched(0.99 * batch.reference), changed(batch))
            assert loss.isfinite().all()
            assert (loss > 0).all()
            assert (loss < 10).all()


@pytest.mark.parametrize("step", [0, 1])
def test_nothing_of_what_judges_is_told(batch, rng, step):
    """Neither to the network nor, on the path, to what makes the point of the path."""
    _, _, judged = parts(batch)
    other = torch.where(judged[:, None], 100 * rng(2, 4, 32, 32, dtype=torch.complex64), batch.kspace)
    one, two = Watched(), Watched()
    first, second = (
        OBJECTIVE.loss(watched, changed(batch, kspace=kspace, step=step))
        for watched, kspace in ((one, batch.kspace), (two, other))
    )
    assert not torch.allclose(first, second, rtol=0.1)
    assert len(one.asked) == len(two.asked) == (2 if step == 0 else 1)
    for (operator, *rest), (same, *others) in zip(one.asked, two.asked, strict=True):
        assert not (operator.mask & judged).any()
        assert torch.equal(operator.mask, same.mask)
        assert all(torch.equal(a, b) for a, b in zip(rest, others, strict=True))


def test_off_the_path_all_that_does_not_judge_is_given(batch):
    theta, told, _ = parts(batch, TOLD.split)
    assert told.any((1, 2)).all()
    watched = Watched()
    TOLD.loss(watched, batch)
    ((operator, adjoint, noisy, t),) = watched.asked
    assert torch.equal(operator.mask, theta | told)
    assert torch.allclose(adjoint, SenseOperator(batch.operator.maps, theta | told).adjoint(batch.kspace))
    assert (noisy == 0).all()
    assert (t == 1).all()


def test_on_the_path_some_lines_are_told_through_noise_alone(batch):
    """First x̂ from Θ ∪ Ξ at t = 1, without a graph; then the network itself, from Θ and from (1−t) x̂ + t x₁."""
    theta, told, _ = parts(batch, TOLD.split)
    assert told.any((1, 2)).all()
    model = network()
    asked = []

    def watched(operator, adjoint, noisy, t, sigma):
        asked.append((operator, adjoint, noisy, t, model(operator, adjoint, noisy, t, sigma)))
        return asked[-1][-1]

    TOLD.loss(watched, changed(batch, step=8))
    (more, adjoint, noisy, t, end), (less, seen, point, times, prediction) = asked
    assert torch.equal(more.mask, theta | told)
    assert torch.allclose(adjoint, SenseOperator(batch.operator.maps, theta | told).adjoint(batch.kspace))
    assert (noisy == 0).all()
    assert (t == 1).all()
    assert not end.requires_grad
    assert prediction.requires_grad
    assert torch.equal(less.mask, theta)
    assert torch.allclose(seen, SenseOperator(batch.operator.maps, theta).adjoint(batch.kspace))
    assert ((times > 0) & (times < 1)).all()
    assert times[0] != times[1]
    s = times[:, None, None]
    assert torch.allclose(point, (1 - s) * end + s * path_noise(batch), atol=1e-5)


@pytest.mark.parametrize(("every", "on"), [(4, {0, 4, 8}), (1, set(range(9))), (0, set())])
def test_one_step_in_so_many_is_on_the_path(batch, every, on):
    objective, found = replace(OBJECTIVE, path_every=every), set()
    for step in range(9):
        watched = Watched(batch.reference)
        objective.loss(watched, changed(batch, step=step))
        found |= {step} if len(watched.asked) == 2 else set()
    assert found == on


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("supervised", [False, True])
def test_a_step_downhill_lowers_the_error_on_lines_that_were_not_given(batch, step, supervised):
    """Of supervised training, the error itself."""
    objective, model = replace(OBJECTIVE, supervised=supervised), network()
    _, _, judged = parts(batch)
    answers = []

    def watched(*asked):
        answers.append(model(*asked))
        return answers[-1]

    def error():
        answers.clear()
        loss = objective.loss(watched, changed(batch, step=step))
        residual = fft2c(batch.operator.maps * answers[-1][:, None]) - batch.kspace
        true = (answers[-1] - batch.reference) if supervised else residual * judged[:, None]
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
    """Mean over the noise of Λ, against the error on Λ without it: they differ by σ₀² a sample, whatever D says.

    The loss is in units of SENSE's error, which has the same noise in it: that costs no more than one sample in m.
    """
    draws, sigma = 1500, 0.3
    clean = upmri.simulate(upmri.demo.brain()[:1, ::6, ::6], coils=3, acceleration=1.5, acs=4, noise=0)
    one = make_batch(clean, (7,))
    theta, told, judged = parts(one)
    given = theta | told
    samples = 3 * 16 * int(judged.sum())
    generator = torch.Generator().manual_seed(0)
    noise = sigma * torch.randn(draws, 3, 16, 16, dtype=torch.complex64, generator=generator)
    fixed = one.kspace + given * noise[:1]  # the noise of what is given stays
    operator = SenseOperator(one.maps, given)
    adjoint = operator.adjoint(fixed)
    sense = operator.solve(adjoint, sense_damping(torch.tensor([sigma])), "cg", tolerance=0, iterations=8)
    many = Batch(
        kspace=fixed + judged * noise,
        maps=one.maps.expand(draws, -1, -1, -1),
        mask=one.mask.expand(draws, -1, -1),
        sigma=torch.full((draws,), sigma),
        reference=None,
        seeds=(7,) * draws,
        step=1,
    )

    def error(image, kspace):
        return ((fft2c(one.maps * image[:, None]) - kspace) * judged).abs().square().sum((1, 2, 3)).double()

    before, share = error(sense, many.kspace), judged.sum() / one.mask.sum()
    for image in (adjoint, torch.tanh(sense.real) + 0.3j * sense.imag, 0 * sense, sense):
        loss = OBJECTIVE.loss(Watched(image.expand(draws, -1, -1)), replace(many)).double()
        plain = loss * before / share
        true = error(image, one.kspace).item() + samples * sigma**2
        assert abs(plain.mean().item() - true) < 4 * plain.std().item() / draws**0.5
        assert plain.std().item() / draws**0.5 < 0.02 * true
        ratio = share.item() * true / (error(sense, one.kspace).item() + samples * sigma**2)
        assert loss.mean().item() == pytest.approx(ratio, abs=4 * loss.std().item() / draws**0.5 + 2 * ratio / samples)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("supervised", [False, True])
def test_slices_of_a_batch_do_not_mix(batch, step, supervised):
    objective, model = replace(OBJECTIVE, supervised=supervised), network()
    whole = objective.loss(model, changed(batch, step=step))
    for i in range(2):
        part = slice(i, i + 1)
        alone = Batch(
            kspace=batch.kspace[part],
            maps=batch.operator.maps[part],
            mask=batch.operator.mask[part],
            sigma=batch.sigma[part],
            reference=batch.reference[part],
            seeds=batch.seeds[part],
            step=step,
        )
        assert torch.allclose(objective.loss(model, alone), whole[part], rtol=1e-3)
    assert whole[0] != whole[1]


@pytest.mark.parametrize("step", [0, 1])
def test_supervised_the_truth_judges_what_is_made_of_the_same_lines(batch, step):
    objective, watched = replace(OBJECTIVE, supervised=True), Watched(0.5 * batch.reference)
    loss = objective.loss(watched, changed(batch, step=step))
    ((operator, adjoint, noisy, t),) = watched.asked
    theta, told, _ = parts(batch)
    assert torch.equal(operator.mask, theta if step == 0 else theta | told)
    assert torch.allclose(adjoint, operator.adjoint(batch.kspace))
    sense = operator.solve(adjoint, sense_damping(batch.sigma))
    error = [(image - batch.reference).abs().square().sum((1, 2)) for image in (0.5 * batch.reference, sense)]
    assert torch.allclose(loss, error[0] / error[1], rtol=0.1)
    s = t[:, None, None]
    expected = (1 - s) * batch.reference + s * path_noise(batch) if step == 0 else 0 * noisy
    assert torch.allclose(noisy, expected, atol=1e-5)


def test_supervised_needs_the_truth(batch):
    with pytest.raises(InputError, match="learns from full images, and there are scans without a reference"):
        replace(OBJECTIVE, supervised=True).loss(network(), changed(batch, reference=None))


def test_what_validation_looks_at_is_the_image(batch):
    operator = SenseOperator(batch.operator.maps, batch.operator.mask)
    adjoint, model = operator.adjoint(batch.kspace), network()
    with torch.no_grad():
        image = OBJECTIVE.predict(model, operator, batch.kspace, batch.sigma)
        assert torch.equal(image, model(operator, adjoint, torch.zeros_like(adjoint), torch.ones(2), batch.sigma))


def test_what_is_told_of_the_noise_is_off_a_little(batch):
    heard = []

    def listen(*asked):
        heard.append(asked[-1] / batch.sigma)
        return torch.zeros_like(batch.kspace[:, 0])

    for doubt in (0.0, 0.4):
        for seed in range(20):
            sample = changed(batch, seeds=tuple(2 * seed + i for i in range(len(batch))), step=1)
            replace(OBJECTIVE, doubt=doubt).loss(listen, sample)
    exact, off = (torch.cat(values).log() for values in (heard[:20], heard[20:]))
    assert exact.abs().max() < 1e-6
    assert 0.2 < off.std() < 0.6


# Learning from one scan.


def test_adapting_serves_the_lines_of_the_scan(scan, folder):
    """Weights that disturb the image are mended by the scan's own lines, and the file is left as it was."""
    path = write(folder / "poor.safetensors", std=0.1)
    before = path.read_bytes()
    plain, better = (evaluate(recon(scan, path, adapt=steps))["psnr"] for steps in (0, 30))
    assert better > plain + 0.05
    assert path.read_bytes() == before
    assert evaluate(recon(scan, path))["psnr"] == pytest.approx(plain)


def test_adapting_is_for_each_slice_alone(scan, model):
    together = recon(scan, model, adapt=2).image
    assert torch.allclose(recon(scan[1], model, adapt=2).image, together[1:], atol=1e-5)
    assert not torch.allclose(recon(scan, model).image, together, atol=1e-5)


def test_adapting_by_less_than_nothing(scan, model):
    with pytest.raises(InputError, match="adapt: expected 0 or more"):
        recon(scan, model, adapt=-1)


def test_the_mean_over_mirror_images(scan, model):
    """Of a mirrored scan it is the mirrored image; and samples lie around it."""
    turned = replace(scan, **{name: mirror(getattr(scan, name), -2) for name in ("kspace", "maps", "reference")})
    image = recon(scan, model, mirrors=True).image
    assert torch.allclose(mirror(recon(turned, model, mirrors=True).image, -2), image, atol=1e-4 * image.abs().max())
    plain = recon(scan, model).image
    assert not torch.allclose(mirror(recon(turned, model).image, -2), plain, atol=1e-3 * image.abs().max())
    drawn = recon(scan, model, mirrors=True, samples=2, steps=2)
    assert torch.equal(drawn.image, image)
    assert drawn.settings["mirrors"] is True


def test_how_well_the_weights_fit_is_told_and_cannot_be_set(scan, model):
    problem = Problem.from_scan(scan[0])
    assert recon(scan, model).settings["held_out"] == pytest.approx(held_out_gain(load_prior(model), problem), abs=0.01)
    with pytest.raises(InputError, match="held_out: not a setting"):
        recon(scan, model, held_out=3.0)


# The factor of the bootstrap


@pytest.mark.parametrize(("factor", "exponent"), [(1.5, 0.0), (0.8, 0.6)])
def test_the_factor_is_fitted_to_what_held_out_lines_say(monkeypatch, factor, exponent):
    """Errors that are foretold too small by c (u/2)^p, without noise: c and p are found, of large and small objects."""
    large = upmri.demo.brain()[:1, ::2, ::2]
    small = np.zeros_like(large)
    small[:, : large.shape[1] // 2, : large.shape[2] // 2] = large[:, ::2, ::2]
    scans = [
        upmri.simulate(image, coils=4, acceleration=rate, acs=6, noise=0.0, seed=rate)
        for image in (large, small)
        for rate in (2, 3, 4, 6)
    ]
    batches = [make_batch(scan, (i,)) for i, scan in enumerate(scans)]

    def truth(operator):
        return next(batch.reference for batch in batches if torch.equal(batch.operator.maps, operator.maps))

    def wrong(operator, adjoint, noisy, t, sigma):
        return 1.2 * truth(operator)

    def foretold(again, operator, made, sigma, generator, count):
        pixels = (operator.maps != 0).any(1).sum((1, 2))
        unknowns = pixels / (operator.maps.shape[2] * operator.mask.sum((1, 2)))
        off = (made - truth(operator)) / (factor * (unknowns / 2) ** exponent)[:, None, None]
        return off.expand(count, -1, -1, -1)

    monkeypatch.setattr("upmri.methods.upmri.errors", foretold)
    spread = OBJECTIVE.calibrate(wrong, batches)["spread"]
    assert spread["factor"] == pytest.approx(factor, rel=0.03)
    assert spread["exponent"] == pytest.approx(exponent, abs=0.07)
