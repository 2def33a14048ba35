"""Methods and weights: by name, class, instance, file or loaded prior; errors come before the work begins."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import upmri
from upmri import InputError
from upmri.inference import choice
from upmri.inference.choice import build_method, candidates, complete
from upmri.learning.held_out import gain_over_sense
from upmri.learning.preference import choose, errors_by_unit, lead
from upmri.methods import Learned, find_method
from upmri.methods.cg_sense import CgSense
from upmri.methods.sense import Sense
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import mean_image
from upmri.physics.identity import IdentityOperator
from upmri.physics.problem import Problem
from upmri.weights.catalogue import available
from upmri.weights.files import load_prior, save_weights

IMAGES = upmri.demo.brain()[:, ::3, ::3]


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(IMAGES[:1], coils=4, acceleration=2, noise=0.02)


@pytest.fixture
def models(tmp_path, monkeypatch):
    """``models(name, coils)``: available weights of MoDL that were trained on scans of so many coils."""
    monkeypatch.setenv("UPMRI_MODELS", str(tmp_path))
    objective = find_method("modl").objective(unrolls=2, layers=3, width=8)

    def make(name, coils=4):
        card = {"data": {"coils": coils}}
        return save_weights(tmp_path / f"{name}.safetensors", objective.network().state_dict(), "modl", objective, card)

    return make


@pytest.mark.parametrize("method", ["cg-sense", CgSense, CgSense(), CgSense(steps=7)])
def test_a_method_by_name_class_or_instance(method):
    assert build_method(method, steps=3, damping=None) == CgSense(steps=3)
    assert build_method(method).steps == (7 if method == CgSense(steps=7) else 10)


@pytest.mark.parametrize(
    ("method", "settings", "match"),
    [
        ("sense", {"steps": 3}, "not a setting of sense, which has damping"),
        (Sense, {"steps": 3}, "not a setting of sense, which has damping"),
        (Sense(), {"steps": 3}, "not a setting of sense, which has damping"),
        ("zero-filled", {"damping": 3}, "not a setting of zero-filled, which has no settings"),
        ("sense", {"model": "brain"}, "not a setting of sense"),
        ("modl", {"cascades": 3}, "not a setting of modl, which has model"),
    ],
)
def test_unknown_settings_are_refused(method, settings, match):
    with pytest.raises(InputError, match=match) as error:
        build_method(method, **settings)
    assert [error.value.field] == list(settings)


@pytest.mark.parametrize("wrong", [3, None, str, torch.nn.Identity()])
def test_what_is_no_method_is_refused(wrong):
    with pytest.raises(InputError, match="a name, a class or an instance") as error:
        build_method(wrong)
    assert error.value.field == "method"


def test_settings_are_checked_by_the_method():
    with pytest.raises(InputError) as error:
        build_method(CgSense(), steps=0)
    assert error.value.field == "steps"


@pytest.mark.parametrize("given", ["name", "path", "text", "prior"])
def test_weights_by_name_file_or_loaded(scan, models, given):
    file = models("heads")
    model = {"name": "heads", "path": file, "text": str(file), "prior": load_prior(file)}[given]
    method, facts = complete(build_method("modl", model=model), Problem.from_scan(scan))
    assert isinstance(method, Learned)
    assert method.prior.digest == load_prior(file).digest
    assert method.settings["model"] == ("heads" if given == "name" else str(file))
    assert facts == {}


def test_a_loaded_prior_is_used_as_it_is(scan):
    prior = upmri.prior("brain")
    assert complete(build_method("upmri", model=prior), Problem.from_scan(scan))[0].prior is prior
    elsewhere = prior.to("meta")  # no weights are moved to look at their facts
    method = build_method("upmri", model=elsewhere)
    assert candidates(method) == ("brain",)
    assert next(elsewhere.parameters()).device.type == "meta"


def test_methods_without_weights_are_complete(scan):
    method = Sense()
    assert complete(method, Problem.from_scan(scan)) == (method, {})


@pytest.mark.parametrize("model", ["nowhere", "nowhere.safetensors", "\0", "a" * 5000])
def test_weights_that_do_not_exist(model):
    with pytest.raises(InputError, match="neither a file nor one of") as error:
        build_method("upmri", model=model)
    assert error.value.field == "model"


def test_weights_of_another_method_are_refused_before_the_work_begins(models):
    with pytest.raises(InputError, match="has weights of modl, expected some of ddnm") as error:
        build_method("dds", model=models("heads"))
    assert error.value.field == "model"
    with pytest.raises(InputError, match="has weights of upmri, expected some of modl") as error:
        build_method("modl", model=upmri.prior("brain"))
    assert error.value.field == "model"


def test_weights_are_taken_when_only_one_file_is_available(models, scan):
    with pytest.raises(InputError, match="no weights of modl are available; give a file .*UPMRI_MODELS") as error:
        build_method("modl")
    assert error.value.field == "model"
    models("heads")
    problem = Problem.from_scan(scan)
    assert complete(build_method("modl"), problem)[0].settings["model"] == "heads"
    models("hearts")
    with pytest.raises(InputError, match="choose weights of modl: heads, hearts") as error:
        complete(build_method("modl"), problem)
    assert error.value.field == "model"


@pytest.fixture
def counted(monkeypatch):
    """Names of the weights that reconstruct something, in the order of the calls."""
    calls = []

    def count(network, problem):
        calls.append(next(name for name in available("upmri") if load_prior(name, shared=True).network is network))
        return mean_image(network, problem)

    monkeypatch.setattr(choice, "mean_image", count)
    return calls


def test_without_a_model_the_available_weights_are_compared(scan, counted):
    problem, names = Problem.from_scan(scan), available("upmri")
    method, facts = complete(Upmri(), problem)
    assert counted in ([*names], [*names] * 2)  # one turn, or two
    errors = errors_by_unit([partial(mean_image, load_prior(name).network) for name in names], problem)
    best = choose(errors)
    assert method.prior.source == names[best]
    assert facts == {"held_out_lead": {names[1 - best]: round(lead(errors[best], errors[1 - best])[0], 2)}}


@pytest.mark.parametrize("better", [0, 1])
def test_the_lead_of_the_chosen_weights_over_the_others(scan, monkeypatch, better):
    errors = torch.ones(2, 8).double()
    errors[better] = 10**-0.45
    monkeypatch.setattr(choice, "errors_by_unit", lambda *_: errors)
    method, facts = complete(Upmri(), Problem.from_scan(scan))
    names = available("upmri")
    assert method.prior.source == names[better]
    assert facts == {"held_out_lead": {names[1 - better]: 4.5}}


def test_weights_that_are_named_are_not_tested(scan, counted, monkeypatch):
    monkeypatch.setattr(choice, "gain_over_sense", None)
    method, facts = complete(Upmri(model="cardiac"), Problem.from_scan(scan))
    assert (method.prior.source, facts, counted) == ("cardiac", {}, [])


@pytest.mark.parametrize("method", [Upmri(), Upmri(model="brain"), Sense()])
def test_the_gain_over_sense_when_asked(scan, method):
    problem = Problem.from_scan(scan)
    completed, facts = complete(method, problem, check=True)
    assert facts["held_out_gain"] == pytest.approx(gain_over_sense(completed.reconstruct, problem), abs=0.005)
    assert ("held_out_lead" in facts) == (method == Upmri())
    assert method != Sense() or facts == {"held_out_gain": 0.0}


def test_an_operator_without_lines_needs_a_name():
    image = torch.ones(1, 32, 32, dtype=torch.complex64)
    problem = Problem(IdentityOperator(image.shape), image, sigma=0.1)
    assert complete(Upmri(model="brain"), problem)[1] == {}
    for asked, field in ((Upmri(), "model"), (Upmri(model="brain"), "operator")):
        with pytest.raises(InputError) as error:
            complete(asked, problem, check=True)
        assert error.value.field == field


def test_one_coil_is_refused_by_weights_from_many(models):
    scan = upmri.simulate(IMAGES[:1], coils=1, acceleration=2)
    match = "has one coil, and many was trained on scans of 4; use a classical"
    with pytest.raises(InputError, match=match) as error:
        upmri.reconstruct(scan, "modl", model=models("many").stem, device="cpu")
    assert error.value.field == "kspace"
    assert upmri.reconstruct(scan, "modl", model=models("one", 1), device="cpu").image.isfinite().all()


def test_weights_from_many_coils_are_left_out_for_one_coil(models):
    """By a method that compares weights, and by one that does not, where others suit."""
    scan = upmri.simulate(IMAGES[:1], coils=1, acceleration=2)
    models("many")
    models("one", 1)
    assert upmri.reconstruct(scan, "modl", device="cpu").settings["model"] == "one"
    with pytest.raises(InputError, match="has one coil, and brain was trained on scans of 16"):
        upmri.reconstruct(scan, device="cpu")
    own, card = load_prior("brain"), {"data": {"coils": 1}}
    save_weights(models("one", 1).with_name("mine.safetensors"), own.network.state_dict(), "upmri", own.objective, card)
    assert upmri.reconstruct(scan, device="cpu").settings["model"] == "mine"


def test_few_calibration_lines_are_no_obstacle(models):
    bare = replace(upmri.simulate(IMAGES[:1], coils=4, acceleration=2, acs=2), maps=None)
    models("heads")
    assert upmri.reconstruct(bare, "modl", device="cpu").settings["maps_from"] == "joint estimation"


def test_the_file_of_weights_is_named_in_errors(tmp_path):
    damaged = Path(tmp_path / "damaged.safetensors")
    damaged.write_bytes(b"not weights")
    with pytest.raises(InputError) as error:
        build_method("upmri", model=damaged)
    assert error.value.path == str(damaged)
