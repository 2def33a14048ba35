"""Methods with a trained network: their weights, and what all that draw images have in common."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.diffusion import Cosine
from upmri.inference.choice import complete
from upmri.methods import find_method
from upmri.methods.ambient import AmbientObjective
from upmri.methods.ddnm import DiffusionObjective
from upmri.methods.ot_ode import FlowObjective
from upmri.methods.pnp_flow import PnpFlow
from upmri.methods.prior import Prior
from upmri.methods.sense import Sense
from upmri.physics.identity import IdentityOperator
from upmri.physics.problem import Problem
from upmri.weights import catalogue
from upmri.weights.catalogue import available
from upmri.weights.files import load_prior

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
def test_the_image_depends_on_the_seed_and_a_slice_alone_is_the_slice_in_the_volume(scan, models, method):
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
    """A known prior: one of three images, with noise of s = 0.05 per channel."""

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
        if self.owner == "ambient":  # the most likely image, by the lines of the scan
            return self.nearest(x, a * self.seen, sigma**2)
        return (x - a * self.mean(x, a, sigma)) / sigma


@pytest.mark.parametrize(("method", "settings"), [*((method, {}) for method in OWNERS), ("dps", {"steps": 100})])
def test_with_the_right_prior_they_are_far_better_than_sense(models, with_network, method, settings):
    """By 4 to 8 dB."""
    scan = upmri.simulate(upmri.demo.brain()[:, ::2, ::2], coils=8, acceleration=4, acs=6, noise=0.01, seed=5)
    problem = Problem.from_scan(scan[0])
    images, owner = scan.reference / problem.scale, OWNERS[method]
    prior = with_network(models[owner], Mixture(images, owner, problem.operator))
    with torch.no_grad():
        ours, sense = (
            (kind.reconstruct(problem).abs() - images[0].abs()).square().mean()
            for kind in (find_method(method)(model=prior, **settings), Sense())
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
def test_every_setting_has_an_effect(scan, models, method, settings):
    model = models[OWNERS[method]]
    plain, other = recon(scan[0], method, model).image, recon(scan[0], method, model, **settings)
    assert (other.image - plain).norm() > 1e-3 * plain.norm()
    assert settings.items() <= other.settings.items()


@pytest.mark.parametrize("method", OWNERS)
def test_a_scan_without_noise(models, method):
    """A damping by σ₀ alone would be 0, and no matrix could be factored."""
    clean = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=2, acceleration=4, acs=6, noise=0)
    image = recon(clean, method, models[OWNERS[method]]).image
    assert torch.view_as_real(image).isfinite().all()
    assert image.abs().max() < 10 * clean.reference.abs().max()


@pytest.mark.parametrize("method", OWNERS)
def test_everything_scales_with_the_scan(scan, models, method):
    loud = replace(scan, kspace=1000 * scan.kspace, noise=1000 * scan.noise)
    one, other = (recon(s, method, models[OWNERS[method]]).image for s in (scan, loud))
    assert (other - 1000 * one).norm() < 1e-2 * other.norm()


@pytest.mark.parametrize(("method", "owner"), OWNERS.items())
def test_weights_of_another_method_are_refused(scan, models, method, owner):
    problem, kind = Problem.from_scan(scan), find_method(method)
    for stranger in OBJECTIVES.keys() - {owner}:
        match = f"has weights of {stranger}, expected some of {owner}$"
        with pytest.raises(InputError, match=match) as error:
            recon(scan, method, models[stranger])
        assert error.value.field == "model"
        with pytest.raises(InputError, match=match) as error:
            kind(model=load_prior(models[stranger])).reconstruct(problem)
        assert error.value.field == "model"
    completed, facts = complete(kind(model=str(models[owner])), problem)
    assert completed == kind(model=load_prior(models[owner], shared=True))
    assert facts == {}


@pytest.mark.parametrize(("method", "owner"), OWNERS.items())
def test_they_come_without_weights(scan, method, owner):
    with pytest.raises(InputError, match=f"no weights of {owner} are available; give a file") as error:
        recon(scan, method, None)
    assert error.value.field == "model"
    with pytest.raises(InputError, match=f"choose weights of {method}: none are available") as error:
        complete(find_method(method)(), Problem.from_scan(scan))
    assert error.value.field == "model"


def test_a_method_alone_needs_a_loaded_prior(scan, models):
    for model in (None, str(models["ot-ode"])):
        with pytest.raises(InputError, match="upmri.prior loads one") as error:
            PnpFlow(model=model).reconstruct(Problem.from_scan(scan))
        assert error.value.field == "model"
    assert PnpFlow(model="a").settings["model"] == "a"
    assert PnpFlow(model=load_prior(models["ot-ode"])).settings["model"] == str(models["ot-ode"])


def test_shipped_weights_are_for_all_methods_of_their_owner(models, monkeypatch):
    monkeypatch.setattr(catalogue, "_FOLDER", models["ddnm"].parent)
    for method, owner in OWNERS.items():
        assert available(method) == (owner,)
    assert available("upmri") == ()


@pytest.mark.parametrize("method", OWNERS)
def test_an_operator_of_the_user(scan, models, own_operator, method):
    one, other = (
        upmri.reconstruct(problem, method, model=models[OWNERS[method]], steps=3).image
        for problem in own_operator(scan)
    )
    assert (one - other).norm() < 1e-3 * other.norm()


@pytest.mark.parametrize("method", OWNERS)
def test_their_descriptions(method):
    kind = find_method(method)
    assert (kind.name, kind.weights_of or method, kind.objective) == (
        method,
        OWNERS[method],
        OBJECTIVES[OWNERS[method]],
    )
    assert kind.needs == ("undersampled scans" if method == "ambient" else "full images")
    assert kind.evaluations == kind().steps == (1000 if method == "dps" else 100)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ddnm", {"steps": 0}),
        ("ddnm", {"steps": 1001}),
        ("ddnm", {"eta": -0.1}),
        ("ddnm", {"damping": -1.0}),
        ("dds", {"weight": 0.0}),
        ("dps", {"steps": 0}),
        ("dps", {"steps": 1001}),
        ("dps", {"strength": -1.0}),
        ("ot-ode", {"steps": 0}),
        ("ot-ode", {"start": 0.0}),
        ("ot-ode", {"start": 1.0}),
        ("ot-ode", {"strength": -1.0}),
        ("pnp-flow", {"steps": 0}),
        ("pnp-flow", {"draws": 0}),
        ("pnp-flow", {"alpha": -0.1}),
        ("ambient", {"steps": 0}),
        ("ambient", {"eta": 1.5}),
        ("ambient", {"weight": 0.0}),
    ],
)
def test_settings_are_checked(scan, models, method, settings):
    with pytest.raises(InputError, match="expected") as error:
        recon(scan, method, models[OWNERS[method]], **settings)
    assert [error.value.field] == list(settings)


@pytest.mark.parametrize("kind", [DiffusionObjective, FlowObjective])
def test_objectives_check_their_size_and_their_scans(rng, kind):
    with pytest.raises(InputError) as error:
        kind(size="vast")
    assert error.value.field == "size"
    image = rng(1, 8, 8)
    problem = Problem(IdentityOperator(image.shape), image, sigma=1.0, scaled=True, seeds=1)
    with pytest.raises(InputError, match="needs full images.*without a reference; give .*images to simulate") as error:
        kind(size="tiny").loss(lambda z, _: z, problem)
    assert error.value.field == "train"


def test_a_prior_with_the_objective_of_another_method_is_refused(scan):
    """As a program can build one; a file names both."""
    flow = FlowObjective(size="tiny")
    prior = Prior(flow.network(), flow, "ddnm")
    with pytest.raises(InputError, match="trained with DiffusionObjective, got some of FlowObjective"):
        recon(scan, "dds", prior)
