"""The controlled experiment from its plan to its report, tiny; its plan; and its statistics in closed form."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from upmri import InputError
from upmri.evaluation.benchmark.run import DATABASE, variants
from upmri.evaluation.benchmark.store import Store
from upmri.evaluation.controlled.arms import read_plan
from upmri.evaluation.controlled.endpoints import Score, _weights, difference, write_endpoints
from upmri.evaluation.controlled.parts import experiment_parts, run_parts
from upmri.methods import find_method
from upmri.networks.unrolled import Unrolled
from upmri.networks.varnet import VarNet
from upmri.physics.phantom import Ellipse, image
from upmri.training.data import PreparedSlices
from upmri.weights.card import read_header

ROOT = Path(__file__).parents[3]
PLAN = ROOT / "configs" / "benchmark" / "controlled.yaml"
# Neither pyyaml nor pydantic nor what only other layers need: as on a machine for training.
BARE = """
import sys
others = "yaml pydantic pydantic_core h5py nibabel pydicom ismrmrd matplotlib rich typer scipy PIL skimage sigpy"
sys.modules.update(dict.fromkeys(others.split()))
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
import controlled
sys.exit(controlled.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The project's plan with three arms, two people of two slices for everything, and one cascade."""
    folder = tmp_path_factory.mktemp("controlled")
    rng = np.random.default_rng(0)
    for part in ("train", "val", "test"):
        (folder / part).mkdir()
        for person in range(2):
            inside = [Ellipse(rng.uniform(-0.3, 0.3), tuple(rng.uniform(-0.2, 0.2, 2)), (0.1, 0.06)) for _ in range(4)]
            body = image((40, 32), [Ellipse(0.6, (0, 0), (0.4, 0.36)), *inside]).numpy()
            np.savez(folder / part / f"{part}{person}.npz", image=np.stack([body, body[::-1]]).astype(np.float32))
    config = yaml.safe_load(PLAN.read_text())
    data = {"coils": 4, "accelerations": [2, 2.5]}
    config |= {
        "output": str(folder / "out"),
        "train": {"images": [str(folder / "train")], **data},
        "validation": {"images": [str(folder / "val")], **data},
        "groups": [{"name": "heads", "images": [str(folder / "test")], "coils": 4}],
        "accelerations": [2],
        "passes": 48,
        "search_passes": 16,
        "batch": 2,
        "workers": 1,
        "precision": "fp32",
        "validations": 1,
        "rates": {"values": [1e-3, 2e-3], "extensions": 0},
    }
    arms = {arm["name"]: arm for arm in config["arms"]}
    for arm in arms.values():
        arm["objective"] |= {"width": 4, "unrolls" if arm["method"] in ("moi", "ensure") else "cascades": 2}
    config["arms"] = [arms[name] for name in ("weighted-ssdu", "upmri-no-path", "upmri-path")]
    kept = {arm["name"] for arm in config["arms"]}
    config["endpoints"] = [end for end in config["endpoints"] if {end["arm"], end["less"]} <= kept]
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def command():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("controlled", ROOT / "benchmarks" / "controlled.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
def test_from_the_plan_to_the_report(plan, command, capsys):
    """Some parts first, then the rest."""
    config = read_plan(plan)
    assert command.main([str(plan), "--device", "cpu", "--only", "prepare", "search/upmri-path"]) == 0
    assert {part.name for part in experiment_parts(config) if part.done} == {"prepare", "search/upmri-path"}
    capsys.readouterr()
    assert command.main([str(plan), "--device", "cpu"]) == 0
    begun = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if " s  train/" in line]
    assert begun == [f"train/{arm.name}/{seed}" for seed in (0, 1) for arm in config.arms]
    check_report(config)
    assert run_parts(config) == []  # nothing is left to do
    check_results_of_other_scans_are_left_out(config)


def test_a_folder_has_the_parts_of_one_plan(plan, command, tmp_path, capsys):
    """Parts are known by their names: with another budget, or another arm of one name, they would be used again."""
    folder = tmp_path / "out"

    def run(*options, path=plan):
        status = command.main([str(path), "--set", f"output={folder}", *options, "--only", "report"])
        return status, capsys.readouterr().err

    assert run() == (3, "")  # the report needs other parts
    assert run("workers=2", f"cache={tmp_path / 'cache'}") == (3, "")
    status, said = run("passes=24")
    assert status == 2
    assert "passes was 48, is 24" in said
    assert str(folder) in said
    other = tmp_path / "other.yaml"
    text = plan.read_text()
    assert text.count("path_every: 4") == 1
    other.write_text(text.replace("path_every: 4", "path_every: 3"))
    assert "arms.upmri-path.objective.path_every was 4, is 3" in run(path=other)[1]


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
def test_an_interrupted_training_goes_on(plan, command, tmp_path, monkeypatch, capsys):
    """SIGTERM in the fourth step: the state is saved, and the passes are those of an uninterrupted training."""
    options = [str(plan), "--device", "cpu", "--set", f"output={tmp_path / 'out'}", "passes=24"]
    options += ["--only", "prepare", "search/weighted-ssdu", "train/weighted-ssdu/0"]
    plain = PreparedSlices.batch

    def interrupting(self, step, *args, **kwargs):
        if step == 4:  # trainings of the search have four steps
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self, step, *args, **kwargs)

    monkeypatch.setattr(PreparedSlices, "batch", interrupting)
    assert command.main(options) == 3
    assert "saved at step 5" in capsys.readouterr().out
    monkeypatch.setattr(PreparedSlices, "batch", plain)
    assert command.main(options) == 0
    begun = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if " s  " in line]
    assert begun == ["train/weighted-ssdu/0"]
    config = read_plan(plan, (f"output={tmp_path / 'out'}",))
    assert read_header(config.weights(config.arm("weighted-ssdu"), 0))["training"]["passes"] == 24


@pytest.mark.soak
def test_two_processes_on_a_machine_without_yaml_and_pydantic(plan, tmp_path, popen):
    script, as_json = BARE.format(folder=str(ROOT / "benchmarks")), tmp_path / "plan.json"
    change = f"output={tmp_path / 'out'}"
    command = [sys.executable, str(ROOT / "benchmarks" / "controlled.py"), str(plan), "--set", change]
    subprocess.run([*command, "--write-json", str(as_json)], check=True, capture_output=True)
    bare = [sys.executable, "-c", script, str(as_json), "--device", "cpu"]
    both = [popen(bare, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    texts = ["".join(process.communicate(timeout=600)) for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(texts)
    config = read_plan(plan, (change,))
    begun = [line.split()[-1] for text in texts for line in text.splitlines() if " s  train/" in line]
    assert sorted(begun) == sorted(f"train/{arm.name}/{seed}" for arm in config.arms for seed in (0, 1))
    check_report(config)


def check_report(config):
    """All parts are there, with equal passes; the report agrees with the results."""
    assert [part.name for part in experiment_parts(config) if not part.done] == []
    assert not list(config.folder.rglob("checkpoint.safetensors"))  # states of ended trainings are removed
    report = json.loads((config.folder / "report.json").read_text())
    for fact in report["trainings"]:  # a step has 4 to 5 passes
        assert all(config.passes - 5 <= passes <= config.passes for passes in fact["passes"]), fact
        assert len(fact["scores"]) == 2
    one, other = (read_header(config.weights(config.arm("upmri-path"), seed)) for seed in (0, 1))
    assert "spread" not in one  # nothing is calibrated
    assert one["training"]["kept"] != other["training"]["kept"]
    cells = {(row["arm"], row["group"]): row for row in report["table"]}
    for end in report["endpoints"]:
        gap = cells[end["arm"], end["group"]]["psnr"] - cells[end["less"], end["group"]]["psnr"]
        assert end["mean"] == pytest.approx(gap, abs=1e-9)
        assert end["low"] <= end["mean"] <= end["high"]
        assert end["people"] == 2
    assert {end["name"] for end in report["endpoints"] if end["primary"]} == {"the loss", "the path"}
    assert "upmri-no-path − weighted-ssdu" in (config.folder / "report.md").read_text()


def check_results_of_other_scans_are_left_out(config):
    """Results of a scan of an earlier plan in the same folder are not in the report."""
    benchmark, report = config.benchmark(), (config.folder / "report.json").read_text()
    store = Store(Path(benchmark.output) / DATABASE)
    store.add_scan(
        "other", grp="heads", person="x", name="x", slice=0, acceleration=2.0, true_acceleration=2.0, maps="espirit"
    )
    for variant in variants(benchmark):
        store.put("other", variant.key, {"psnr": 99.0, "ssim": 1.0, "nmse": 0.0}, 0.0, {})
    store.close()
    write_endpoints(config)
    assert (config.folder / "report.json").read_text() == report


def test_what_is_missing_is_named(plan, tmp_path):
    config = read_plan(plan, (f"output={tmp_path / 'other'}",))
    assert run_parts(config, ("report", "train/upmri-path")) == ["train/upmri-path/0", "train/upmri-path/1", "report"]
    with pytest.raises(InputError) as error:
        run_parts(config, ("train/upmri",))
    assert error.value.field == "--only"


# The plan of the project.


def test_all_arms_share_network_and_budget(monkeypatch):
    monkeypatch.setenv("UPMRI_DATA", "data")
    config = read_plan(PLAN)
    assert [end.name for end in config.endpoints if end.primary] == ["the loss", "the path", "full images"]
    assert len(config.seeds) == 2
    networks = {arm.name: arm.built().network() for arm in config.arms}
    shared = {name: net for name, net in networks.items() if not name.endswith("varnet")}
    assert {"ssdu", "weighted-ssdu", "robust-ssdu", "rei", "moi", "ensure", "upmri-path", "supervised"} <= set(shared)
    shapes = [[tuple(p.shape) for p in net.parameters()] for net in shared.values()]
    assert all(isinstance(net, Unrolled) and net.cascades == 6 for net in shared.values())
    assert all(shape == shapes[0] for shape in shapes)
    assert len({net.log_damping.item() for net in networks.values()}) == 1
    assert sum(isinstance(net, VarNet) for net in networks.values()) == 2
    assert all(find_method(arm.method).objective is not None for arm in config.arms)
    trainings = [
        config.training(arm, passes=1920, seed=0, output=Path("x"), rate=1e-3, device="cpu") for arm in config.arms
    ]
    steps = {training.name: training.steps for training in trainings}
    assert (steps["ssdu"], steps["upmri-path"], steps["ensure"], steps["rei"], steps["moi"]) == (20, 16, 10, 6, 6)
    same = ("batch", "precision", "ema", "clip", "weight_decay", "keep", "train", "validation", "flips", "schedule")
    assert all(len({str(getattr(training, name)) for training in trainings}) == 1 for name in same)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("seeds=[0, 0]", "seeds"),
        ("endpoints=[{name: a, arm: ssdu, less: nothing}]", "endpoints"),
        ("rates={values: [2e-3, 1e-3]}", "rates.values"),
        ("rates={values: [1e-3, 2e-3], factor: 1.0}", "rates.factor"),
        ("arms=[{name: a/b, method: ssdu}]", "arms"),
    ],
)
def test_wrong_plans(change, field):
    with pytest.raises(InputError) as error:
        read_plan(PLAN, (change,))
    assert error.value.field == field


# Statistics.


def scores(values, groups=None):
    """Seed → scan → score, of values [seed][person][scan]."""
    return {
        seed: {
            f"{p}{s}": Score(groups[p] if groups else "heads", str(p), value)
            for p, scans in enumerate(people)
            for s, value in enumerate(scans)
        }
        for seed, people in enumerate(values)
    }


def test_a_constant_difference_has_no_interval():
    base = [[[30.0, 31], [20, 25, 27]], [[30.5, 31.5], [20.5, 25.5, 27.5]]]
    better = [[[v + 1.5 for v in scans] for scans in base[0]]] * 2
    found = difference(scores(better), scores([base[0], base[0]]))
    assert (found.mean, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))
    assert (found.scans, found.people) == (5, 2)
    # A seed of the second arm is worth 0.5 dB: the mean of two has the standard deviation 0.25, and two draws of it are
    # both the one or both the other in half of all cases.
    seeds = difference(scores(better), scores(base))
    assert seeds.mean == pytest.approx(1.25)
    assert (seeds.low, seeds.high) == pytest.approx((1.25 - 0.25 * 2**0.5, 1.25 + 0.25 * 2**0.5))
    assert seeds.by_seed == pytest.approx((1.5, 1.0))


@pytest.mark.parametrize("count", [6, 100])
def test_the_interval_is_that_of_people(count):
    """Differences 0 and 1, one seed: ± 1.96 √(s²/n), s² = 1/4 n/(n−1), also of few people."""
    zero = [[[30.0]] * count]
    half = [[[30.0 + p % 2] for p in range(count)]]
    found = difference(scores(half), scores(zero))
    assert found.mean == pytest.approx(0.5)
    expected = 1.96 * (0.25 / (count - 1)) ** 0.5
    assert (found.high - found.low) / 2 == pytest.approx(expected, rel=0.05 if count > 10 else 0.2)


def test_weights_of_the_bootstrap_have_the_variance_of_a_mean():
    values = np.array([1.0, 4.0, 7.0, 30.0, 36.0])
    strata = ["a", "a", "a", "b", "b"]
    means = _weights(np.random.default_rng(1), strata) @ values
    expected = sum(values[at].var(ddof=1) * len(values[at]) for at in (slice(0, 3), slice(3, 5)))
    assert means.mean() == pytest.approx(values.sum(), rel=0.01)
    assert means.var() == pytest.approx(expected, rel=0.05)


def test_people_are_drawn_among_those_with_the_same_groups():
    """Two data sets with another effect each, the same for all their people: there is no spread."""
    groups = ["heads", "heads", "stripped", "stripped", "stripped"]
    zero = [[[30.0, 31.0]] * 5]
    better = [[[31.0, 32.0] if group == "heads" else [33.0, 34.0] for group in groups]]
    found = difference(scores(better, groups), scores(zero, groups))
    assert found.mean == pytest.approx(2.2)
    assert (found.low, found.high) == pytest.approx((2.2, 2.2))


def test_only_scans_of_both_arms_count():
    first, second = scores([[[30.0, 99.0]]]), scores([[[29.0, 10.0]]])
    del second[0]["01"]
    assert difference(first, second).mean == pytest.approx(1.0)
