"""What all methods with an unrolled network have in common: from training to images, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.methods import find_method
from upmri.physics.problem import Problem
from upmri.methods.robust_ssdu import corrected
from upmri.physics.masks import poisson_disc

TINY = {
    "modl": {"unrolls": 2, "layers": 3, "width": 8},
    "varnet": {"cascades": 2, "width": 8},
    "ssdu": {"cascades": 2, "width": 8},
    "weighted-ssdu": {"cascades": 2, "width": 8},
    "robust-ssdu": {"cascades": 2, "width": 8},
    "rei": {"cascades": 2, "width": 8},
    "moi": {"unrolls": 2, "layers": 3, "width": 8},
    "ensure": {"unrolls": 2, "layers": 3, "width": 8},
}
FULL = ("modl", "varnet")
SURE = {"rei": "undersampled scans"} | dict.fromkeys(("moi", "ensure"), "undersampled scans, many masks")
NEEDS = dict.fromkeys(TINY, "undersampled scans, split") | dict.fromkeys(FULL, "full images") | SURE
every = pytest.mark.parametrize("method", TINY)


def images():
    return np.abs(upmri.demo.brain()[:, ::3, ::3])


def objective(method, **changes):
    return find_method(method).objective(**TINY[method] | changes)


def network(method):
    """A network that does something."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = objective(method).network()
        for name, parameter in made.named_parameters():
            if not name.startswith("log_") and parameter.count_nonzero() == 0:
                torch.nn.init.normal_(parameter, std=0.02)
    return made


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    return {
        name: save_weights(folder / f"{name}.safetensors", network(name).state_dict(), name, objective(name), {})
        for name in TINY
    }


def collect(scan, seeds=(3, 14)):
    problem = Problem.from_scan(scan)
    reference = None if scan.reference is None else scan.reference / problem.scale[:, None, None]
    operator = problem.operator
    return Batch(problem.kspace, operator.maps, operator.mask, problem.sigma, reference, tuple(seeds))


def recon(scan, method, model):
    return upmri.reconstruct(scan, method, model=model, device="cpu")


@every
def test_facts(method):
    kind = find_method(method)
    assert kind.name == method
    assert kind.needs == NEEDS[method]
    assert kind.evaluations == 1
    assert kind.summary


@every
def test_the_image_is_the_network_s_and_what_validation_looks_at(scan, models, method):
    problem = Problem.from_scan(scan)
    model = load_prior(models[method])
    with torch.no_grad():
        expected = model.network(problem.operator, problem.adjoint)
        if method == "robust-ssdu":
            expected = corrected(expected, problem.operator, problem.adjoint, 1.0)
        seen = model.objective.predict(model.network, problem.operator, problem.kspace, problem.sigma)
    image = recon(scan, method, models[method]).image
    assert torch.allclose(image, expected * problem.scale[:, None, None], rtol=1e-3, atol=1e-4)
    assert torch.allclose(seen, expected, rtol=1e-3, atol=1e-5)
    assert (image[(scan.maps == 0).all(1)] == 0).all()


@every
def test_a_slice_alone_is_the_slice_in_the_volume(scan, models, method):
    whole, alone = recon(scan, method, models[method]), recon(scan[1], method, models[method])
    assert torch.equal(whole.image[1:], alone.image)


@every
def test_everything_is_in_the_units_of_the_scan(scan, models, method):
    loud = recon(replace(scan, kspace=1000 * scan.kspace, noise=None), method, models[method]).image
    soft = recon(scan, method, models[method]).image
    assert (loud - 1000 * soft).norm() < 1e-3 * loud.norm()


@every
def test_points_instead_of_lines(models, method):
    full = upmri.simulate(images()[:1], coils=4, acceleration=1, noise=0.02)
    mask = poisson_disc((32, 32), 2, (10, 10))
    points = replace(full, kspace=full.kspace * mask, mask=mask)
    assert recon(points, method, models[method]).image.isfinite().all()
    assert objective(method).loss(network(method), collect(points, (1,))).isfinite().all()


@every
def test_slices_of_a_batch_do_not_mix_and_seeds_decide(scan, method):
    taught, model = objective(method), network(method)
    whole = taught.loss(model, collect(scan))
    assert whole.shape == (2,)
    assert torch.allclose(taught.loss(model, collect(scan)), whole)
    for i, seed in enumerate((3, 14)):
        assert torch.allclose(taught.loss(model, collect(scan[i], (seed,))), whole[i], rtol=1e-3)
    other = taught.loss(model, collect(scan, (4, 15)))
    assert torch.allclose(other, whole) == (method in FULL)
    whole.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.abs().max() > 0 for p in model.parameters())


@every
def test_a_fully_sampled_scan_has_a_loss(method):
    full = upmri.simulate(images()[:2], coils=4, acceleration=1, noise=0.01)
    loss = objective(method).loss(network(method), collect(full))
    assert loss.isfinite().all()
    assert (loss > 0).all()


@every
def test_so_has_one_of_the_middle_lines_alone(scan, method):
    mask = torch.zeros(1, 32, dtype=torch.bool)
    mask[0, 14:18] = True
    assert (
        objective(method)
        .loss(network(method), collect(replace(scan, kspace=scan.kspace * mask, mask=mask)))
        .isfinite()
        .all()
    )


@pytest.mark.parametrize("method", SURE)
def test_bright_and_dim_slices_count_alike(batch, Watched, method):
    """Ten times the signal, with ten times the noise, is the same loss for a network that does not mind."""
    loud = changed(batch, kspace=10 * batch.kspace, sigma=10 * batch.sigma)
    assert torch.allclose(*[objective(method).loss(Watched(), b) for b in (changed(batch), loud)])


@every
def test_without_full_images_it_says_what_to_do(scan, method):
    bare = replace(collect(scan), reference=None)
    if method not in FULL:
        assert objective(method).loss(network(method), bare).isfinite().all()
        return
    with pytest.raises(InputError, match="train: .*full images.*or images to simulate"):
        objective(method).loss(network(method), bare)


@every
def test_weights_of_another_method_are_refused(scan, models, method):
    other = "varnet" if method != "varnet" else "ssdu"
    with pytest.raises(
        InputError, match=f"model: .*{other}.safetensors holds weights of {other}, expected some of {method}"
    ):
        recon(scan, method, models[other])
    problem = Problem.from_scan(scan)
    with pytest.raises(InputError, match=f"expected some of {method}"):
        find_method(method)(model=str(models[other])).fit(problem)
    with pytest.raises(InputError, match=f"model: no weights of {method}"):
        recon(scan, method, None)


@pytest.mark.parametrize(
    ("method", "key", "values"),
    [
        ("modl", "unrolls", (0, 65)),
        ("modl", "layers", (1, 65)),
        ("modl", "width", (0, 513)),
        ("modl", "damping", (0.0, 1e3, float("nan"))),
        ("varnet", "cascades", (0, 65)),
        ("varnet", "width", (0, 257)),
        ("ssdu", "cascades", (0,)),
        ("ssdu", "judged", (0.0, 1.0, float("nan"))),
        ("weighted-ssdu", "kept", (0.0, 1.0)),
        ("weighted-ssdu", "cascades", (0,)),
        ("robust-ssdu", "kept", (0.0, 1.0)),
        ("robust-ssdu", "alpha", (0.0, 100.0)),
        ("robust-ssdu", "cascades", (0,)),
        ("rei", "cascades", (0, 65)),
        ("rei", "width", (0, 257)),
        ("rei", "alpha", (-0.1, 1001, float("nan"))),
        ("rei", "transform", ("shears", "")),
        ("moi", "unrolls", (0, 65)),
        ("moi", "layers", (1, 65)),
        ("moi", "width", (0, 513)),
        ("moi", "damping", (0.0, 1e3, float("nan"))),
        ("moi", "alpha", (-0.1, 1001, float("nan"))),
        ("ensure", "unrolls", (0, 65)),
        ("ensure", "layers", (1, 65)),
        ("ensure", "width", (0, 513)),
        ("ensure", "damping", (0.0, 1e3, float("nan"))),
    ],
)
def test_what_a_objective_cannot_be(method, key, values):
    for value in values:
        with pytest.raises(InputError, match=f"objective.{key}: expected"):
            objective(method, **{key: value})
