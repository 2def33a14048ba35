"""Ctrl-C, SIGTERM and a second training: nothing that was computed is lost, and no state is torn."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from upmri.core.errors import InputError
from upmri.methods.upmri_objective import UpmriObjective
from upmri.training import checkpoint, train
from upmri.training.interrupt import SignalWatch, TrainingInterrupted
from upmri.training.loop import DivergedError

GUARD = 240  # seconds after which a failing test stops to wait
LONG = {"steps": 9, "log_every": 4, "save_every": 100}


@pytest.fixture
def at(monkeypatch):
    """``at(step, action)``: do something in the loss of one step, once."""

    def patch(step, action):
        plain, left = UpmriObjective.loss, [step]

        def loss(self, network, problem):
            value = plain(self, network, problem)
            if problem.step in left:
                left.remove(problem.step)
                value = action(value)
            return value

        monkeypatch.setattr(UpmriObjective, "loss", loss)

    return patch


def send(*numbers):
    def action(value):
        for number in numbers:
            os.kill(os.getpid(), number)
        return value

    return action


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_run_and_it_ends_as_if_uninterrupted(config, runs, at, number):
    """Also its log, whose lines are means over several steps, and its validation."""
    shared = LONG | {"validation": {**config()["train"], "limit": 2}, "validate_every": 3}
    uninterrupted = config(**shared, output=config()["output"] + "uninterrupted")
    train(uninterrupted)
    settings = config(**shared)
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    for done, step in enumerate((0, 5, 6)):
        at(step, send(number))
        with pytest.raises(TrainingInterrupted, match=rf"saved at step {step + 1}; continue with --resume") as stop:
            train(settings, resume=done > 0)
        assert (stop.value.step, stop.value.number) == (step + 1, number)
        assert runs.step_of(settings) == step + 1
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    train(settings, resume=True)
    runs.assert_same_run(uninterrupted, settings)


def test_a_signal_in_the_last_step_changes_nothing(config, at):
    at(3, send(signal.SIGINT))
    assert train(config()).exists()


def test_the_second_signal_interrupts_at_once(config, runs, at, monkeypatch):
    monkeypatch.setattr("upmri.training.interrupt._SAME", 0)
    at(5, send(signal.SIGINT, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt) as stop:
        train(config(steps=9, save_every=2))
    assert not isinstance(stop.value, TrainingInterrupted)
    assert runs.step_of(config()) == 4


def test_a_signal_that_comes_twice_is_one(config, runs, at):
    """``timeout`` sends it to the process, then to its group."""
    at(5, send(signal.SIGTERM, signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        train(config(**LONG))
    assert runs.step_of(config()) == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("where", "calls", "step"),
    [
        ("upmri.training.loop.first_network", 1, 0),
        ("upmri.training.prepare._make", 5, 0),
        ("upmri.training.loop.validate", 1, 0),
        ("upmri.training.loop.save_weights", 1, 4),
    ],
)
def test_a_signal_outside_of_the_steps_ends_at_once_and_the_run_is_resumed(
    config, runs, monkeypatch, where, calls, step, number
):
    """While slices are prepared, in the first validation, and while the weights are written."""
    shared = {"keep": "best", "validation": {**config()["train"], "limit": 2}, "calibrate": False, "cache": None}
    uninterrupted = config(**shared, output=config()["output"] + "uninterrupted")
    train(uninterrupted)
    settings, left = config(**shared), [calls]
    module, _, name = where.rpartition(".")
    plain = getattr(importlib.import_module(module), name)

    def late(*words, **options):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), number)
        return plain(*words, **options)

    monkeypatch.setattr(where, late)
    with pytest.raises(TrainingInterrupted, match="before a step was saved" if not step else f"at step {step}") as stop:
        train(settings)
    assert "; continue with --resume" in str(stop.value)
    assert (stop.value.step, stop.value.number) == (step, number)
    assert left == [0]
    train(settings, resume=True)
    runs.assert_same_run(uninterrupted, settings)


def test_a_run_that_has_diverged_is_not_saved(config, at):
    def action(value):
        return send(signal.SIGINT)(value) * float("nan")

    at(5, action)
    with pytest.raises(DivergedError):
        train(config(steps=9, log_every=100, save_every=100))
    assert not (Path(config()["output"]) / "checkpoint.safetensors").exists()


def test_signals_are_left_alone_where_they_cannot_be_watched():
    before = signal.getsignal(signal.SIGINT)
    with SignalWatch(folder=Path(), active=False) as watch:
        assert signal.getsignal(signal.SIGINT) is before
    errors = []

    def other() -> None:
        try:
            with SignalWatch(folder=Path(), active=True):
                pass
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert not errors
    assert watch.number is None


# --- the command line, in a process of its own ------------------------------------------------------------------------


@pytest.fixture
def start(popen):
    """``start(path, *words)``: `upmri train` in a process of its own."""

    def begin(path, *words):
        command = [sys.executable, "-m", "upmri", "train", str(path), "-q", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)

    return begin


def wait_for(test, process):
    deadline = time.monotonic() + GUARD
    while not test():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_the_command_reports_where_it_was_saved(config, write, runs, start, number, code):
    settings = config(steps=100_000, save_every=100_000, schedule="constant")
    process = start(write(settings))
    log = Path(settings["output"]) / "log.jsonl"
    wait_for(lambda: log.exists() and log.stat().st_size, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=GUARD)
    assert (process.returncode, out) == (code, "")
    step = runs.step_of(settings)
    assert (
        err == f"upmri: {settings['output']}: interrupted, saved at step {step}; continue with --resume (resume=True)\n"
    )
    assert runs.entries(settings)[-1]["step"] == step


# --- two trainings in one folder --------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_second_training_in_the_same_folder_is_refused_until_the_first_is_gone(config, write, runs, start):
    settings = config(steps=100_000, save_every=1, schedule="constant")
    process = start(write(settings))
    state = Path(settings["output"]) / "checkpoint.safetensors"
    wait_for(state.exists, process)
    process.send_signal(signal.SIGSTOP)  # it need not train meanwhile; it still has the folder
    second = start(write(settings), "--resume")
    out, err = second.communicate(timeout=GUARD)
    assert (second.returncode, out, err.count("\n")) == (2, "", 1)
    assert f"(process {process.pid})" in err
    with pytest.raises(InputError) as error:
        train(settings, resume=True)
    assert error.value.path == settings["output"]
    assert process.poll() is None
    process.kill()
    process.communicate()
    step = runs.step_of(settings)
    process = start(write(settings), "--resume")  # a killed process holds no lock
    wait_for(lambda: runs.step_of(settings) > step, process)
    process.terminate()
    process.communicate(timeout=GUARD)
    assert process.returncode == 143
    assert sorted(path.name for path in state.parent.iterdir()) == [".lock", "checkpoint.safetensors", "log.jsonl"]


def test_a_lock_is_free_after_its_context(tmp_path):
    for _ in range(2):
        with checkpoint.run_lock(tmp_path), pytest.raises(InputError) as error, checkpoint.run_lock(tmp_path):
            pass
        assert error.value.path == str(tmp_path)
        assert str(os.getpid()) in error.value.message


def test_a_lock_that_was_removed_is_made_anew(tmp_path, monkeypatch):
    import fcntl

    folder, lock = tmp_path / "run", fcntl.flock
    removed = []

    def late(file, how):
        if not removed:  # another training failed after this one had opened the file
            removed.append((folder / ".lock").unlink())
            folder.rmdir()
        lock(file, how)

    monkeypatch.setattr("fcntl.flock", late)
    with checkpoint.run_lock(folder), pytest.raises(InputError, match="another training"), checkpoint.run_lock(folder):
        pass
    assert (folder / ".lock").exists()


def test_a_folder_is_removed_only_if_nothing_was_written(tmp_path):
    folder = tmp_path / "a" / "run"

    def fail(*names):
        with pytest.raises(KeyError), checkpoint.run_lock(folder):
            for name in names:
                (folder / name).mkdir()
            raise KeyError

    fail("cache")
    assert not list(tmp_path.iterdir())
    fail("other")
    assert {path.name for path in folder.iterdir()} == {".lock", "other"}


def test_without_locks_a_warning(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(checkpoint.errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.warns(UserWarning, match="no locks"), checkpoint.run_lock(tmp_path):
        pass
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with checkpoint.run_lock(tmp_path):
            pass
