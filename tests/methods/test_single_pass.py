"""Methods with one evaluation of an unrolled network: their losses, their images, and wrong settings."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.inference.choice import complete
from upmri.methods import find_method, single_pass
from upmri.methods.learned import Learned
from upmri.physics.masks import poisson_disc
from upmri.physics.problem import Problem
from upmri.weights.files import load_prior, save_weights

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
    return Problem.from_scan(scan).with_seeds(seeds)


def recon(scan, method, model):
    return upmri.reconstruct(scan, method, model=model, device="cpu")


@every
def test_the_table(method):
    kind = find_method(method)
    assert issubclass(kind, Learned)
    assert getattr(single_pass, kind.__name__) is kind
    assert kind.__name__ == method.title().replace("-", "")
    assert kind.__doc__
    assert kind.name == method
    assert kind.needs == NEEDS[method]
    assert kind.evaluations == 1
    assert kind.summary


@every
def test_the_image_is_that_of_the_network(scan, models, method):
    problem, prior, kind = Problem.from_scan(scan), load_prior(models[method]), find_method(method)
    with torch.no_grad():
        expected = prior.network(problem.operator, problem.adjoint)
        if method == "robust-ssdu":  # α = 1
            expected = expected + problem.operator.normal(expected) - problem.adjoint
        validated = kind(model=prior, **kind.validation).reconstruct(problem)
    image = recon(scan, method, models[method]).image
    assert torch.allclose(image, expected * problem.scale[:, None, None], rtol=1e-3, atol=1e-4)
    assert torch.allclose(validated, expected, rtol=1e-3, atol=1e-5)
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
def test_an_operator_of_the_user(scan, models, own_operator, method):
    one, other = (upmri.reconstruct(problem, method, model=models[method]).image for problem in own_operator(scan))
    assert (one - other).norm() < 1e-3 * other.norm()


@every
def test_points_instead_of_lines(models, method):
    full = upmri.simulate(images()[:1], coils=4, acceleration=1, noise=0.02)
    mask = poisson_disc((32, 32), 2, (10, 10))
    points = replace(full, kspace=full.kspace * mask, mask=mask)
    assert recon(points, method, models[method]).image.isfinite().all()
    assert objective(method).loss(network(method), collect(points, (1,))).isfinite().all()


@every
def test_slices_do_not_mix_and_the_loss_depends_on_the_seeds(scan, method):
    trained, model = objective(method), network(method)
    whole = trained.loss(model, collect(scan))
    assert whole.shape == (2,)
    assert torch.allclose(trained.loss(model, collect(scan)), whole)
    for i, seed in enumerate((3, 14)):
        assert torch.allclose(trained.loss(model, collect(scan[i], (seed,))), whole[i], rtol=1e-3)
    other = trained.loss(model, collect(scan, (4, 15)))
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
def test_a_scan_of_the_middle_lines_alone_has_a_loss(scan, method):
    mask = torch.zeros(1, 32, dtype=torch.bool)
    mask[0, 14:18] = True
    few = collect(replace(scan, kspace=scan.kspace * mask, mask=mask))
    assert objective(method).loss(network(method), few).isfinite().all()


@pytest.mark.parametrize("method", SURE)
def test_bright_and_dark_slices_have_equal_weight(problem, changed, Recorder, method):
    """With ten times the signal and ten times the noise the loss of a linear network is the same."""
    bright = changed(problem, kspace=10 * problem.kspace, sigma=10 * problem.sigma)
    assert torch.allclose(*[objective(method).loss(Recorder(), each) for each in (changed(problem), bright)])


@every
def test_without_full_images_the_error_says_what_to_do(scan, method):
    bare = collect(replace(scan, reference=None))
    if method not in FULL:
        assert objective(method).loss(network(method), bare).isfinite().all()
        return
    with pytest.raises(InputError, match="full images.*or images to simulate") as error:
        objective(method).loss(network(method), bare)
    assert error.value.field == "train"


@every
def test_weights_of_another_method_are_refused(scan, models, method):
    other = "varnet" if method != "varnet" else "ssdu"
    match = f"{other}.* has weights of {other}, expected some of {method}"
    with pytest.raises(InputError, match=match) as error:
        recon(scan, method, models[other])
    assert error.value.field == "model"
    problem = Problem.from_scan(scan)
    completed, _ = complete(find_method(method)(model=str(models[other])), problem)
    with pytest.raises(InputError, match=match) as error:
        completed.reconstruct(problem)
    assert error.value.field == "model"
    with pytest.raises(InputError, match=f"no weights of {method}") as error:
        recon(scan, method, None)
    assert error.value.field == "model"


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
        ("ssdu", "loss_share", (0.0, 1.0, float("nan"))),
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
def test_settings_of_the_objective_are_checked(method, key, values):
    for value in values:
        with pytest.raises(InputError) as error:
            objective(method, **{key: value})
        assert error.value.field == key
