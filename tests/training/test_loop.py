import json
import math
import random
import shutil
import signal
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import upmri
from upmri.core.errors import InputError
from upmri.methods import registry
from upmri.methods.base import Objective
from upmri.methods.learned import Learned
from upmri.methods.registry import register_method
from upmri.methods.upmri_objective import UpmriObjective
from upmri.networks.adm import SIZES
from upmri.training import checkpoint, train
from upmri.training.config import TrainConfig, read_config
from upmri.training.data import PreparedSlices, seed_of
from upmri.training.distributed import Process
from upmri.training.interrupt import TrainingInterrupted
from upmri.training.loop import DivergedError, _schedule
from upmri.training.prepare import prepare
from upmri.weights.catalogue import read_card
from upmri.weights.files import load_prior, save_weights


@contextmanager
def spoilt(how, *steps):
    """Change the objective's loss in some steps."""
    plain = UpmriObjective.loss

    def loss(self, network, problem):
        value = plain(self, network, problem)
        return how(value, network) if problem.step in steps else value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UpmriObjective, "loss", loss)
        yield


def fresh(config):
    """The network as a run begins with it."""
    torch.manual_seed(config.get("seed", 0))
    return UpmriObjective(**config["objective"]).network()


# What it learns


def test_it_learns_from_undersampled_scans_alone(config, simulated, cache, runs):
    """The loss of the same batches falls."""
    data = {**config()["train"], "noise": [0.05, 0.05]}
    settings = config({"path_every": 0}, train=data, steps=40, batch=4, warmup=5, rate=2e-3)
    path = train(settings)
    objective = UpmriObjective(**settings["objective"])
    slices = PreparedSlices(prepare(replace(simulated, noise=(0.05, 0.05)), cache), torch.device("cpu"))
    losses = []
    for network in (fresh(settings), load_prior(path).network):
        with torch.no_grad():
            batches = (slices.batch(step, 4, 0, flips=True) for step in range(8))
            losses.append(torch.cat([objective.loss(network, batch) for batch in batches]).mean().item())
    assert losses[0] == pytest.approx(sum(runs.logged(settings, "loss")[:8]) / 8, rel=0.1)
    assert losses[1] < 0.998 * losses[0]


@pytest.mark.soak
def test_it_leaves_sense_behind(config, runs):
    """On held-out lines, and against a truth that it never saw."""
    settings = config({"path_every": 0}, steps=200, batch=4, rate=5e-4, warmup=10, validation=config()["train"])
    train(settings)
    assert runs.logged(settings, "held_out_gain")[-1] > 0.4
    assert runs.logged(settings, "gain")[-1] > 0.3


@pytest.mark.soak
def test_it_learns_from_the_truth(config, runs):
    settings = config({"supervised": True, "path_every": 0}, steps=100, batch=4, rate=5e-4, warmup=10)
    train(settings)
    losses = runs.logged(settings, "loss")
    assert sum(losses[-20:]) < 0.9 * sum(losses[:20])


@pytest.mark.parametrize(
    ("method", "objective"),
    [
        ("upmri", {"cascades": 1, "width": 4, "path_every": 1}),
        ("upmri", {"cascades": 1, "width": 4, "supervised": True}),
        ("upmri", {"cascades": 2, "width": 4, "path_every": 0}),
        ("upmri-paper", {"size": "tiny", "iterations": 4}),
    ],
)
def test_every_objective_can_be_trained(config, method, objective, runs):
    settings = config(steps=2) | {"method": method, "objective": objective}
    model = load_prior(train(settings))
    assert model.method == method
    assert all(getattr(model.objective, key) == value for key, value in objective.items())
    assert all(math.isfinite(value) for value in runs.logged(settings, "loss"))


def test_scans_train_too(config, heads, tmp_path, runs):
    """Undersampled ones of several slices and sizes, without maps or reference."""
    for i in range(3):
        image = upmri.formats.load_images(heads / f"{i:02}.npz")[:, : 40 - 2 * (i == 2)].repeat(4, 0)
        scan = upmri.simulate(image, 4, 2, seed=i)
        replace(scan, maps=None, reference=None, noise=None).save(tmp_path / f"{i}.h5")
    data = {"scans": [str(tmp_path / f"{i}.h5") for i in range(3)]}
    settings = config(train=data, validation=data, cache=None)
    with pytest.warns(UserWarning, match="lines are in no") as warned:
        train(settings)
    assert len(warned) <= 2
    assert runs.logged(settings, "held_out_gain")
    assert not runs.logged(settings, "gain")


def test_the_same_run_again_is_the_same(config, runs):
    pair = [config(output=config()["output"] + name) for name in "ab"]
    for settings in pair:
        train(settings)
    runs.assert_same_run(*pair)
    other = config(output=config()["output"] + "c", seed=1)
    train(other)
    assert not torch.equal(runs.state(other)["network.log_damping"], runs.state(pair[0])["network.log_damping"])


def test_dropout_has_other_numbers_in_each_step_of_each_process_and_seed(config, monkeypatch):
    seeds, plain = {}, UpmriObjective.loss

    def loss(self, network, problem):
        seeds[run, problem.step] = torch.initial_seed()
        return plain(self, network, problem)

    monkeypatch.setattr(UpmriObjective, "loss", loss)
    for run in (0, 1):
        train(config(steps=2, seed=run, output=f"{config()['output']}-{run}"))
    expected = {key: seed_of(key[0], "dropout", key[1], 0) for key in ((0, 0), (0, 1), (1, 0), (1, 1))}
    assert seeds == expected
    others = {seed_of(run, "dropout", step, 1) for run, step in seeds}
    assert len({*seeds.values(), *others}) == 8


def test_observing_changes_nothing(config, monkeypatch, runs):
    """Neither validation, saving and logging nor the place of the slices change the weights, with dropout too."""
    monkeypatch.setitem(SIZES, "tiny", replace(SIZES["tiny"], dropout=0.3))
    quiet = config(steps=5, log_every=5, save_every=5, output=config()["output"] + "quiet")
    data = {**quiet["train"], "limit": 3}
    busy = config(steps=5, log_every=1, save_every=1, validate_every=1, validation=data, resident=True)
    for settings in (quiet, busy):
        train(settings)
    assert len(runs.logged(busy, "gain")) == 5
    first, second = runs.state(quiet), runs.state(busy)
    assert all(torch.equal(first[key], second[key]) for key in first)


# Resuming


def stop(value, network):
    raise KeyboardInterrupt


def test_a_resumed_run_equals_an_uninterrupted_one(config, monkeypatch, runs):
    """Interrupted in every step once; with dropout, validation and flips."""
    monkeypatch.setitem(SIZES, "tiny", replace(SIZES["tiny"], dropout=0.3))
    shared = {"steps": 7, "save_every": 2, "validate_every": 3, "validation": {**config()["train"], "limit": 2}}
    uninterrupted = config(**shared, output=config()["output"] + "uninterrupted")
    train(uninterrupted)

    interrupted = config(**shared)
    for step in range(7):
        begun = (Path(interrupted["output"]) / "checkpoint.safetensors").exists()
        with spoilt(stop, step), pytest.raises(KeyboardInterrupt):
            train(interrupted, resume=begun)
    train(interrupted, resume=True)
    runs.assert_same_run(uninterrupted, interrupted)


class Normalised(nn.Module):
    """A network with means and a count as buffers, and weights without a gradient."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.unused = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Linear(2, 2)

    def forward(self, _operator, adjoint):
        image = torch.view_as_real(adjoint).permute(0, 3, 1, 2)
        return adjoint + torch.view_as_complex(self.norm(self.layer(image)).permute(0, 2, 3, 1).contiguous())


@dataclass(frozen=True)
class NormalisedObjective(Objective):
    def network(self):
        return Normalised()

    def loss(self, network, problem):
        image = network(problem.operator, problem.adjoint)
        return (problem.operator.normal(image) - problem.adjoint).abs().square().sum((1, 2))


@dataclass(frozen=True)
class NormalisedMethod(Learned):
    name = "normalised"
    summary = needs = "…"
    objective = NormalisedObjective

    def reconstruct(self, problem):
        return self.prior.network(problem.operator, problem.adjoint)


def test_networks_of_plug_ins_may_have_buffers_and_unused_weights(config, monkeypatch, runs):
    """The weights have the buffers, and a resumed run is an uninterrupted one."""
    monkeypatch.setattr(registry, "_registered", {})
    register_method(NormalisedMethod)
    data = {**config()["train"], "limit": 2}
    shared = {"method": "normalised", "validation": data, "validate_every": 2, "keep": "best"}
    pair = [config(**shared, output=config()["output"] + name) | {"objective": {}} for name in "ab"]
    path = train(pair[0])
    plain = NormalisedObjective.loss

    def loss(self, network, problem):
        if problem.step == 3:
            raise KeyboardInterrupt
        return plain(self, network, problem)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(NormalisedObjective, "loss", loss)
        train(pair[1])
    train(pair[1], resume=True)
    runs.assert_same_run(*pair)
    state, kept = runs.state(pair[0]), load_prior(path).network.norm
    assert state["network.norm.num_batches_tracked"] == 4
    assert not any(name.startswith("exp_avg") and "unused" in name for name in state)
    for name in ("running_mean", "running_var"):
        assert torch.equal(getattr(kept, name), state[f"best.norm.{name}"].half().float())
    assert kept.num_batches_tracked == state["best.norm.num_batches_tracked"]


def kill_at(process, log, lines, delay):
    """Send SIGKILL when the log has so many lines, and a moment later; return its exit code."""
    deadline = time.monotonic() + 240
    while not (log.exists() and log.read_bytes().count(b"\n") >= lines):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode


def check_kills(runs, config, write, kills):
    shared = {"steps": 6 + 12 * kills, "validation": {**config()["train"], "limit": 2}, "validate_every": 3}
    uninterrupted = config(**shared, output=config()["output"] + "uninterrupted")
    train(uninterrupted)
    interrupted, draw = config(**shared), random.Random(kills)
    log, steps = Path(interrupted["output"]) / "log.jsonl", []
    for kill in range(kills):
        lines = (log.read_bytes().count(b"\n") if log.exists() else 0) + draw.randint(4, 9)
        with runs.start([write(interrupted)], resume=kill > 0) as process:
            assert kill_at(process, log, lines, draw.uniform(0, 0.06)) == -signal.SIGKILL
        steps.append(runs.step_of(interrupted))
    assert 0 < steps[0] <= steps[-1] < interrupted["steps"]
    with log.open("a") as file:
        file.write('{"step": 1, "loss"')  # as a kill in the middle of a line leaves it
    train(interrupted, resume=True)
    runs.assert_same_run(uninterrupted, interrupted)
    assert not list(log.parent.glob(".upmri-*"))


def test_a_killed_run_ends_as_if_it_had_not_been(config, write, runs):
    check_kills(runs, config, write, 1)


@pytest.mark.soak
def test_a_run_killed_five_times_ends_as_if_it_had_not_been(config, write, runs):
    check_kills(runs, config, write, 5)


def test_a_kill_between_the_last_state_and_the_weights(config, monkeypatch):
    monkeypatch.setattr("upmri.training.loop._Run.seconds", 1.0)  # the card has them, rounded
    settings = config(validation={**config()["train"], "limit": 2})
    path = train(settings)
    before = path.read_bytes()
    path.unlink()
    assert train(settings, resume=True) == path
    assert path.read_bytes() == before
    train(settings, resume=True)  # a run that is over stays as it is
    assert path.read_bytes() == before


def test_a_run_that_is_there_is_not_overwritten(config):
    settings = config()
    path = train(settings)
    before = {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    with pytest.raises(InputError, match="has a run already") as error:
        train(settings)
    assert error.value.path == settings["output"]
    assert {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} == before


@pytest.mark.parametrize("there", [(), ("notes.txt",), ("cache",), (".lock", "weights.safetensors")])
def test_where_no_run_was_begun_there_is_nothing_to_resume(config, there):
    """Neither in a folder of other files or prepared slices, nor in that of a run whose checkpoint was removed."""
    settings = config()
    folder = Path(settings["output"])
    for name in there:
        (folder / name).mkdir(parents=True)
    with pytest.raises(InputError, match="no checkpoint to continue; start without it") as error:
        train(settings, resume=True)
    assert (error.value.field, error.value.path) == ("--resume", settings["output"])
    assert sorted(path.name for path in folder.glob("*")) == sorted(there)


def test_a_run_interrupted_before_its_first_checkpoint_begins_again(config, runs):
    """With the same command as any other interrupted run."""
    uninterrupted = config(output=config()["output"] + "uninterrupted")
    train(uninterrupted)
    settings = config()
    for resume in (False, True):
        with spoilt(stop, 1), pytest.raises(KeyboardInterrupt):
            train(settings, resume=resume)
    train(settings, resume=True)
    runs.assert_same_run(uninterrupted, settings)


def test_a_training_that_fails_early_leaves_no_folder(config, tmp_path):
    before = set(tmp_path.iterdir())
    nothing = tmp_path / "nothing"
    wrong = {"train": {"images": [str(nothing)]}, "output": str(tmp_path / "new" / "run"), "cache": None}
    for settings in (config(**wrong), config(begin="cardiac", output=wrong["output"])):  # found at different times
        with pytest.raises(InputError):
            train(settings)
        assert set(tmp_path.iterdir()) == before
    (tmp_path / "new" / "run").mkdir(parents=True)  # one that was there stays
    with pytest.raises(InputError):
        train(config(**wrong))
    assert list(tmp_path.glob("new/**/*")) == [tmp_path / "new" / "run"]


def test_the_weights_are_not_written_over_those_that_it_begins_with(config):
    path = train(config(steps=1))
    (path.parent / "checkpoint.safetensors").unlink()
    before = path.read_bytes()
    with pytest.raises(InputError) as error:
        train(config(steps=1, begin=str(path)))
    assert error.value.path == str(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"rate": 2e-3}, "rate was 0.001, is 0.002"),
        ({"steps": 6}, "steps was 2, is 6"),
        ({"precision": "bf16"}, "precision was fp32, is bf16"),
        ({"optimiser": "muon"}, "optimiser was adamw, is muon"),
        ({"keep": "best"}, "keep was last, is best"),
        ({"objective": {"cascades": 2, "width": 16, "path_every": 2}}, r"objective\.cascades was 1, is 2"),
        ({"method": "upmri-paper", "objective": {"size": "tiny"}}, "method was upmri, is upmri-paper"),
    ],
)
def test_another_configuration_cannot_resume(config, change, changed, runs):
    settings = config(steps=2, validation={**config()["train"], "limit": 1})
    train(settings)
    before = runs.state(settings)
    with pytest.raises(InputError, match=f"since the run began: .*{changed}"):
        train(settings | change, resume=True)
    assert all(torch.equal(tensor, before[key]) for key, tensor in runs.state(settings).items())


def test_settings_that_do_not_change_the_result_may_change(config, runs):
    """The intervals of logs and checkpoints, and the folders."""
    uninterrupted = config(output=config()["output"] + "uninterrupted")
    train(uninterrupted)
    begun = config(output=config()["output"] + "begun")
    with spoilt(stop, 3), pytest.raises(KeyboardInterrupt):
        train(begun)
    moved_ = config(resident=True, log_every=3, save_every=1, validate_every=9, workers=2)
    Path(begun["output"]).rename(moved_["output"])
    assert runs.step_of(moved_) == 2
    train(moved_, resume=True)
    expected = runs.state(uninterrupted)
    assert all(torch.equal(tensor, expected[key]) for key, tensor in runs.state(moved_).items())


def test_a_calibration_that_fails_can_be_left_out(config, monkeypatch):
    settings = config(validation={**config()["train"], "limit": 1})

    def fails(*_):
        raise RuntimeError("no calibration")

    monkeypatch.setattr(UpmriObjective, "calibrate", fails)
    with pytest.raises(RuntimeError, match="no calibration"):
        train(settings)
    assert train(settings | {"calibrate": False}, resume=True).exists()


def change_facts(folder, change):
    """Change the configuration in a checkpoint."""
    path = folder / "checkpoint.safetensors"
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["facts"])
    facts["config"] = json.dumps(change(json.loads(facts["config"])), sort_keys=True)
    save_file(load_file(path), path, metadata={"facts": json.dumps(facts)})


@pytest.mark.parametrize("earlier", [False, True])
def test_other_settings_of_the_weights_that_training_begins_with_cannot_resume(config, earlier):
    """Checkpoints of earlier versions do not have them."""
    settings = {"objective": {"cascades": 1, "width": 16}}
    begin = train(config(steps=1, output=config()["output"] + "begin") | settings)
    run = config(begin=str(begin)) | {"objective": {"path_every": 2}}
    with spoilt(stop, 3), pytest.raises(KeyboardInterrupt):
        train(run)
    prior = load_prior(begin)
    card = {key: value for key, value in prior.card.items() if key not in ("format", "method", "objective")}
    other = replace(prior.objective, own=prior.objective.own + 1, path_every=3)
    save_weights(begin, dict(prior.network.named_parameters()), "upmri", other, card)
    if earlier:
        change_facts(Path(run["output"]), lambda facts: {k: v for k, v in facts.items() if k != "objective of begin"})
    expected = r"since the run began: objective of begin\.own was [\d.]+, is [\d.]+$"
    with nullcontext() if earlier else pytest.raises(InputError, match=expected):
        train(run, resume=True)


def with_old_names(folder):
    """Rewrite a run as versions before the keys were renamed have written it."""

    def change(config):
        objective = config["lesson"] = config.pop("objective")
        objective["doubt"] = objective.pop("sigma_jitter")
        split = objective["split"]
        objective["split"] = {"judged": split["loss"], "told": split["path"], "calibration": split["calibration"]}
        return config

    change_facts(folder, change)
    log = folder / "log.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries:
        if "held_out_gain" in entry:
            entry["held_out"] = -entry.pop("held_out_gain")
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


@pytest.mark.parametrize("key", ["objective", "lesson"])
def test_a_run_begun_with_the_old_names_can_resume(config, runs, key):
    """With a configuration in the new names or in the old ones."""
    changes = {"sigma_jitter": 0.3, "split": {"loss": [0.1, 0.5], "path": [0.0, 0.3], "calibration": 0.2}}
    shared = {"steps": 4, "validate_every": 1, "validation": {**config()["train"], "limit": 2}}
    uninterrupted = config(changes, **shared, output=config()["output"] + "uninterrupted")
    train(uninterrupted)
    interrupted = config(changes, **shared)
    with spoilt(stop, 3), pytest.raises(KeyboardInterrupt):
        train(interrupted)
    with_old_names(Path(interrupted["output"]))
    if key == "lesson":
        old = interrupted.pop("objective")
        split = {"judged": [0.1, 0.5], "told": [0.0, 0.3], "calibration": 0.2}
        names = ("cascades", "width", "path_every")
        interrupted["lesson"] = {name: old[name] for name in names} | {"doubt": 0.3, "split": split}
    train(interrupted, resume=True)
    runs.assert_same_run(uninterrupted, interrupted)


def test_a_run_begun_with_other_old_settings_cannot_resume(config):
    changes = {"sigma_jitter": 0.3, "split": {"loss": [0.1, 0.5], "path": [0.0, 0.3], "calibration": 0.2}}
    settings = config(changes, steps=2)
    train(settings)
    with_old_names(Path(settings["output"]))
    settings["objective"] = settings["objective"] | {"sigma_jitter": 0.4}
    with pytest.raises(InputError, match=r"since the run began: objective\.sigma_jitter was 0\.3, is 0\.4$"):
        train(settings, resume=True)


# Divergence


def nan_loss(value, network):
    return value * math.nan


def infinite_loss(value, network):
    return value * math.inf


def nan_gradient(value, network):
    """√0 added: the value is as it was, the slope is 0/0."""
    return value + (0 * network.log_damping).square().sqrt()


@pytest.mark.parametrize(
    ("how", "log_every", "save_every", "good"),
    [
        (nan_loss, 1, 2, 4),
        (nan_loss, 100, 2, 4),
        (nan_loss, 100, 3, 3),
        (nan_loss, 100, 5, 5),
        (infinite_loss, 100, 5, 5),
        (nan_gradient, 1, 2, 4),
        (nan_gradient, 100, 5, 5),
    ],
)
def test_divergence_stops_and_the_last_good_state_is_kept(config, how, log_every, save_every, good, runs):
    """In step 6: found by a log line, by the next save, or by the next step, which cannot solve with NaN."""
    settings = config(steps=9, log_every=log_every, save_every=save_every)
    with spoilt(how, 5), pytest.raises(DivergedError, match=r"step [67]: .*checkpoint.safetensors"):
        train(settings)
    assert runs.step_of(settings) == good
    assert all(tensor.isfinite().all() for tensor in runs.state(settings).values())
    assert not (Path(settings["output"]) / "weights.safetensors").exists()
    network = fresh(settings)
    copies = {"average": {name: p.detach().clone() for name, p in network.named_parameters()}}
    facts = checkpoint.load_state(
        Path(settings["output"]) / "checkpoint.safetensors", network, copies, torch.optim.AdamW(network.parameters())
    )
    assert facts["step"] == good


def test_divergence_before_there_is_a_state(config):
    settings = config(log_every=100, save_every=100)
    with spoilt(nan_loss, 0), pytest.raises(DivergedError, match="no earlier state"):
        train(settings)
    assert not (Path(settings["output"]) / "checkpoint.safetensors").exists()


def test_divergence_is_seen_before_validation(config, runs):
    settings = config(steps=6, log_every=100, save_every=100, validate_every=2, validation=config()["train"])
    with spoilt(nan_gradient, 3), pytest.raises(DivergedError, match="step 4"):
        train(settings)
    assert [entry["step"] for entry in runs.entries(settings)] == [2, 2]


def test_divergence_in_the_last_step(config, runs):
    settings = config(steps=3, log_every=100)
    with spoilt(nan_gradient, 2), pytest.raises(DivergedError):
        train(settings)
    assert runs.step_of(settings) == 2


def test_a_run_that_diverged_by_accident_can_resume(config, runs):
    uninterrupted = config(steps=6, output=config()["output"] + "uninterrupted")
    train(uninterrupted)
    settings = config(steps=6)
    with spoilt(nan_loss, 3), pytest.raises(DivergedError):
        train(settings)
    train(settings, resume=True)
    runs.assert_same_run(uninterrupted, settings)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")  # it warns of itself
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile wants a C++ compiler")
def test_compiled_it_learns_the_same(config, runs):
    plain, compiled = (
        config(steps=2, log_every=1, compile=on, output=f"{config()['output']}-{on}") for on in (False, True)
    )
    for settings in (plain, compiled):
        train(settings)
    assert runs.logged(compiled, "loss") == pytest.approx(runs.logged(plain, "loss"), rel=1e-4)
    assert list(runs.state(compiled)) == list(runs.state(plain))


# Precision, and what is left in the end


def test_bfloat16_trains_and_keeps_single_precision(config, runs):
    """Steps of 1e-6, which bfloat16 would round away, add up; it is not what single precision gives, but near it."""
    pair = [config(precision=p, steps=6, rate=1e-6, output=config()["output"] + p) for p in ("bf16", "fp32")]
    for settings in pair:
        train(settings)
    assert {tensor.dtype for tensor in runs.state(pair[0]).values()} == {torch.float32}
    start = dict(fresh(pair[0]).named_parameters())["network.down.0.0.0.weight"]
    steps = [(runs.state(settings)["network.network.down.0.0.0.weight"] - start).abs().max() for settings in pair]
    assert all(1e-6 < step < 6e-6 for step in steps)
    losses = [runs.logged(settings, "loss") for settings in pair]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    gradients = [runs.logged(settings, "gradient") for settings in pair]
    assert gradients[0] == pytest.approx(gradients[1], rel=0.1)
    assert gradients[0] != gradients[1]


def test_bfloat16_resumes_alike(config, runs):
    uninterrupted = config(precision="bf16", output=config()["output"] + "uninterrupted")
    train(uninterrupted)
    interrupted = config(precision="bf16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("upmri.training.loop.save_weights", None)
        with pytest.raises(TypeError):
            train(interrupted)
    train(interrupted, resume=True)
    runs.assert_same_run(uninterrupted, interrupted)


def test_the_file_holds_the_average_in_half_precision_and_a_card(config, runs):
    settings = config(
        name="head", about="sixteen ellipses", licence="CC0", validation={**config()["train"], "limit": 2}, ema=0.5
    )
    path = train(settings)
    assert path.name == "head.safetensors"
    half = load_file(path)
    average = {key.removeprefix("average."): t for key, t in runs.state(settings).items() if key.startswith("average.")}
    assert half.keys() == average.keys()
    assert {tensor.dtype for tensor in half.values()} == {torch.float16}
    assert all(torch.equal(half[name], average[name].half()) for name in half)
    card = read_card(path)
    assert (card["name"], card["about"], card["licence"]) == ("head", "sixteen ellipses", "CC0")
    assert card["method"] == "upmri"
    assert card["objective"]["cascades"] == 1
    assert card["data"] | {"slices": 16, "simulated": True, "coils": 4} == card["data"]
    assert card["training"] | {"steps": 4, "batch": 2, "rate": 1e-3, "precision": "fp32"} == card["training"]
    assert card["training"]["validation"]["step"] == 4
    assert card["training"]["validation"]["held_out_gain"] == runs.logged(settings, "held_out_gain")[-1]
    model = load_prior(path)
    assert model.objective == UpmriObjective(**settings["objective"])
    assert torch.equal(model.network.log_damping, average["log_damping"].half().float())


# Rates, averages, gradients


def schedule(**settings):
    config = TrainConfig(output="", train=read_config({"output": "", "train": {}}).train, **settings)
    return [_schedule(step, config) for step in range(config.steps)]


def test_the_rate_rises_and_stays(config):
    values = schedule(schedule="constant", steps=20, warmup=5)
    assert values == pytest.approx([0.2, 0.4, 0.6, 0.8] + [1.0] * 16)
    assert schedule(schedule="constant", steps=3, warmup=0) == [1.0] * 3


def test_the_rate_rises_and_falls_as_a_cosine():
    values = schedule(schedule="cosine", steps=1000, warmup=100)
    assert values[0] == pytest.approx(0.01)
    assert values[49] == pytest.approx(0.5 * 0.5 * (1 + math.cos(math.pi * 0.049)))
    assert values[500] == pytest.approx(0.5)
    assert values[250] == pytest.approx(0.5 + math.sqrt(0.125))
    assert 0 < values[-1] < 1e-5
    assert all(a > b for a, b in pairwise(values[100:]))


def test_the_schedule_is_followed(config, runs):
    settings = config(steps=4, warmup=2, schedule="constant", rate=1e-2, weight_decay=0.0)
    train(settings)
    assert runs.logged(settings, "rate") == pytest.approx([5e-3, 1e-2, 1e-2, 1e-2])
    one = config(steps=1, warmup=2, rate=1e-2, weight_decay=0.0, output=config()["output"] + "one")
    train(one)
    moved = runs.state(one)["network.log_damping"] - fresh(one).log_damping
    assert moved.abs().item() == pytest.approx(5e-3, rel=1e-4)  # Adam's first step is the rate itself


def test_the_average_warms_up(config):
    """The k-th step forgets all but min(ema, k/(k+9)) of it."""
    for ema, last in ((0.999, 3 / 12), (0.15, 0.15)):
        runs = [config(steps=3, save_every=1, schedule="constant", ema=ema, output=f"{config()['output']}-{ema}")]
        seen = []
        with pytest.MonkeyPatch.context() as patch:
            save = checkpoint.save_state

            def spy(path, network, copies, *rest, save=save, seen=seen):
                average = {n: t.clone() for n, t in copies["average"].items()}
                seen.append(({n: p.detach().clone() for n, p in network.named_parameters()}, average))
                save(path, network, copies, *rest)

            patch.setattr("upmri.training.loop.checkpoint.save_state", spy)
            train(runs[0])
        expected = {name: p.detach() for name, p in fresh(runs[0]).named_parameters()}
        for k, (now, average) in enumerate(seen, 1):
            keep = min(ema, k / (k + 9))
            expected = {name: keep * expected[name] + (1 - keep) * now[name] for name in now}
            assert all(torch.allclose(average[name], expected[name], atol=1e-7) for name in now)
        assert keep == last


def test_gradients_are_clipped(config, runs):
    """Adam's first moment after one step is a tenth of what it was given."""
    norms = {}
    for clip in (1e-3, 1e6):
        settings = config(steps=1, clip=clip, output=f"{config()['output']}-{clip}")
        train(settings)
        moments = [tensor for key, tensor in runs.state(settings).items() if key.startswith("exp_avg.")]
        norms[clip] = 10 * torch.cat([m.flatten() for m in moments]).norm().item()
        assert runs.logged(settings, "gradient")[0] > 0.1  # as it was before
    assert norms[1e-3] == pytest.approx(1e-3, rel=1e-4)
    assert norms[1e6] == pytest.approx(runs.logged(settings, "gradient")[0], rel=1e-4)


# Dependencies


def test_torch_numpy_and_safetensors_are_enough(heads, tmp_path, fresh):
    """Training, loading of weights and reconstruction, where nothing else is installed."""
    code = f"""
import sys, warnings
warnings.simplefilter("ignore")
for name in ("pydantic", "pydantic_core", "yaml", "rich", "typer", "h5py", "nibabel", "matplotlib", "scipy", "PIL"):
    sys.modules[name] = None
import torch, upmri
from upmri.methods.upmri_objective import UpmriObjective
from upmri.training import TrainConfig, train
from upmri.training.config import DataConfig
torch.set_num_threads(1)
data = DataConfig(images=({str(heads)!r},), coils=4, accelerations=(2.0, 2.5), limit=4)
config = TrainConfig(
    output={str(tmp_path / "run")!r}, train=data, validation=data, cache={str(tmp_path / "cache")!r}, device="cpu",
    objective=UpmriObjective(cascades=1, width=4), steps=2, batch=2,
)
path = train(config)
train(config, resume=True)
scan = upmri.simulate(torch.ones(1, 32, 32), coils=4, acceleration=2)
shapes = [tuple(upmri.reconstruct(scan, model=model, device="cpu").image.shape) for model in (path, "brain")]
print(upmri.prior("brain").method, upmri.prior(path).objective.width, shapes)
"""
    done = fresh(code)
    assert done.stdout == "upmri 4 [(1, 32, 32), (1, 32, 32)]\n", done.stderr


@pytest.mark.parametrize(
    ("gains", "best"), [((1.0, 3.0, 2.0, 2.5), 1), ((1.0, 0.5, 0.9, 1.0), 0), ((0.0, 1.0, 2.0, 3.0), 3)]
)
def test_the_best_weights_are_kept(config, gains, best, monkeypatch, runs):
    """One validation is before the first step. An interruption after the second changes nothing."""
    averages, found = [], iter(gains)

    def measure(method, objective, network, average, slices, batch):
        averages.append({name: tensor.clone() for name, tensor in average.items()})
        return {"held_out_gain": next(found)}

    monkeypatch.setattr("upmri.training.loop.validate", measure)
    settings = config(
        steps=3, save_every=1, validate_every=1, keep="best", validation={**config()["train"], "limit": 2}
    )
    with monkeypatch.context() as patch:
        patch.setattr("upmri.training.loop.SignalWatch", Interrupts)
        with pytest.raises(TrainingInterrupted):
            train(settings)
    path = train(settings, resume=True)
    assert runs.logged(settings, "held_out_gain") == list(gains)
    written = load_file(path)
    assert all(torch.equal(written[name], tensor.half()) for name, tensor in averages[best].items())
    kept = read_card(path)["training"]["kept"]
    assert kept == {"step": best, "gain": gains[best], "before": gains[0]}


def test_weights_of_each_validation_are_written(config, monkeypatch):
    averages, gains = {}, (0.5, 2.0, 1.0)

    def measure(method, objective, network, average, slices, batch):
        averages[len(averages)] = {name: tensor.clone() for name, tensor in average.items()}
        return {"held_out_gain": gains[len(averages) - 1]}

    monkeypatch.setattr("upmri.training.loop.validate", measure)
    validation = {**config()["train"], "limit": 2}
    settings = config(
        steps=4, validate_every=2, keep="best", keep_each=True, validation=validation, calibrate=False, name="mine"
    )
    best = train(settings)
    assert sorted(path.name for path in best.parent.glob("mine*")) == [
        "mine-2.safetensors", "mine-4.safetensors", "mine.safetensors",
    ]  # fmt: skip
    for number, step in enumerate((2, 4), 1):
        path = best.with_name(f"mine-{step}.safetensors")
        written, training = load_file(path), read_card(path)["training"]
        assert all(torch.equal(written[name], tensor.half()) for name, tensor in averages[number].items())
        assert training["validation"] == {"step": step, "held_out_gain": gains[number]}
        assert "kept" not in training
        load_prior(path)
    assert read_card(best)["training"]["kept"]["step"] == 2


def test_weights_of_each_validation_need_one(config):
    with pytest.raises(InputError) as error:
        train(config(keep_each=True))
    assert error.value.field == "keep_each"


class Interrupts:
    """Ctrl-C in the first step."""

    number = 2

    def __init__(self, **_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_no_process_begins_a_step_before_the_first_validation_ends(config, monkeypatch):
    """A step waits for the others for some minutes only."""
    done, plain = [], UpmriObjective.loss
    monkeypatch.setattr(Process, "wait", lambda _: done.append("wait"))
    monkeypatch.setattr("upmri.training.loop.validate", lambda *_: done.append("validate") or {"held_out_gain": 1.0})
    monkeypatch.setattr(UpmriObjective, "loss", lambda *args: done.append("step") or plain(*args))
    train(config(steps=1, keep="best", validation={**config()["train"], "limit": 1}, calibrate=False))
    assert done[done.index("validate") :] == ["validate", "wait", "step", "validate", "wait", "wait"]


def test_the_best_weights_need_a_validation(config):
    with pytest.raises(InputError) as error:
        train(config(keep="best"))
    assert error.value.field == "keep"
