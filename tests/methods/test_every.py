"""Every method that learns: some steps on little data lower its loss, and what was learnt reconstructs a scan."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.methods import find, names
from upmri.training import train
from upmri.training.config import read_config
from upmri.training.data import Slices
from upmri.training.prepare import prepare

LEARNED = [name for name in names() if find_method(name).objective is not None]
OWNERS = [name for name in LEARNED if find_method(name).weights_of is None]
TINY = {"size": "tiny", "cascades": 2, "unrolls": 2, "layers": 3, "width": 8}
IMAGES = upmri.demo.brain()[:, ::3, ::3]


def objective_of(method):
    known = {field.name for field in fields(find_method(method).objective)}
    return {key: value for key, value in TINY.items() if key in known}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Heads to simulate scans of, and where those lie prepared."""
    folder = tmp_path_factory.mktemp("every")
    np.savez(folder / "heads.npz", image=np.abs(IMAGES))
    simulated = {"images": [str(folder / "heads.npz")], "coils": 4, "accelerations": [2.0], "noise": [0.02, 0.02]}
    return {"train": simulated, "validation": simulated | {"limit": 1}, "cache": str(folder / "cache")}


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(IMAGES[:1], coils=4, acceleration=2, noise=0.02)


def config_of(method, data, folder, **changes):
    settings = {"steps": 20, "batch": 3, "rate": 3e-3, "warmup": 1, "ema": 0.8, "flips": False, "device": "cpu"}
    return {
        "output": str(folder / "run"),
        "method": method,
        "objective": objective_of(method),
        **data,
        **settings,
        **changes,
    }


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
@pytest.mark.parametrize("method", OWNERS)
def test_learns_and_reconstructs(method, data, scan, tmp_path):
    config = config_of(method, data, tmp_path)
    path = train(config)
    model = load_prior(path)
    assert model.method == method
    assert model.card["training"]["validation"].keys() >= {"held_out", "gain"}
    slices = Slices(prepare(read_config(config).train, tmp_path / data["cache"]), torch.device("cpu"))
    torch.manual_seed(0)
    with torch.no_grad():  # the same slices and random numbers, before and after
        before, after = (
            sum(model.objective.loss(net, slices.collect([0, 1, 2], range(s, s + 3))).mean() for s in range(0, 60, 10))
            for net in (model.objective.network(), model.network)
        )
    assert after < before - 0.05 * abs(before)
    for user in (name for name in LEARNED if (find_method(name).weights_of or name) == method):
        known = {field.name for field in fields(find_method(user))}
        few = {key: value for key, value in {"steps": 3, "samples": 2}.items() if key in known}
        rec = upmri.reconstruct(scan, user, model=path, device="cpu", **few)
        assert torch.view_as_real(rec.image).isfinite().all()
        assert (rec.image[(scan.maps == 0).all(1)] == 0).all()
        assert rec.settings["sha256"] == model.digest


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
@pytest.mark.parametrize("method", [name for name in OWNERS if find_method(name).needs != "full images"])
def test_undersampled_scans_suffice(method, scan, tmp_path):
    """The same weights come of scans with a reference and without: nothing looks at it."""
    learnt = []
    for name, kept in (("with", scan), ("without", replace(scan, reference=None))):
        kept.save(tmp_path / f"{name}.h5")
        data = {key: {"scans": [str(tmp_path / f"{name}.h5")]} for key in ("train", "validation")}
        path = train(config_of(method, data, tmp_path / name, steps=2, batch=1))
        learnt.append(load_prior(path))
    assert all(np.isfinite(model.card["training"]["validation"]["held_out"]) for model in learnt)
    pairs = zip(learnt[0].network.parameters(), learnt[1].network.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


@pytest.fixture
def models(tmp_path, monkeypatch):
    """``models(name, coils)``: weights of MoDL among those at hand, learnt from scans of so many coils."""
    monkeypatch.setenv("UPMRI_MODELS", str(tmp_path))
    objective = find_method("modl").objective(**objective_of("modl"))

    def make(name, coils=4):
        card = {"data": {"coils": coils}}
        return save_weights(tmp_path / f"{name}.safetensors", objective.network().state_dict(), "modl", objective, card)

    return make


def test_weights_at_hand_are_taken_if_there_are_just_one(models, scan):
    with pytest.raises(InputError, match="no weights of modl are at hand; give a file .*UPMRI_MODELS"):
        upmri.reconstruct(scan, "modl", device="cpu")
    models("heads")
    assert upmri.reconstruct(scan, "modl", device="cpu").settings["model"] == "heads"
    models("hearts")
    with pytest.raises(InputError, match="model: say which weights of modl: heads, hearts"):
        upmri.reconstruct(scan, "modl", device="cpu")


def test_one_coil_is_refused_by_what_was_learnt_from_many(models):
    scan = upmri.simulate(IMAGES[:1], coils=1, acceleration=2)
    with pytest.raises(InputError, match="kspace: has one coil, and many was learnt from scans of 4; use a classical"):
        upmri.reconstruct(scan, "modl", model=models("many").stem, device="cpu")
    assert upmri.reconstruct(scan, "modl", model=models("one", 1), device="cpu").image.isfinite().all()


def test_too_few_calibration_lines(models, scan):
    bare = replace(upmri.simulate(IMAGES[:1], coils=4, acceleration=2, acs=2), maps=None)
    models("heads")
    with pytest.raises(InputError, match="fully sampled lines around the centre of k-space, found .; give coil maps"):
        upmri.reconstruct(bare, "modl", device="cpu")


@pytest.mark.parametrize("method", OWNERS)
def test_objectives_say_what_they_need(method):
    assert find_method(method).objective(**objective_of(method)).supervised == (
        find_method(method).needs == "full images"
    )


@pytest.mark.parametrize("method", [name for name in OWNERS if find_method(name).needs == "full images"])
def test_full_images_must_be_there(method, scan, tmp_path):
    replace(scan, reference=None).save(tmp_path / "scan.h5")
    data = {"train": {"scans": [str(tmp_path / "scan.h5")]}}
    with (
        pytest.raises(InputError, match="learns from full images"),
        pytest.warns(UserWarning, match="phase-encoding lines are in no"),
    ):
        train(config_of(method, data, tmp_path))


@pytest.mark.parametrize("method", [name for name in LEARNED if name not in OWNERS])
def test_shared_weights_are_learnt_by_their_owner(method, data, tmp_path):
    owner = find_method(method).weights_of
    with pytest.raises(InputError, match=f"method: '{method}' takes the weights of '{owner}'; train that"):
        train(config_of(method, data, tmp_path, objective={}))
