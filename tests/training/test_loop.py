import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import upmri
from upmri import weights
from upmri.core.errors import InputError
from upmri.core.settings import build
from upmri.methods.upmri import UpmriObjective
from upmri.networks.adm import SIZES
from upmri.training import checkpoint, train
from upmri.training.config import TrainConfig, read_config
from upmri.training.data import PreparedSlices
from upmri.training.loop import DivergedError, _schedule
from upmri.training.prepare import prepare

# What a process of its own does: train by each file in turn. `before` is run first.
SCRIPT = """
import os, sys, torch, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
torch.set_num_threads(1)
import upmri.training.loop as loop
from upmri.methods.upmri import UpmriObjective
rank, plain = int(os.environ.get("RANK", 0)), UpmriObjective.loss
{before}
for path in sys.argv[1:]:
    try:
        loop.train(path, resume={resume})
    except loop.DivergedError as error:
        print("diverged", error)
"""


def start(paths, *, before="", resume=False, **environment):
    code = SCRIPT.format(before=before, resume=resume)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, paths)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_two(paths, **settings):
    """Two processes that train together, as ``torchrun`` would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [start(paths, RANK=str(rank), LOCAL_RANK=str(rank), **shared, **settings) for rank in range(2)]


def finish(processes, seconds=120):
    """Wait for all; return what each one said, (code, stdout, stderr)."""
    try:
        texts = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def assert_failed(said):
    """With an error of Python's; once, not to be had again, torch aborted a process that had told it."""
    assert {code for code, _, _ in said} <= {1, -signal.SIGABRT}, said
    assert all("Error" in stderr for _, _, stderr in said), said


def write_config(folder, config):
    path = folder / f"{Path(config['output']).name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def write(tmp_path):
    """Write a configuration; return the file's path."""
    return lambda config: write_config(tmp_path, config)


@contextmanager
def spoilt(how, *steps):
    """Change the objective's loss in some steps."""
    plain = UpmriObjective.loss

    def loss(self, network, batch):
        value = plain(self, network, batch)
        return how(value, network) if batch.step in steps else value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UpmriObjective, "loss", loss)
        yield


def state(config):
    return load_file(Path(config["output"]) / "checkpoint.safetensors")


def step_of(config):
    with (Path(config["output"]) / "checkpoint.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return json.loads(header["__metadata__"]["facts"])["step"]


def entries(config):
    lines = (Path(config["output"]) / "log.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def logged(config, name):
    return [entry[name] for entry in entries(config) if name in entry]


def assert_same_run(a, b):
    """Bit for bit: weights, average, moments, what was logged, and the file in the end."""
    first, second = state(a), state(b)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert entries(a) == entries(b)
    ends = [load_file(Path(c["output"]) / "weights.safetensors") for c in (a, b)]
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])


def fresh(config):
    """The network as a run begins with it."""
    torch.manual_seed(config.get("seed", 0))
    return UpmriObjective(**config["objective"]).network()


# What it learns


def test_it_learns_from_undersampled_scans_alone(config, simulated, cache):
    """The loss of the same batches falls."""
    data = {**config()["train"], "noise": [0.05, 0.05]}
    settings = config({"path_every": 0}, train=data, steps=80, batch=4, warmup=5)
    path = train(settings)
    objective = UpmriObjective(**settings["objective"])
    slices = PreparedSlices(prepare(replace(simulated, noise=(0.05, 0.05)), cache), torch.device("cpu"))
    losses = []
    for network in (fresh(settings), weights.load(path).network):
        with torch.no_grad():
            batches = (slices.batch(step, 4, 0, flips=True) for step in range(8))
            losses.append(torch.cat([objective.loss(network, batch) for batch in batches]).mean().item())
    assert losses[0] == pytest.approx(sum(logged(settings, "loss")[:8]) / 8, rel=0.1)
    assert losses[1] < 0.998 * losses[0]


@pytest.mark.soak
def test_it_leaves_sense_behind(config):
    """On held-out lines, and against a truth that it never saw."""
    settings = config({"path_every": 0}, steps=200, batch=4, rate=5e-4, warmup=10, validation=config()["train"])
    train(settings)
    assert logged(settings, "held_out")[-1] < -0.4
    assert logged(settings, "gain")[-1] > 0.3


@pytest.mark.soak
def test_it_learns_from_the_truth(config):
    settings = config({"supervised": True, "path_every": 0}, steps=100, batch=4, rate=5e-4, warmup=10)
    train(settings)
    losses = logged(settings, "loss")
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
def test_every_lesson_can_be_taken(config, method, objective):
    settings = config(steps=2) | {"method": method, "objective": objective}
    model = weights.load(train(settings))
    assert model.method == method
    assert all(getattr(model.objective, key) == value for key, value in objective.items())
    assert all(math.isfinite(value) for value in logged(settings, "loss"))


def test_scans_train_too(config, heads, tmp_path):
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
    assert logged(settings, "held_out")
    assert not logged(settings, "gain")


def test_the_same_run_again_is_the_same(config):
    runs = [config(output=config()["output"] + name) for name in "ab"]
    for settings in runs:
        train(settings)
    assert_same_run(*runs)
    other = config(output=config()["output"] + "c", seed=1)
    train(other)
    assert not torch.equal(state(other)["network.log_damping"], state(runs[0])["network.log_damping"])


def test_looking_on_changes_nothing(config, monkeypatch):
    """Validation, saving, logging and where slices are kept leave the weights as they are, with dropout too."""
    monkeypatch.setitem(SIZES, "tiny", replace(SIZES["tiny"], dropout=0.3))
    quiet = config(steps=5, log_every=5, save_every=5, output=config()["output"] + "quiet")
    data = {**quiet["train"], "limit": 3}
    busy = config(steps=5, log_every=1, save_every=1, validate_every=1, validation=data, resident=True)
    for settings in (quiet, busy):
        train(settings)
    assert len(logged(busy, "gain")) == 5
    first, second = state(quiet), state(busy)
    assert all(torch.equal(first[key], second[key]) for key in first)


# Going on


def stop(value, network):
    raise KeyboardInterrupt


def test_going_on_equals_not_having_stopped(config, monkeypatch):
    """Stopped in every step once; with dropout, validation and flips."""
    monkeypatch.setitem(SIZES, "tiny", replace(SIZES["tiny"], dropout=0.3))
    shared = {"steps": 7, "save_every": 2, "validate_every": 3, "validation": {**config()["train"], "limit": 2}}
    unbroken = config(**shared, output=config()["output"] + "unbroken")
    train(unbroken)

    broken = config(**shared)
    for step in range(7):
        with spoilt(stop, step), pytest.raises(KeyboardInterrupt):
            train(broken, resume=True)
    train(broken, resume=True)
    assert_same_run(unbroken, broken)


def kill_at(process, log, lines, delay):
    """Send SIGKILL when the log has so many lines, and a moment later; return what the process had said."""
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_bytes().count(b"\n") >= lines):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode


def check_kills(config, write, kills):
    shared = {"steps": 6 + 12 * kills, "validation": {**config()["train"], "limit": 2}, "validate_every": 3}
    unbroken = config(**shared, output=config()["output"] + "unbroken")
    train(unbroken)
    broken, draw = config(**shared), random.Random(kills)
    log, steps = Path(broken["output"]) / "log.jsonl", []
    for kill in range(kills):
        lines = (log.read_bytes().count(b"\n") if log.exists() else 0) + draw.randint(4, 9)
        code = kill_at(start([write(broken)], resume=kill > 0), log, lines, draw.uniform(0, 0.06))
        assert code == -signal.SIGKILL
        steps.append(step_of(broken))
    assert 0 < steps[0] <= steps[-1] < broken["steps"]
    with log.open("a") as file:
        file.write('{"step": 1, "loss"')  # as a kill in the middle of a line leaves it
    train(broken, resume=True)
    assert_same_run(unbroken, broken)


def test_a_killed_run_ends_as_if_it_had_not_been(config, write):
    check_kills(config, write, 1)


@pytest.mark.soak
def test_a_run_killed_five_times_ends_as_if_it_had_not_been(config, write):
    check_kills(config, write, 5)


def test_a_kill_between_the_last_state_and_the_weights(config):
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
    with pytest.raises(InputError, match="a run is there already"):
        train(settings)
    assert {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} == before


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 2e-3},
        {"steps": 6},
        {"precision": "bf16"},
        {"objective": {"cascades": 2, "width": 4, "path_every": 2}},
        {"method": "upmri-paper", "objective": {"size": "tiny"}},
    ],
)
def test_another_configuration_cannot_go_on(config, change):
    settings = config(steps=2)
    train(settings)
    before = state(settings)
    with pytest.raises(InputError, match="configuration or the data changed|another network"):
        train(settings | change, resume=True)
    assert all(torch.equal(tensor, before[key]) for key, tensor in state(settings).items())


def test_what_leaves_the_end_alone_may_change(config):
    """How often it logs and saves, where slices are kept, where the folder lies."""
    unbroken = config(output=config()["output"] + "unbroken")
    train(unbroken)
    begun = config(output=config()["output"] + "begun")
    with spoilt(stop, 3), pytest.raises(KeyboardInterrupt):
        train(begun)
    moved_ = config(resident=True, log_every=3, save_every=1, validate_every=9, workers=2)
    Path(begun["output"]).rename(moved_["output"])
    assert step_of(moved_) == 2
    train(moved_, resume=True)
    expected = state(unbroken)
    assert all(torch.equal(tensor, expected[key]) for key, tensor in state(moved_).items())


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
def test_divergence_stops_and_the_last_good_state_is_kept(config, how, log_every, save_every, good):
    """In step 6: told by a log line, by the next save, or by the next step, which cannot solve with NaN."""
    settings = config(steps=9, log_every=log_every, save_every=save_every)
    with spoilt(how, 5), pytest.raises(DivergedError, match=r"step [67]: .*checkpoint.safetensors"):
        train(settings)
    assert step_of(settings) == good
    assert all(tensor.isfinite().all() for tensor in state(settings).values())
    assert not (Path(settings["output"]) / "weights.safetensors").exists()
    network = fresh(settings)
    average = {name: p.detach().clone() for name, p in network.named_parameters()}
    facts = checkpoint.load_state(
        Path(settings["output"]) / "checkpoint.safetensors", network, average, torch.optim.AdamW(network.parameters())
    )
    assert facts["step"] == good


def test_divergence_before_there_is_a_state(config):
    settings = config(log_every=100, save_every=100)
    with spoilt(nan_loss, 0), pytest.raises(DivergedError, match="no earlier state"):
        train(settings)
    assert not (Path(settings["output"]) / "checkpoint.safetensors").exists()


def test_divergence_is_seen_before_validation(config):
    settings = config(steps=6, log_every=100, save_every=100, validate_every=2, validation=config()["train"])
    with spoilt(nan_gradient, 3), pytest.raises(DivergedError, match="step 4"):
        train(settings)
    assert [entry["step"] for entry in entries(settings)] == [2, 2]


def test_divergence_in_the_last_step(config):
    settings = config(steps=3, log_every=100)
    with spoilt(nan_gradient, 2), pytest.raises(DivergedError):
        train(settings)
    assert step_of(settings) == 2


def test_a_run_that_diverged_by_accident_goes_on(config):
    unbroken = config(steps=6, output=config()["output"] + "unbroken")
    train(unbroken)
    settings = config(steps=6)
    with spoilt(nan_loss, 3), pytest.raises(DivergedError):
        train(settings)
    train(settings, resume=True)
    assert_same_run(unbroken, settings)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")  # it warns of itself
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile wants a C++ compiler")
def test_compiled_it_learns_the_same(config):
    plain, compiled = (
        config(steps=2, log_every=1, compile=on, output=f"{config()['output']}-{on}") for on in (False, True)
    )
    for settings in (plain, compiled):
        train(settings)
    assert logged(compiled, "loss") == pytest.approx(logged(plain, "loss"), rel=1e-4)
    assert list(state(compiled)) == list(state(plain))


# Several processes


def fail(name, times=0):
    """Code that makes what process 0 does alone fail, after it has worked so many times."""
    return f"""
def work(*args, before=loop.{name}, left=[{times}], **settings):
    left[0] -= 1
    if left[0] < 0:
        raise OSError("no space left")
    return before(*args, **settings)
if rank == 0:
    loop.{name} = work
"""


def pairs(make, folder, *runs):
    """Each run for one process and for two."""
    data = make(folder)["train"]
    whole = [make(folder, batch=4, validation={**data, "limit": 2}) | run for run in runs]
    return [[run | {"output": str(folder / f"{n}-{i}")} for n in (1, 2)] for i, run in enumerate(whole)]


def moved(config):
    """How far the weights have come, in one vector."""
    settings, tensors = read_config(config), state(config)
    torch.manual_seed(0)
    begun = build(upmri.methods.find_method(settings.method).objective, settings.objective, "objective").network()
    return torch.cat([(tensors[f"network.{name}"] - p.detach()).flatten() for name, p in begun.named_parameters()])


def assert_alike(one, two):
    """To rounding; Adam blows that up where the gradient is next to nothing, so norms are compared."""
    for name in ("loss", "gradient"):
        assert logged(two, name) == pytest.approx(logged(one, name), rel=1e-4)
    assert [entry["step"] for entry in entries(two)] == [entry["step"] for entry in entries(one)]
    assert logged(two, "gain") == pytest.approx(logged(one, "gain"), abs=2e-3)
    assert (moved(two) - moved(one)).norm() < 2e-3 * moved(one).norm()


@pytest.fixture(scope="module")
def together(make_config, tmp_path_factory):
    """What two processes made of five runs, one after another: two good ones, two with NaN, and one that fails."""
    folder = tmp_path_factory.mktemp("together")
    lessons = [{"cascades": 2, "width": 16, "path_every": n} for n in (0, 2)]
    good = pairs(make_config, folder, {"objective": lessons[0], "cache": None}, {"objective": lessons[1]})
    nan = [
        make_config(folder, {"damping": 0.03}, steps=8, log_every=n, save_every=3, output=str(folder / f"nan-{n}"))
        for n in (1, 100)
    ]
    lost = make_config(folder, cache=None, output=str(folder / "lost"))
    before = """
def loss(self, network, batch):
    value = plain(self, network, batch)
    return value * float("nan") if rank == 1 and batch.step == 3 and self.damping == 0.03 else value
UpmriObjective.loss = loss
"""
    files = [write_config(folder, c) for c in (*(two for _, two in good), *nan, lost)]
    processes = start_two(files, before=before + fail("prepare", 6))
    for one, _ in good:
        train(one)
    return good, nan, lost, finish(processes)


def test_two_processes_do_what_one_does(together):
    """With and without the path, also when there is nothing in the cache yet."""
    good, _, _, said = together
    for one, two in good:
        assert (Path(two["output"]) / "weights.safetensors").exists(), said
        assert_alike(one, two)


def test_processes_diverge_together(together):
    """When one of them meets NaN both say so, at once or in the next step."""
    _, nan, _, said = together
    for _, stdout, stderr in said:
        lines = [line.split(":")[0] for line in stdout.splitlines()]
        assert lines == ["diverged step 4", "diverged step 5"], stderr
    assert [step_of(settings) for settings in nan] == [3, 3]


def test_nobody_waits_for_one_that_failed(together):
    """Here the one that prepares the slices: the other one ends too, soon and without the help of ``torchrun``."""
    _, _, lost, said = together
    assert_failed(said)
    assert "no space left" in said[0][2]
    assert "Connection closed by peer" in said[1][2]
    assert not (Path(lost["output"]) / "checkpoint.safetensors").exists()


@pytest.mark.soak
@pytest.mark.parametrize("where", ["validate", "checkpoint.save_state", "weights.save"])
def test_nobody_waits_for_one_that_fails_later(config, write, where):
    settings = config(validation={**config()["train"], "limit": 2})
    said = finish(start_two([write(settings)], before=fail(where)), seconds=60)
    assert_failed(said)
    assert "no space left" in said[0][2]
    assert "Connection closed by peer" in said[1][2]


@pytest.mark.soak
def test_two_processes_by_the_paper_and_in_bfloat16(make_config, tmp_path, write):
    paper = {"method": "upmri-paper", "objective": {"size": "tiny", "iterations": 4}}
    runs = pairs(make_config, tmp_path, paper, {"precision": "bf16"})
    processes = start_two([write(two) for _, two in runs])
    for one, _ in runs:
        train(one)
    for code, _, stderr in finish(processes):
        assert code == 0, stderr
    assert_alike(*runs[0])
    one, two = runs[1]
    assert logged(two, "loss") == pytest.approx(logged(one, "loss"), rel=0.02)


def test_a_batch_that_cannot_be_shared(config, monkeypatch):
    class Place:
        rank, world, device, leads = 0, 3, torch.device("cpu"), True

        @classmethod
        def find(cls, _):
            return cls()

    monkeypatch.setattr("upmri.training.loop.Place", Place)
    with pytest.raises(InputError, match="4 slices cannot be shared by 3"):
        train(config(batch=4))


# Precision, and what is left in the end


def test_bfloat16_trains_and_keeps_single_precision(config):
    """Steps of 1e-6, which bfloat16 would round away, add up; it is not what single precision gives, but near it."""
    runs = [config(precision=p, steps=6, rate=1e-6, output=config()["output"] + p) for p in ("bf16", "fp32")]
    for settings in runs:
        train(settings)
    assert {tensor.dtype for tensor in state(runs[0]).values()} == {torch.float32}
    start = dict(fresh(runs[0]).named_parameters())["network.down.0.0.0.weight"]
    steps = [(state(settings)["network.network.down.0.0.0.weight"] - start).abs().max() for settings in runs]
    assert all(1e-6 < step < 6e-6 for step in steps)
    losses = [logged(settings, "loss") for settings in runs]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    gradients = [logged(settings, "gradient") for settings in runs]
    assert gradients[0] == pytest.approx(gradients[1], rel=0.1)
    assert gradients[0] != gradients[1]


def test_bfloat16_goes_on_alike(config):
    unbroken = config(precision="bf16", output=config()["output"] + "unbroken")
    train(unbroken)
    broken = config(precision="bf16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("upmri.training.loop.weights.save", None)
        with pytest.raises(TypeError):
            train(broken)
    train(broken, resume=True)
    assert_same_run(unbroken, broken)


def test_the_file_holds_the_average_in_half_precision_and_a_card(config):
    settings = config(
        name="head", about="sixteen ellipses", licence="CC0", validation={**config()["train"], "limit": 2}, ema=0.5
    )
    path = train(settings)
    assert path.name == "head.safetensors"
    half = load_file(path)
    average = {key.removeprefix("average."): t for key, t in state(settings).items() if key.startswith("average.")}
    assert half.keys() == average.keys()
    assert {tensor.dtype for tensor in half.values()} == {torch.float16}
    assert all(torch.equal(half[name], average[name].half()) for name in half)
    card = weights.card(path)
    assert (card["name"], card["about"], card["licence"]) == ("head", "sixteen ellipses", "CC0")
    assert card["method"] == "upmri"
    assert card["objective"]["cascades"] == 1
    assert card["data"] | {"slices": 16, "simulated": True, "coils": 4} == card["data"]
    assert card["training"] | {"steps": 4, "batch": 2, "rate": 1e-3, "precision": "fp32"} == card["training"]
    assert card["training"]["validation"]["step"] == 4
    assert card["training"]["validation"]["held_out"] == logged(settings, "held_out")[-1]
    model = weights.load(path)
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


def test_the_schedule_is_followed(config):
    settings = config(steps=4, warmup=2, schedule="constant", rate=1e-2, weight_decay=0.0)
    train(settings)
    assert logged(settings, "rate") == pytest.approx([5e-3, 1e-2, 1e-2, 1e-2])
    one = config(steps=1, warmup=2, rate=1e-2, weight_decay=0.0, output=config()["output"] + "one")
    train(one)
    moved = state(one)["network.log_damping"] - fresh(one).log_damping
    assert moved.abs().item() == pytest.approx(5e-3, rel=1e-4)  # Adam's first step is the rate itself


def test_the_average_warms_up(config):
    """The k-th step forgets all but min(ema, k/(k+9)) of it."""
    for ema, last in ((0.999, 3 / 12), (0.15, 0.15)):
        runs = [config(steps=3, save_every=1, schedule="constant", ema=ema, output=f"{config()['output']}-{ema}")]
        seen = []
        with pytest.MonkeyPatch.context() as patch:
            save = checkpoint.save_state

            def spy(path, network, average, *rest, save=save, seen=seen):
                seen.append(({n: p.detach().clone() for n, p in network.named_parameters()}, dict(average)))
                seen[-1][1].update({n: t.clone() for n, t in average.items()})
                save(path, network, average, *rest)

            patch.setattr("upmri.training.loop.checkpoint.save_state", spy)
            train(runs[0])
        expected = {name: p.detach() for name, p in fresh(runs[0]).named_parameters()}
        for k, (now, average) in enumerate(seen, 1):
            keep = min(ema, k / (k + 9))
            expected = {name: keep * expected[name] + (1 - keep) * now[name] for name in now}
            assert all(torch.allclose(average[name], expected[name], atol=1e-7) for name in now)
        assert keep == last


def test_gradients_are_clipped(config):
    """Adam's first moment after one step is a tenth of what it was given."""
    norms = {}
    for clip in (1e-3, 1e6):
        settings = config(steps=1, clip=clip, output=f"{config()['output']}-{clip}")
        train(settings)
        moments = [tensor for key, tensor in state(settings).items() if key.startswith("exp_avg.")]
        norms[clip] = 10 * torch.cat([m.flatten() for m in moments]).norm().item()
        assert logged(settings, "gradient")[0] > 0.1  # as it was before
    assert norms[1e-3] == pytest.approx(1e-3, rel=1e-4)
    assert norms[1e6] == pytest.approx(logged(settings, "gradient")[0], rel=1e-4)


# What cannot be trained


def test_methods_without_anything_to_train(config):
    with pytest.raises(InputError, match="'sense' has nothing to train"):
        train(config(method="sense"))
    with pytest.raises(InputError, match="^objective.sizes: not known"):
        train(config({"sizes": "tiny"}))
    with pytest.raises(InputError, match="found none"):
        train(config(train={}))
    with pytest.raises(InputError, match="device"):
        train(config(device="abacus"))


# Beginning with weights that are there


def test_a_run_may_begin_with_weights(config, tmp_path):
    """With a rate next to nothing they stay what they were."""
    first = train(config(steps=3, output=str(tmp_path / "first")))
    second = train(config(steps=1, rate=1e-12, begin=str(first), output=str(tmp_path / "second")))
    known, kept = (weights.load(path).network.state_dict() for path in (first, second))
    assert all(torch.allclose(known[name], kept[name], atol=1e-4) for name in known)
    earlier = {key: weights.card(first)[key] for key in ("name", "data", "training")}
    assert weights.card(second)["training"]["begun with"] == earlier
    assert str(tmp_path) not in str(weights.card(second))


def test_a_run_cannot_begin_with_another_network(config, tmp_path):
    first = train(config(steps=1, output=str(tmp_path / "first")))
    with pytest.raises(InputError, match="begin: .* another network"):
        train(
            config(steps=1, begin=str(first), output=str(tmp_path / "second"))
            | {"objective": {"cascades": 1, "width": 8}}
        )


def test_a_run_cannot_begin_with_the_weights_of_another_method(config, tmp_path):
    """Not even where the networks are alike."""
    objective = {"objective": {"size": "tiny"}}
    first = train(config(steps=1, output=str(tmp_path / "first")) | {"method": "ddnm"} | objective)
    with pytest.raises(InputError, match="begin: .* holds weights of ddnm, expected some of ot-ode"):
        train(config(steps=1, begin=str(first), output=str(tmp_path / "b")) | {"method": "ot-ode"} | objective)
