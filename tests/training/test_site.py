"""Adaptation to a site: weights from its undersampled scans, never worse on held-out lines of scans kept back."""

import os
import signal
import warnings

import numpy as np
import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.methods import find_method
from upmri.methods.upmri_objective import UpmriObjective
from upmri.training import site
from upmri.training.interrupt import TrainingInterrupted
from upmri.weights.files import load_prior, save_weights

OBJECTIVE = UpmriObjective(cascades=1, width=4, path_every=2)
STEPS = 20


@pytest.fixture(scope="module")
def begin(tmp_path_factory):
    """Weights that disturb the image."""
    torch.manual_seed(0)
    network = OBJECTIVE.network()
    torch.nn.init.normal_(network.network.out.weight, std=0.3)
    path = tmp_path_factory.mktemp("weights") / "poor.safetensors"
    return save_weights(path, network.state_dict(), "upmri", OBJECTIVE, {"name": "poor"})


@pytest.fixture(scope="module")
def scans(make_head):
    """Six scans of one slice; the last is none of the site's own."""
    return [upmri.simulate(make_head(seed), coils=4, acceleration=2, seed=seed) for seed in range(6)]


@pytest.fixture(scope="module")
def folder(scans, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "scans"
    folder.mkdir()
    for number, scan in enumerate(scans[:5]):
        np.save(folder / f"{number}.npy", scan.kspace.numpy())
    return folder


def adapt(*args, **settings):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* lines are in no .*")  # of so few scans
        return upmri.adapt(*args, **{"steps": STEPS, "device": "cpu", **settings})


def test_a_wrong_seed_is_refused(folder, begin, tmp_path):
    with pytest.raises(InputError, match="seed: expected a whole number"):
        adapt(folder, begin=begin, output=tmp_path / "x.safetensors", seed=10**20)


def same(a, b):
    first, second = (load_prior(path).network.state_dict() for path in (a, b))
    return all(torch.equal(first[name], second[name]) for name in first)


def test_weights_of_a_site(folder, scans, begin, tmp_path):
    path = adapt(folder, begin=begin, output=tmp_path / "site.safetensors")
    assert [entry.name for entry in tmp_path.iterdir()] == ["site.safetensors"]
    prior = load_prior(path)
    kept = prior.card["training"]["kept"]
    assert site.gain(path) == pytest.approx(kept["gain"] - kept["before"])
    assert site.gain(path) > 0.1
    assert 0 < kept["step"] <= STEPS
    assert prior.card["name"] == "site"
    assert prior.card["training"]["begun with"]["name"] == "poor"
    assert prior.card["data"] == {"slices": 4, "coils": 4, "simulated": False}
    assert "4 undersampled scans; 1 more" in prior.card["about"]
    assert set(prior.card["spread"]) == {"radius", "gain", "exponent"}  # samples are calibrated
    before, after = (upmri.reconstruct(scans[5], model=model, device="cpu") for model in (begin, path))
    assert upmri.evaluate(after)["psnr"] > upmri.evaluate(before)["psnr"] + 0.1


def test_scans_in_memory(scans, begin, tmp_path):
    path = adapt(scans[:3], begin=begin, output=tmp_path / "site.safetensors")
    assert site.gain(path) > 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["site.safetensors"]


def test_scans_in_memory_that_cannot_be_trained_with_are_not_left_on_disk(scans, begin, tmp_path):
    output = tmp_path / "site.safetensors"
    with pytest.raises(InputError, match="at least 2 scans"):
        upmri.adapt(scans[:1], begin=begin, output=output, steps=2, device="cpu")
    few = [scan.kspace * (torch.arange(scan.kspace.shape[-1]) < 3) for scan in scans[:2]]
    with pytest.raises(InputError):
        upmri.adapt(few, begin=begin, output=output, steps=2, device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_is_resumed(folder, begin, tmp_path, monkeypatch):
    whole = adapt(folder, begin=begin, output=tmp_path / "whole.safetensors")

    class Watch:
        number = 2  # Ctrl-C in the first step

        def __init__(self, **_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    target = tmp_path / "site.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr("upmri.training.loop.SignalWatch", Watch)
        with pytest.raises(TrainingInterrupted):
            adapt(folder, begin=begin, output=target)
    assert not target.exists()
    with pytest.raises(
        InputError, match=f"in {target.with_suffix('.run')}; continue it with --resume, remove"
    ) as error:
        adapt(folder, begin=begin, output=target)
    assert error.value.path == str(target)  # what the user named
    adapt(folder, begin=begin, output=target, resume=True)
    assert same(target, whole)
    assert not (tmp_path / "site.run").exists()


def test_a_run_interrupted_while_scans_are_prepared_is_resumed(folder, begin, tmp_path, monkeypatch):
    target = tmp_path / "site.safetensors"

    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch, pytest.raises(TrainingInterrupted, match="continue with --resume"):
        patch.setattr("upmri.training.prepare._make", interrupted)
        adapt(folder, begin=begin, output=target)
    assert adapt(folder, begin=begin, output=target, resume=True) == target


def test_without_a_gain_nothing_is_written(folder, begin, tmp_path, monkeypatch):
    plain = UpmriObjective.loss
    monkeypatch.setattr(UpmriObjective, "loss", lambda *args: -plain(*args))
    with pytest.raises(InputError, match="did not gain") as error:
        adapt(folder, begin=begin, output=tmp_path / "site.safetensors", steps=3)
    assert error.value.field == "scans"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_scan_is_left_out(folder, begin, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "notes.txt").write_text("by hand")
    with pytest.warns(UserWarning, match=r"notes\.txt.*left out"):
        path = adapt(tmp_path, begin=begin, output=tmp_path / "site.safetensors", steps=5)
    assert load_prior(path).card["data"]["slices"] == 4
    with pytest.raises(InputError):
        adapt(tmp_path / "notes.txt", begin=begin, output=tmp_path / "other.safetensors")


def test_weights_of_another_method_are_refused(folder, tmp_path):
    objective = find_method("modl").objective(unrolls=1, layers=3, width=8)
    path = save_weights(tmp_path / "modl.safetensors", objective.network().state_dict(), "modl", objective, {})
    with pytest.raises(InputError, match="has weights of modl, expected some of upmri") as error:
        adapt(folder, begin=path, output=tmp_path / "site.safetensors")
    assert error.value.field == "begin"
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_input(folder, begin, tmp_path):
    taken = tmp_path / "taken.safetensors"
    taken.write_text("")
    target = tmp_path / "site.safetensors"
    for scans, settings, field in (
        (folder / "0.npy", {}, "scans"),
        (folder, {"begin": "no such weights"}, "begin"),
        (folder, {"steps": 0}, "steps"),
        (folder, {"steps": 1.5}, "steps"),
    ):
        with pytest.raises(InputError) as error:
            adapt(scans, **{"begin": begin, "output": target, **settings})
        assert error.value.field == field
    for name, expected in (("site.pt", "ends in .safetensors"), ("checkpoint.safetensors", "state of a training")):
        with pytest.raises(InputError, match=expected) as error:
            adapt(folder, begin=begin, output=tmp_path / name)
        assert (error.value.field, error.value.path) == (None, str(tmp_path / name))
    with pytest.raises(InputError, match="no checkpoint to continue in .*site.run") as error:
        adapt(folder, begin=begin, output=target, resume=True)
    assert (error.value.field, error.value.path) == ("--resume", str(target))
    with pytest.raises(InputError) as error:
        adapt(folder, begin=begin, output=taken)
    assert error.value.path == str(taken)


@pytest.mark.parametrize(("count", "expected"), [(2, [1]), (3, [1]), (5, [2]), (10, [2, 7]), (20, [2, 7, 12, 17])])
def test_a_fifth_is_kept_back(count, expected):
    assert site._kept_back(range(count)) == expected
