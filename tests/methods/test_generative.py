"""What the generative baselines share: seeds, slices, weights of their own or another's, and learning them."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.diffusion import Cosine
from upmri.methods.ambient import AmbientObjective
from upmri.physics.problem import Problem
from upmri.methods.ddnm import DiffusionObjective
from upmri.methods.ot_ode import FlowObjective
from upmri.methods.sense import Sense

OWNERS = {
    "ddnm": "ddnm",
    "dds": "ddnm",
    "dps": "ddnm",
    "ot-ode": "ot-ode",
    "pnp-flow": "ot-ode",
    "ambient": "ambient",
}
OBJECTIVES = {"ddnm": DiffusionObjective, "ot-ode": FlowObjective, "ambient": AmbientObjective}


@pytest.fixture(scope="module")
def models(save):
    return {name: save(name, objective(size="tiny")) for name, objective in OBJECTIVES.items()}


def recon(scan, method, model, **settings):
    return upmri.reconstruct(scan, method, model=model, **({"steps": 3, "device": "cpu"} | settings))


@pytest.mark.parametrize("method", OWNERS)
def test_the_seed_decides_and_a_slice_is_what_it_is_in_the_volume(scan, models, method):
    model = models[OWNERS[method]]
    rec = recon(scan, method, model)
    assert rec.image.shape == scan.reference.shape
    assert torch.view_as_real(rec.image).isfinite().all()
    assert (rec.image[(scan.maps == 0).all(1)] == 0).all()
    assert {"steps": 3, "model": str(model), "sha256": load_prior(model).digest}.items() <= rec.settings.items()
    assert torch.equal(rec.image, recon(scan, method, model).image)
    other = recon(scan, method, model, seed=1).image
    assert (other - rec.image).norm() > 1e-3 * rec.image.norm()
    alone = recon(scan[1], method, model).image
    assert (rec.image[1:] - alone).norm() < 1e-4 * alone.norm()


class Mixture(torch.nn.Module):
    """A prior that is known: one of three images, and s = 0.05 of noise a channel in it."""

    def __init__(self, images, owner, operator):
        super().__init__()
        self.images, self.owner = images, owner
        self.seen = torch.stack([operator.normal(image[None])[0] for image in images])

    def nearest(self, x, among, variance):
        gap = (x[:, None] - among).abs().square().sum((-2, -1))
        return torch.einsum("nk,khw->nhw", torch.softmax(-gap / (2 * variance), 1).to(x.dtype), self.images)

    def mean(self, x, a, sigma):
        """E[x₀ | a x₀ + σ n = x]."""
        variance = (0.05 * a) ** 2 + sigma**2
        nearest = self.nearest(x, a * self.images, variance)
        return nearest + a * 0.05**2 / variance * (x - a * nearest)

    def forward(self, x, t):
        time = t[0].item()
        if self.owner == "ot-ode":
            return (x - self.mean(x, 1 - time, time)) / time
        a, sigma = Cosine().scales(round(1000 * time))
        if self.owner == "ambient":  # which it is, through the lines of the scan
            return self.nearest(x, a * self.seen, sigma**2)
        return (x - a * self.mean(x, a, sigma)) / sigma


@pytest.mark.parametrize(("method", "settings"), [*((method, {}) for method in OWNERS), ("dps", {"steps": 100})])
def test_with_the_right_prior_they_are_far_better_than_sense(models, pretend, method, settings):
    """By 4 to 8 dB."""
    scan = upmri.simulate(upmri.demo.brain()[:, ::2, ::2], coils=8, acceleration=4, acs=6, noise=0.01, seed=5)
    problem = Problem.from_scan(scan[0], seed=0)
    images, owner = scan.reference / problem.scale, OWNERS[method]
    pretend(models[owner], Mixture(images, owner, problem.operator))
    with torch.no_grad():
        ours, sense = (
            (kind.reconstruct(problem).abs() - images[0].abs()).square().mean()
            for kind in (find_method(method)(model="known", **settings), Sense())
        )
    assert 10 * torch.log10(sense / ours) > 3


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ddnm", {"eta": 0.1}),
        ("ddnm", {"damping": 0.5}),
        ("dds", {"eta": 0.1}),
        ("dds", {"weight": 9.0}),
        ("dps", {"steps": 5}),
        ("dps", {"strength": 0.1}),
        ("ot-ode", {"start": 0.4}),
        ("ot-ode", {"strength": 0.2}),
        ("pnp-flow", {"draws": 4}),
        ("pnp-flow", {"alpha": 2.0}),
        ("ambient", {"steps": 5}),
        ("ambient", {"eta": 0.1}),
        ("ambient", {"weight": 9.0}),
    ],
)
def test_every_setting_matters(scan, models, method, settings):
    model = models[OWNERS[method]]
    plain, other = recon(scan[0], method, model).image, recon(scan[0], method, model, **settings)
    assert (other.image - plain).norm() > 1e-3 * plain.norm()
    assert settings.items() <= other.settings.items()


@pytest.mark.parametrize("method", OWNERS)
def test_a_scan_without_noise(models, method):
    """Where a damping by σ₀ alone would be 0, and nothing could be factored."""
    silent = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=2, acceleration=4, acs=6, noise=0)
    image = recon(silent, method, models[OWNERS[method]]).image
    assert torch.view_as_real(image).isfinite().all()
    assert image.abs().max() < 10 * silent.reference.abs().max()


@pytest.mark.parametrize("method", OWNERS)
def test_everything_scales_with_the_scan(scan, models, method):
    loud = replace(scan, kspace=1000 * scan.kspace, noise=1000 * scan.noise)
    one, other = (recon(s, method, models[OWNERS[method]]).image for s in (scan, loud))
    assert (other - 1000 * one).norm() < 1e-2 * other.norm()


@pytest.mark.parametrize(("method", "owner"), OWNERS.items())
def test_weights_of_another_method_are_refused(scan, models, method, owner):
    problem = Problem.from_scan(scan)
    kind = find_method(method)
    for stranger in OBJECTIVES.keys() - {owner}:
        with pytest.raises(InputError, match=f"holds weights of {stranger}, expected some of {owner}$"):
            recon(scan, method, models[stranger])
        with pytest.raises(InputError, match=f"holds weights of {stranger}, expected some of {owner}$"):
            kind(model=str(models[stranger])).fit(problem)
    fitting = kind(model=str(models[owner]))
    assert fitting.fit(problem) == fitting


@pytest.mark.parametrize(("method", "owner"), OWNERS.items())
def test_they_come_without_weights(scan, method, owner):
    with pytest.raises(InputError, match=f"model: no weights of {owner} are at hand; give a file"):
        recon(scan, method, None)
    with pytest.raises(InputError, match=f"model: say which weights of {method}: none are at hand"):
        find_method(method)().fit(Problem.from_scan(scan))


def test_shipped_weights_serve_both_methods(models, monkeypatch):
    monkeypatch.setattr(weights, "_FOLDER", models["ddnm"].parent)
    assert {method: upmri.methods.at_hand(method) for method in OWNERS} == {m: (o,) for m, o in OWNERS.items()}
    assert upmri.methods.at_hand("upmri") == ()


@pytest.mark.parametrize("method", OWNERS)
def test_what_they_say_of_themselves(method):
    kind = find_method(method)
    assert (kind.name, kind.weights_of or method, kind.objective) == (
        method,
        OWNERS[method],
        OBJECTIVES[OWNERS[method]],
    )
    assert kind.needs == ("undersampled scans" if method == "ambient" else "full images")
    assert kind.evaluations == kind().steps == (1000 if method == "dps" else 100)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("ddnm", {"steps": 0}, "steps: expected at least 1, got 0"),
        ("ddnm", {"steps": 1001}, "steps: expected 1 to 1000, got 1001"),
        ("ddnm", {"eta": -0.1}, "eta: expected 0 to 1"),
        ("ddnm", {"damping": -1.0}, "damping: expected λ > 0"),
        ("dds", {"weight": 0.0}, "weight: expected w > 0"),
        ("dps", {"steps": 0}, "steps: expected at least 1, got 0"),
        ("dps", {"steps": 1001}, "steps: expected 1 to 1000, got 1001"),
        ("dps", {"strength": -1.0}, "strength: expected ζ ≥ 0"),
        ("ot-ode", {"steps": 0}, "steps: expected at least 1"),
        ("ot-ode", {"start": 0.0}, "start: expected a time between 0 and 1"),
        ("ot-ode", {"start": 1.0}, "start: expected a time between 0 and 1"),
        ("ot-ode", {"strength": -1.0}, "strength: expected γ ≥ 0"),
        ("pnp-flow", {"steps": 0}, "steps: expected at least 1"),
        ("pnp-flow", {"draws": 0}, "draws: expected at least 1"),
        ("pnp-flow", {"alpha": -0.1}, "alpha: expected α ≥ 0"),
        ("ambient", {"steps": 0}, "steps: expected"),
        ("ambient", {"eta": 1.5}, "eta: expected"),
        ("ambient", {"weight": 0.0}, "weight: expected"),
    ],
)
def test_settings_are_checked(scan, models, method, settings, message):
    with pytest.raises(InputError, match=f"^{message}"):
        recon(scan, method, models[OWNERS[method]], **settings)


@pytest.mark.parametrize("kind", [DiffusionObjective, FlowObjective])
def test_objectives_check_their_size_and_their_scans(rng, kind):
    with pytest.raises(InputError, match="objective.size: expected one of tiny"):
        kind(size="vast")
    y = rng(1, 2, 8, 8)
    with pytest.raises(InputError, match="learns from full images.*without a reference; give .*images to simulate"):
        kind(size="tiny").loss(lambda z, _: z, Batch(y, y, torch.ones(1, 1, 8) > 0, torch.ones(1), None, (1,)))
