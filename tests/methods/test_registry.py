"""Methods by name: built in, installed and registered ones; every method with weights can be trained and used."""

import sys
from dataclasses import dataclass, fields, replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.methods import Method, find_method, method_names, register_method, registry
from upmri.training import train
from upmri.training.config import read_config
from upmri.training.data import PreparedSlices
from upmri.training.prepare import prepare
from upmri.weights.files import load_prior

LEARNED = [name for name in method_names() if find_method(name).objective is not None]
OWNERS = [name for name in LEARNED if find_method(name).weights_of is None]
COUNTS = {"steps", "samples", "iterations", "adapt_steps", "block", "draws", "rows", "lines"}
SLICES = [
    name for name in OWNERS if not find_method(name).dynamic
]  # series have tests/training/test_simulated_series.py
TINY = {"size": "tiny", "cascades": 2, "unrolls": 2, "layers": 3, "width": 8}
IMAGES = upmri.demo.brain()[:, ::3, ::3]


@dataclass(frozen=True)
class Half(Method):
    """x = A*y/2."""

    name = "half"
    summary = "half of the zero-filled image"

    def reconstruct(self, problem):
        return problem.adjoint / 2


@pytest.fixture
def installed(monkeypatch):
    """``installed(name, value)``: a package that names a class as a method is installed."""

    def install(name, value):
        point = EntryPoint(name, value, registry.GROUP)
        monkeypatch.setattr(registry, "entry_points", lambda *, group: [point] if group == registry.GROUP else [])
        registry._plug_ins.cache_clear()

    yield install
    registry._plug_ins.cache_clear()


@pytest.fixture
def registered(monkeypatch):
    """Methods registered in a test are forgotten after it."""
    monkeypatch.setattr(registry, "_registered", {})


@pytest.mark.parametrize("name", method_names())
def test_every_name_is_that_of_its_class(name):
    kind = find_method(name)
    assert issubclass(kind, Method)
    assert kind.name == name
    assert kind.summary
    assert kind.__doc__


def test_the_package_can_be_called():
    assert upmri.methods() == method_names()
    assert {"zero-filled", "sense", "cg-sense", "grappa", "l1-wavelet", registry.DEFAULT} <= set(upmri.methods())
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        upmri.methods.magic  # noqa: B018


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="'magic' is not one of zero-filled") as error:
        find_method("magic")
    assert error.value.field == "method"
    assert "mean" not in str(error.value)
    for typed in ("senze", "SENSE"):
        with pytest.raises(InputError, match="; did you mean sense\\?$"):
            find_method(typed)


@pytest.mark.usefixtures("registered")
def test_a_method_can_be_registered(scan):
    assert register_method(Half) is Half
    assert method_names()[-1] == "half"
    assert find_method("half") is Half
    image, zero_filled = (upmri.reconstruct(scan, name).image for name in ("half", "zero-filled"))
    assert torch.allclose(2 * image, zero_filled)
    again = type("Half", (Half,), {"__module__": Half.__module__, "__qualname__": Half.__qualname__})
    assert register_method(again) is again  # a notebook cell that is run twice
    assert find_method("half") is again


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", ["sense", "half"])
def test_a_name_that_is_taken_is_refused(name):
    register_method(Half)
    with pytest.raises(InputError) as error:
        register_method(type("Other", (Half,), {"name": name}))
    assert error.value.field == "name"


def test_an_installed_method(installed, scan, monkeypatch):
    monkeypatch.setitem(sys.modules, "halves", SimpleNamespace(Half=Half))
    installed("half", "halves:Half")
    assert "half" in upmri.methods()
    assert find_method("half") is Half
    assert upmri.reconstruct(scan, "half").method == "half"
    with pytest.raises(InputError) as error:
        register_method(type("Other", (Half,), {}))
    assert error.value.field == "name"


def test_an_installed_method_does_not_replace_a_built_in_one(installed, monkeypatch):
    monkeypatch.setitem(sys.modules, "halves", SimpleNamespace(Half=Half))
    installed("sense", "halves:Half")
    assert find_method("sense").__module__ == "upmri.methods.sense"


@pytest.mark.parametrize("value", ["no.such.module:Half", "upmri.physics.problem:Problem", "upmri:nothing"])
def test_a_plug_in_that_cannot_be_used(installed, value):
    """It is listed, as listing imports nothing, and does not disturb other methods."""
    installed("half", value)
    assert "half" in upmri.methods()
    assert find_method("sense").name == "sense"
    with pytest.raises(InputError, match=value) as error:
        find_method("half")
    assert error.value.field == "method"


def test_a_plug_in_with_another_name_in_its_class(installed, monkeypatch):
    monkeypatch.setitem(sys.modules, "halves", SimpleNamespace(Half=Half))
    installed("a-half", "halves:Half")
    with pytest.warns(UserWarning, match="calls itself 'half', not 'a-half'"):
        assert find_method("a-half") is Half


def objective_of(method):
    known = {field.name for field in fields(find_method(method).objective)}
    return {key: value for key, value in TINY.items() if key in known}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Heads to simulate scans of, and a folder for the prepared slices."""
    folder = tmp_path_factory.mktemp("every")
    np.savez(folder / "heads.npz", image=np.abs(IMAGES))
    simulated = {"images": [str(folder / "heads.npz")], "coils": 4, "accelerations": [2.0], "noise": [0.02, 0.02]}
    return {"train": simulated, "validation": simulated | {"limit": 1}, "cache": str(folder / "cache")}


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(IMAGES[:1], coils=4, acceleration=2, noise=0.02)


def config_of(method, data, folder, **changes):
    settings = {"steps": 12, "batch": 3, "rate": 6e-3, "warmup": 1, "ema": 0.8, "flips": False, "device": "cpu"}
    return {
        "output": str(folder / "run"),
        "method": method,
        "objective": objective_of(method),
        **data,
        **settings,
        **changes,
    }


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
@pytest.mark.parametrize("method", SLICES)
def test_trains_and_reconstructs(method, data, scan, tmp_path):
    config = config_of(method, data, tmp_path)
    path = train(config)
    prior = load_prior(path)
    assert prior.method == method
    assert prior.card["training"]["validation"].keys() >= {"held_out_gain", "gain"}
    slices = PreparedSlices(prepare(read_config(config).train, tmp_path / data["cache"]), torch.device("cpu"))
    torch.manual_seed(0)
    with torch.no_grad():  # the same slices and random numbers, before and after
        before, after = (
            sum(prior.objective.loss(net, slices.collect([0, 1, 2], range(s, s + 3))).mean() for s in range(0, 60, 10))
            for net in (prior.objective.network(), prior.network)
        )
    assert after < before - 0.05 * abs(before)
    for user in (name for name in LEARNED if (find_method(name).weights_of or name) == method):
        known = {field.name for field in fields(find_method(user))}
        few = {key: value for key, value in {"steps": 3, "samples": 2}.items() if key in known}
        few |= {"null_noise": True} if user == "gtf2m" else {}  # without it all draws are the same
        rec = upmri.reconstruct(scan, user, model=path, device="cpu", **few)
        assert torch.view_as_real(rec.image).isfinite().all()
        assert (rec.image[(scan.maps == 0).all(1)] == 0).all()
        assert rec.settings["sha256"] == prior.digest


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
@pytest.mark.parametrize("method", [name for name in SLICES if find_method(name).needs != "full images"])
def test_undersampled_scans_suffice(method, scan, tmp_path):
    """Scans with and without a reference give the same weights: the reference is not used."""
    priors = []
    for name, kept in (("with", scan), ("without", replace(scan, reference=None))):
        kept.save(tmp_path / f"{name}.h5")
        data = {key: {"scans": [str(tmp_path / f"{name}.h5")]} for key in ("train", "validation")}
        path = train(config_of(method, data, tmp_path / name, steps=2, batch=1))
        priors.append(load_prior(path))
    assert all(np.isfinite(prior.card["training"]["validation"]["held_out_gain"]) for prior in priors)
    pairs = zip(*(prior.network.parameters() for prior in priors), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("method", OWNERS)
def test_supervised_objectives_are_those_that_need_full_images(method):
    assert find_method(method).objective(**objective_of(method)).supervised == (
        find_method(method).needs == "full images"
    )


@pytest.mark.parametrize("method", [name for name in OWNERS if find_method(name).needs == "full images"])
def test_full_images_must_be_there(method, scan, tmp_path):
    replace(scan, reference=None).save(tmp_path / "scan.h5")
    data = {"train": {"scans": [str(tmp_path / "scan.h5")]}}
    with (
        pytest.raises(InputError, match="needs full images") as error,
        pytest.warns(UserWarning, match="phase-encoding lines are in no"),
    ):
        train(config_of(method, data, tmp_path))
    assert error.value.field == "train"


@pytest.mark.parametrize("method", [name for name in LEARNED if name not in OWNERS])
def test_shared_weights_are_trained_by_their_owner(method, data, tmp_path):
    owner = find_method(method).weights_of
    with pytest.raises(InputError, match=f"'{method}' uses the weights of '{owner}'; train that") as error:
        train(config_of(method, data, tmp_path, objective={}))
    assert error.value.field == "method"


@pytest.mark.parametrize("method", method_names())
def test_numbers_of_steps_and_images_are_whole(method):
    kind = find_method(method)
    for name in COUNTS & {field.name for field in fields(kind)}:
        with pytest.raises(InputError, match="expected a whole number, at least 1, got 2.5") as error:
            kind(**({"adapt": True} if name == "adapt_steps" else {}), **{name: 2.5})
        assert error.value.field == name


def test_a_plug_in_that_cannot_be_used_does_not_hide_the_others(installed):
    installed("broken", "no_such_module:Method")
    with pytest.warns(
        UserWarning, match="broken: the plug-in no_such_module:Method cannot be imported: .*; it is left out"
    ):
        found = registry.usable_methods()
    assert tuple(found) == tuple(name for name in method_names() if name != "broken")
    assert found["sense"] is find_method("sense")
