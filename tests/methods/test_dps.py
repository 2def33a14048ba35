"""DPS: its gradient against differences, its ancestral step against the law it is to keep, and its settings."""

from dataclasses import replace

import pytest
import torch

import upmri
import upmri.training
from upmri import InputError, weights
from upmri.flow.diffusion import Cosine
from upmri.methods.base import Problem
from upmri.methods.ddnm import DiffusionLesson
from upmri.methods.dps import Dps, ancestor, pull
from upmri.methods.ot_ode import FlowLesson
from upmri.methods.sense import Sense
from upmri.physics.sense import SenseOperator

CPU = torch.device("cpu")


def save(folder, name, lesson):
    """A network that does something: its last convolution would start at zero."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = lesson.network()
        torch.nn.init.normal_(network.network.out.weight, std=0.05)
    return weights.save(folder / f"{name}.safetensors", network.state_dict(), name, lesson, {"name": name})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("weights"), "ddnm", DiffusionLesson(size="tiny"))


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)


def recon(scan, model=None, **settings):
    return upmri.reconstruct(scan, "dps", model=model, **({"steps": 3, "device": "cpu"} | settings))


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

    guess, slope = pull(network, schedule, operator, y, x, level)
    assert torch.allclose(guess, image(x))
    assert bool((guess.abs() > 4 - 1e-9).any()) == (level > 1)
    h = 1e-6
    plus, minus = (misfit(x + s * h * direction) for s in (1, -1))
    found = (slope.conj() * direction).real.sum((1, 2))
    assert torch.allclose(found, (plus - minus) / (2 * h), rtol=1e-5)


def test_where_the_data_are_met_there_is_no_pull(rng):
    operator = SenseOperator(rng(1, 2, 4, 6), torch.ones(1, 1, 6, dtype=torch.bool))
    schedule, x = Cosine(levels=20), 0.1 * rng(1, 4, 6)
    a, _ = schedule.scales(3)
    _, slope = pull(lambda z, _: 0 * z, schedule, operator, operator.forward(x / a), x, 3)
    assert (slope == 0).all()


@pytest.mark.parametrize(("now", "then"), [(20, 13), (9, 8), (5, 1)])
def test_the_ancestral_step_keeps_the_law(rng, now, then):
    """From x_t = a x₀ + σ ε with x₀ known to x_t' = a' x₀ + σ' ε', ε' ~ CN(0, 2I), which remembers some of ε."""
    schedule, draws = Cosine(levels=20), 200_000
    (a, sigma), (next_a, next_sigma) = schedule.scales(now), schedule.scales(then)
    x0, eps = rng(1, 1, 1), 2**0.5 * rng(draws, 1, 1)
    x = ancestor(schedule, a * x0 + sigma * eps, x0, now, then, torch.Generator().manual_seed(1))
    made = (x - next_a * x0) / next_sigma
    assert made.mean().abs() < 0.02
    assert made.real.var().item() == pytest.approx(1, rel=0.02)
    assert made.imag.var().item() == pytest.approx(1, rel=0.02)
    # Cov(x_t, x_t') = (a/a') σ'², as x_t is x_t' with more noise.
    shared = (made * eps.conj()).real.mean().item() / 2
    assert shared == pytest.approx(a / next_a * next_sigma / sigma, abs=0.01)


def test_the_last_step_leaves_the_guess(rng):
    x, guess = rng(1, 4, 6), rng(1, 4, 6)
    assert torch.allclose(ancestor(Cosine(levels=20), x, guess, 3, 0, torch.Generator()), guess)


class Mixture(torch.nn.Module):
    """A prior that is known: one of three images, and s = 0.05 of noise a channel in it."""

    def __init__(self, images):
        super().__init__()
        self.images = images

    def forward(self, x, t):
        a, sigma = Cosine().scales(round(1000 * t[0].item()))
        variance = (0.05 * a) ** 2 + sigma**2
        gap = (x[:, None] - a * self.images).abs().square().sum((-2, -1))
        nearest = torch.einsum("nk,khw->nhw", torch.softmax(-gap / (2 * variance), 1).to(x.dtype), self.images)
        return (x - a * nearest) * sigma / variance


@pytest.mark.parametrize("steps", [100, 1000])
def test_with_the_right_prior_it_is_far_better_than_sense(model, monkeypatch, steps):
    """By 6.6 and 6.0 dB."""
    scan = upmri.simulate(upmri.demo.brain()[:, ::2, ::2], coils=8, acceleration=4, acs=6, noise=0.01, seed=5)
    problem = Problem(scan[0], CPU, torch.Generator().manual_seed(0))
    images = scan.reference / problem.scale
    known = replace(weights.load(model), network=Mixture(images))
    monkeypatch.setattr(weights, "load", lambda *_: known)
    with torch.no_grad():
        ours, sense = (
            (kind.reconstruct(problem).abs() - images[0].abs()).square().mean()
            for kind in (Dps(model="known", steps=steps), Sense())
        )
    assert 10 * torch.log10(sense / ours) > 3


def test_what_it_says_of_itself():
    assert (Dps.name, Dps.needs, Dps.evaluations, Dps.weights_of) == ("dps", "full images", 1000, "ddnm")
    assert upmri.methods.find("dps") is Dps
    assert Dps() == Dps(steps=1000, strength=1.0)
    assert Dps.lesson is DiffusionLesson


def test_seeds_slices_settings_and_support(scan, model):
    rec = recon(scan, model)
    assert rec.image.shape == scan.reference.shape
    assert torch.view_as_real(rec.image).isfinite().all()
    assert (rec.image[(scan.maps == 0).all(1)] == 0).all()
    assert {"steps": 3, "strength": 1.0, "sha256": weights.load(model).digest}.items() <= rec.settings.items()
    assert torch.equal(rec.image, recon(scan, model).image)
    alone = recon(scan[1], model).image
    assert (rec.image[1:] - alone).norm() < 1e-4 * alone.norm()
    for settings in ({"seed": 1}, {"strength": 0.1}, {"steps": 5}):
        assert (recon(scan, model, **settings).image - rec.image).norm() > 1e-3 * rec.image.norm()


def test_without_strength_the_data_have_no_say(scan, model):
    other = replace(scan, kspace=scan.kspace.flip(1))  # of the same scale, as good as
    scales = [Problem(s, CPU, torch.Generator()).scale[:, None, None] for s in (scan, other)]
    for strength, alike in [(0.0, True), (1.0, False)]:
        one, two = (recon(s, model, strength=strength).image / q for s, q in zip((scan, other), scales, strict=True))
        assert ((one - two).norm() < 1e-4 * one.norm()) == alike


def test_everything_scales_with_the_scan(scan, model):
    loud = replace(scan, kspace=1000 * scan.kspace, noise=1000 * scan.noise)
    one, other = (recon(s, model).image for s in (scan, loud))
    assert (other - 1000 * one).norm() < 1e-2 * other.norm()


def test_a_scan_without_noise(model):
    silent = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=2, acceleration=4, acs=6, noise=0)
    assert torch.view_as_real(recon(silent, model).image).isfinite().all()


def test_weights_of_another_method_are_refused(scan, tmp_path):
    stranger = save(tmp_path, "ot-ode", FlowLesson(size="tiny"))  # the same network
    with pytest.raises(InputError, match="holds weights of ot-ode, expected some of ddnm$"):
        recon(scan, stranger)
    with pytest.raises(InputError, match="model: no weights of ddnm"):
        recon(scan)
    with pytest.raises(InputError, match="method: 'dps' takes the weights of 'ddnm'; train that"):
        upmri.training.train({"output": str(tmp_path), "method": "dps", "train": {"scans": [str(tmp_path)]}})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "^steps: expected at least 1, got 0"),
        ({"steps": 1001}, "^steps: expected 1 to 1000, got 1001"),
        ({"strength": -1.0}, "^strength: expected ζ ≥ 0"),
    ],
)
def test_settings_are_checked(scan, model, settings, message):
    with pytest.raises(InputError, match=message):
        recon(scan, model, **settings)
