"""New scans during training: those of each step, the files that hold them, and what an interruption leaves."""

import gc
import os
import signal
import time
import weakref
from collections import deque
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.training import loop, train
from upmri.training.config import read_config
from upmri.training.data import PreparedSlices
from upmri.training.distributed import Process
from upmri.training.interrupt import SignalWatch, TrainingInterrupted
from upmri.training.prepare import prepare
from upmri.training.redraw import RedrawnSlices

CPU = torch.device("cpu")
ALONE = Process(0, 1, CPU)
WATCH = SignalWatch(folder=Path(), active=False)
EVERY = 3
GUARD = 120  # seconds after which a failing test stops to wait


@pytest.fixture
def settings(config):
    """A run of three draws, with 8 images of which about half have another contrast."""
    run = config(steps=3 * EVERY, batch=2)
    return run | {"train": {**run["train"], "varied": 0.5, "redraw": EVERY, "draw": 4, "limit": 8}}


@pytest.fixture
def in_this_process(monkeypatch):
    """No process but this one prepares scans."""

    def here(_, todo):
        for call in todo:
            call()
            yield call, None

    monkeypatch.setattr(RedrawnSlices, "_beside", here)


@pytest.fixture
def made(settings, tmp_path, in_this_process):
    """``made()``: its slices."""
    run = read_config(settings)
    return lambda: RedrawnSlices(run, ALONE, prepare(run.train, tmp_path / "cache"), WATCH)


def batch(slices, step):
    return slices.batch(step, 2, 7, flips=True)


def test_each_step_has_the_scans_of_its_draw(made, settings, tmp_path):
    slices, data = made(), read_config(settings).train
    draws = [PreparedSlices(prepare(replace(data, draw=4 + i), tmp_path / "other"), CPU) for i in range(3)]
    assert len(slices) == len(draws[0]) == 8
    assert slices.names == draws[0].names != draws[1].names
    for step in range(3 * EVERY):
        found, wanted = batch(slices, step), batch(draws[step // EVERY], step)
        assert torch.equal(found.kspace, wanted.kspace)
        assert torch.equal(found.operator.maps, wanted.operator.maps)
        assert found.step == step
    slices.close()


def test_the_first_draw_does_not_stay_in_memory(made):
    slices = made()
    first, coils, names = weakref.ref(slices._slices), slices.coils, slices.names
    batch(slices, EVERY)
    gc.collect()
    assert first() is None
    assert (len(slices), slices.coils, slices.names) == (8, coils, names)
    slices.close()


def test_scans_beside_the_images_need_references_too(settings, tmp_path, in_this_process):
    scan = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=2)
    plain = replace(scan, reference=None).save(tmp_path / "scan.h5")
    train_data = {**settings["train"], "limit": None}
    for data, refused in ((train_data, False), (train_data | {"scans": [str(plain)]}, True)):
        run = read_config(settings | {"train": data})
        slices = RedrawnSlices(run, ALONE, prepare(run.train, tmp_path / "cache"), WATCH)
        with pytest.raises(InputError, match="1 of 17 slices have no reference") if refused else nullcontext():
            slices.need_references()
        slices.close()


def test_a_later_step_needs_no_earlier_one(made):
    """As where a run is resumed."""
    slices, resumed = made(), made()
    for step in range(2 * EVERY):
        batch(slices, step)
    assert torch.equal(batch(slices, 2 * EVERY).kspace, batch(resumed, 2 * EVERY).kspace)
    slices.close()
    resumed.close()


def test_scans_of_earlier_draws_are_deleted_and_those_of_the_cache_stay(made, settings, tmp_path):
    slices, folder = made(), Path(settings["output"]) / "redrawn"
    kept = sorted((tmp_path / "cache").iterdir())
    for step in range(EVERY + 1):
        batch(slices, step)
    slices._next.result()
    names = [sorted(file.name for file in (folder / draw).iterdir()) for draw in ("1", "2")]
    assert 0 < len(names[0]) == len(names[1]) < 8  # images in their own contrast have one scan, in the cache
    assert not set(names[0]) & set(names[1])
    batch(slices, 2 * EVERY)
    assert [path.name for path in folder.iterdir()] == ["2"]
    assert slices._next is None  # no step needs a fourth draw
    slices.close()
    assert not folder.exists()
    assert sorted((tmp_path / "cache").iterdir()) == kept


@pytest.mark.parametrize(("rank", "expected"), [(0, ["make", "wait", "wait"]), (1, ["wait", "make", "wait"])])
def test_no_process_begins_a_step_before_all_have_their_scans(
    settings, tmp_path, in_this_process, monkeypatch, rank, expected
):
    """A step waits for the others for some minutes only."""
    done, run = [], read_config(settings)
    monkeypatch.setattr(Process, "wait", lambda _: done.append("wait"))
    slices = RedrawnSlices(run, Process(rank, 2, CPU), prepare(run.train, tmp_path / "cache"), WATCH)
    monkeypatch.setattr(RedrawnSlices, "_make", lambda *_: done.append("make"))
    slices._change(1, EVERY)
    assert done == expected
    slices.close()


@pytest.mark.parametrize("error", [ValueError("no coils"), InputError("no coils")])
def test_an_error_of_the_preparation_ends_the_training(made, monkeypatch, error):
    """Only wrong input is called so."""

    def broken(_, todo):
        yield todo[0], error

    slices = made()
    monkeypatch.setattr(RedrawnSlices, "_beside", broken)
    batch(slices, 0)
    with pytest.raises(type(error), match="no coils") as found:
        batch(slices, EVERY)
    assert type(found.value) is type(error)
    slices.close()


def test_the_end_does_not_wait_for_scans_that_nobody_needs(settings, tmp_path):
    run = read_config(settings)
    slices = RedrawnSlices(run, ALONE, prepare(run.train, tmp_path / "cache"), WATCH)
    calls = slices._beside(deque([partial(time.sleep, 0.05)] * 1000))
    assert next(calls)[1] is None
    slices.close()
    with pytest.raises(CancelledError):
        for _ in range(100):
            next(calls)


def check_interruption(settings, runs, monkeypatch):
    train(settings)
    again, advance = settings | {"output": settings["output"] + "again"}, loop._Run.advance

    def fail(run):
        if run.step == 2 * EVERY - 1:
            raise OSError("the power went")
        advance(run)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="the power went"):
        patch.setattr(loop._Run, "advance", fail)
        train(again)
    train(again, resume=True)
    runs.assert_same_run(settings, again)
    assert not list(Path(again["output"]).parent.glob("*/redrawn"))


@pytest.mark.usefixtures("in_this_process")
def test_an_interrupted_run_ends_as_if_it_had_not_been(settings, runs, monkeypatch):
    check_interruption(settings, runs, monkeypatch)


@pytest.mark.soak
def test_the_same_where_other_processes_prepare_scans(settings, runs, monkeypatch):
    check_interruption(settings | {"workers": 2}, runs, monkeypatch)


def train_with(settings, work, **options):
    """Train; the scans of the third draw are prepared by ``work(slices)`` while their first step waits."""
    change = RedrawnSlices._change

    def beside(slices, _):
        yield None, work(slices)

    def late(slices, draw, step):
        with pytest.MonkeyPatch.context() as patch:
            if draw == 2:
                slices._next = None  # what was prepared beside the steps
                patch.setattr(RedrawnSlices, "_beside", beside)
            change(slices, draw, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RedrawnSlices, "_change", late)
        train(settings, **options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("in_this_process")
def test_a_signal_ends_the_wait_for_scans_and_no_step_is_lost(settings, runs, number):
    """Also where a resumed run begins with it."""
    uninterrupted = settings | {"output": settings["output"] + "uninterrupted"}
    train(uninterrupted)
    settings = settings | {"save_every": 100}

    def endless(slices):
        os.kill(os.getpid(), number)
        assert slices._stopped.wait(GUARD)
        return CancelledError()

    for resume in (False, True):
        with pytest.raises(TrainingInterrupted) as stop:
            train_with(settings, endless, resume=resume)
        assert (stop.value.step, stop.value.number) == (2 * EVERY, number)
        assert runs.step_of(settings) == 2 * EVERY
    train(settings, resume=True)
    runs.assert_same_run(uninterrupted, settings)


@pytest.mark.parametrize("error", [BrokenProcessPool("killed"), InputError("no coils"), OSError("disk full")])
@pytest.mark.usefixtures("in_this_process")
def test_where_scans_cannot_be_prepared_no_step_is_lost(settings, runs, error):
    settings = settings | {"save_every": 100}
    with pytest.raises(type(error), match=str(error)) as found:
        train_with(settings, lambda _: error)
    assert type(found.value) is type(error)
    assert found.value.__notes__ == [f"saved at step {2 * EVERY}; continue with --resume (resume=True)"]
    assert runs.step_of(settings) == 2 * EVERY
    train(settings, resume=True)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("train.redraw", {"train": {"images": ["x"], "redraw": 5}}),
        ("train.redraw", {"train": {"images": ["x"], "varied": 0.5, "redraw": -1}}),
        (
            "validation.redraw",
            {"train": {"images": ["x"]}, "validation": {"images": ["x"], "varied": 0.5, "redraw": 5}},
        ),
    ],
)
def test_what_cannot_be_drawn_again(part, changes):
    with pytest.raises(InputError) as error:
        read_config({"output": "x", **changes})
    assert error.value.field == part
