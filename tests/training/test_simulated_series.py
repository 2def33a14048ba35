"""Series that are simulated during training."""

import numpy as np
import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.methods.cine import Cine
from upmri.training.config import DataConfig, TrainConfig
from upmri.training.loop import train
from upmri.training.simulated_series import WITHOUT_EFFECT, SimulatedSeries
from upmri.weights.files import load_prior

FRAMES = 6
SHARES = ((0.0, 0.5), (0.5, 1.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One person with two series of a disc that grows and shrinks."""
    y, x = np.mgrid[-1:1:32j, -1:1:32j]
    body = 120 * (np.hypot(x, y) < 0.8)
    discs = [[body + 80 * (np.hypot(x - s, y) < 0.3 + 0.1 * np.sin(t)) for t in range(FRAMES)] for s in (0, 0.2)]
    path = tmp_path_factory.mktemp("series")
    np.savez(path / "one.npz", image=np.array(discs).astype(np.uint8))
    return path


def config(folder, **changes):
    settings = {
        "images": (str(folder),),
        "accelerations": (2.0, 3.0),
        "noise": (0.005, 0.02),
        "coils": 4,
        "varied": 0.5,
    }
    return DataConfig(**settings | {"anatomy": "torso"} | changes)


@pytest.fixture(scope="module")
def series(folder):
    return SimulatedSeries(config(folder), torch.device("cpu"))


def test_a_batch_is_a_problem_of_whole_series(series):
    problem = series.batch(0, 2, 0, flips=True)
    assert (len(problem), problem.frames, len(series)) == (2 * FRAMES, FRAMES, 2)
    assert (problem.operator.maps[:FRAMES] == problem.operator.maps[:1]).all()
    assert not torch.equal(problem.operator.mask[0], problem.operator.mask[1])


def test_the_data_are_those_of_the_reference(series):
    """Over many scans: patterns, flips, breathing, contrasts and estimated maps, which explain the data less well."""
    ratios = []
    for step in range(12):
        problem = series.batch(step, 1, 7, flips=True)
        error = problem.operator(problem.reference) - problem.kspace
        sampled = problem.operator.mask[:, None].expand_as(error)
        ratios.append(float(error[sampled].abs().square().mean().sqrt() / problem.sigma[0]))
    ratios.sort()
    assert ratios[0] > 0.95
    assert ratios[5] < 1.1  # true maps: noise alone
    assert ratios[9] < 3


def test_batches_depend_on_the_seed_and_step_alone(series, folder):
    other = SimulatedSeries(config(folder), torch.device("cpu"))
    first, again = (made.batch(3, 2, 5, flips=True).kspace for made in (series, other))
    assert torch.equal(first, again)
    assert not torch.equal(first, series.batch(4, 2, 5, flips=True).kspace)
    halves = [series.batch(3, 2, 5, flips=True, rank=rank, world=2).kspace for rank in range(2)]
    assert torch.allclose(torch.cat(halves), first, atol=1e-6)


def test_every_series_comes_once_in_an_epoch(series):
    calls = []
    series.collect, collect = lambda numbers, *_, **__: calls.append(numbers), series.collect
    for step in range(3):
        series.batch(step, 2, 0, flips=False)
    del series.collect
    assert series.collect == collect
    assert all(sorted(numbers) == [0, 1] for numbers in calls)


def test_validation_is_always_the_same(series):
    first, again = ([p.kspace for p in series.all(3)] for _ in range(2))
    assert [len(k) // FRAMES for k in first] == [3, 1]  # two series at two accelerations
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_limit(folder):
    assert len(SimulatedSeries(config(folder, limit=1), torch.device("cpu"))) == 1


@pytest.mark.parametrize("image", [np.zeros((3, 8, 8)), np.zeros((1, 2, 8, 8), complex)])
def test_files_of_another_kind(tmp_path, image):
    np.savez(tmp_path / "x.npz", image=image)
    with pytest.raises(InputError, match="image: expected magnitudes"):
        SimulatedSeries(config(tmp_path), torch.device("cpu"))


SETTINGS = {
    "scans": ("x",), "undersample": True, "only": {"acquisition": "x"}, "side": 16, "lines": "equispaced",
    "counting": "excluded", "acs": {4: 2}, "draw": 1, "redraw": 1, "refine_maps": "brain",
}  # fmt: skip


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
def test_settings_without_effect_are_refused(folder, key):
    with pytest.raises(InputError, match=f"train.{key}: series have new scans .*; leave out {key}$"):
        SimulatedSeries(config(folder, **{key: SETTINGS[key]}), torch.device("cpu"))


def test_settings_are_refused_before_any_data_are_read(tmp_path):
    """All of them by name, also where they are of the scans for validation."""
    plain = {"images": [str(tmp_path / "missing")]}
    with pytest.raises(InputError, match="leave out side, acs$") as error:
        train({"output": "x", "method": "cine", "train": plain, "validation": plain | {"side": 8, "acs": {4: 2}}})
    assert error.value.field == "validation.side"


def test_nobody_is_in_two_shares(tmp_path):
    for i in range(8):
        np.savez(tmp_path / f"p{i}.npz", image=np.full((1, 2, 16, 16), i + 1, np.uint8))
    names = [set(SimulatedSeries(config(tmp_path, share=share), torch.device("cpu")).names.split()) for share in SHARES]
    assert all(names)
    assert not names[0] & names[1]
    assert len(names[0] | names[1]) == 8


def test_a_person_may_be_a_folder(tmp_path):
    for i in range(8):
        (tmp_path / f"p{i}").mkdir()
        np.savez(tmp_path / f"p{i}" / "beat.npz", image=np.full((1, 2, 16, 16), i + 1, np.uint8))
    parts = [config(tmp_path, share=share, person="folder") for share in SHARES]
    counts = [len(SimulatedSeries(part, torch.device("cpu"))) for part in parts]
    assert all(counts)
    assert sum(counts) == 8


def test_a_share_without_people(folder):
    with pytest.raises(InputError, match="validation.images: expected series of images, found none"):
        SimulatedSeries(config(folder, share=(0.0, 1e-9)), torch.device("cpu"), "validation")


def test_a_run_writes_weights_that_reconstruct(folder, tmp_path, series):
    made = train(
        TrainConfig(
            output=str(tmp_path / "run"),
            method="cine",
            objective={"cascades": 1, "width": 4},
            train=config(folder),
            validation=config(folder, accelerations=(3.0,)),
            steps=2,
            batch=2,
            device="cpu",
            name="small",
            log_every=1,
        )
    )
    prior = load_prior(made)
    assert prior.card["data"]["simulated"]
    assert "lines" not in prior.card["data"]  # which have other patterns
    problem = next(series.all(1))
    assert Cine(model=prior).reconstruct(problem).shape == (FRAMES, 32, 32)
    assert upmri.reconstruct(problem, "cine", model=prior).image.isfinite().all()
