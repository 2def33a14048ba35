import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from upmri.core.errors import InputError
from upmri.core.settings import build
from upmri.learning.lines import LineSplit
from upmri.methods import find_method
from upmri.methods.upmri_objective import UpmriObjective
from upmri.training.begin import trained_method
from upmri.training.config import DataConfig, TrainConfig, read_config

FULL = """
output: run
method: upmri
objective: {cascades: 2, width: 4, split: {loss: [0.1, 0.5]}}
train:
  images: [a, b]
  part: train
  accelerations: [4, 6.5]
  noise: [0.01, 0.03]
validation: {scans: [c.h5], limit: 12}
steps: 100
rate: 5e-4
schedule: constant
precision: bf16
flips: false
"""


@pytest.fixture
def write(tmp_path):
    def put(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return put


def plain(value):
    """Tuples as lists, which YAML has."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def test_a_file_has_all_settings(write):
    config = read_config(write(FULL))
    assert config.train == DataConfig(images=("a", "b"), part="train", accelerations=(4.0, 6.5), noise=(0.01, 0.03))
    assert config.validation == DataConfig(scans=("c.h5",), limit=12)
    assert (config.steps, config.rate, config.schedule) == (100, 5e-4, "constant")
    assert (config.precision, config.flips) == ("bf16", False)
    assert config.batch == TrainConfig(output="run", train=DataConfig()).batch
    assert config.objective == {"cascades": 2, "width": 4, "split": {"loss": [0.1, 0.5]}}
    assert build(UpmriObjective, config.objective, "objective").split == LineSplit(loss=(0.1, 0.5))


@given(
    steps=st.integers(1, 10**9),
    rate=st.floats(1e-30, 1e30),
    ema=st.floats(0, 1, exclude_max=True),
    flips=st.booleans(),
    about=st.text(),
    noise=st.tuples(st.floats(1e-9, 1), st.floats(1, 10)),
    limit=st.none() | st.integers(1, 99),
    images=st.lists(st.text(), max_size=3),
)
def test_what_is_written_is_read_back(tmp_path_factory, steps, rate, ema, flips, about, noise, limit, images):
    data = DataConfig(images=tuple(images), noise=noise, limit=limit)
    config = TrainConfig(output="o", train=data, steps=steps, rate=rate, ema=ema, flips=flips, about=about)
    path = tmp_path_factory.getbasetemp() / "round-trip.yaml"
    path.write_text(yaml.safe_dump(plain(asdict(config))), encoding="utf-8")
    assert read_config(path) == config
    assert read_config(asdict(config)) == config
    assert read_config(config) == config


@pytest.mark.parametrize(
    ("number", "value"), [("5e-4", 5e-4), ("1E3", 1000.0), ("-1.e+2", -100.0), ("2", 2.0), (".5", 0.5), ("-.inf", None)]
)
def test_numbers_as_people_write_them(write, number, value):
    """YAML 1.1 reads 5e-4 as text."""
    path = write(f"output: run\ntrain: {{}}\nobjective: {{x: {number}}}\n")
    assert read_config(path).objective == {"x": float("-inf") if value is None else value}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("stepz: 3", "stepz"),
        ("train: {noize: [0.1, 0.1]}", "train.noize"),
        ("validation: {nosie: 1}", "validation.nosie"),
        ("steps: many", "steps"),
        ("steps: 1.5", "steps"),
        ("steps: true", "steps"),
        ("rate: fast", "rate"),
        ("rate: true", "rate"),
        ("rate: '5e-4'", "rate"),
        ("flips: 1", "flips"),
        ("output: 3", "output"),
        ("schedule: linear", "schedule"),
        ("objective: [1]", "objective"),
        ("lesson: [1]", "objective"),
        ("train: 5", "train"),
        ("train: {coils: 4.0}", "train.coils"),
        ("train: {anatomy: foot}", "train.anatomy"),
        ("train: {images: folder}", "train.images"),
        ("train: {images: [a, 3]}", "train.images[1]"),
        ("train: {noise: 0.02}", "train.noise"),
        ("train: {noise: [0.01]}", "train.noise"),
        ("train: {noise: [0.01, high]}", "train.noise[1]"),
        ("train: {noise: [0.03, 0.01]}", "train.noise"),
        ("train: {noise: [0, 0.01]}", "train.noise"),
        ("train: {images: [x], draw: 1}", "train.draw"),
        ("train: {scans: [x], varied: 0.5, draw: 1}", "train.draw"),
        ("train: {accelerations: []}", "train.accelerations"),
        ("train: {accelerations: [4, 0]}", "train.accelerations"),
        ("train: {accelerations: [.nan]}", "train.accelerations"),
        ("train: {accelerations: [.inf]}", "train.accelerations"),
        ("train: {varied: 2}", "train.varied"),
        ("train: {varied: -1}", "train.varied"),
        ("train: {varied: .nan}", "train.varied"),
        ("train: {coils: 0}", "train.coils"),
        ("train: {limit: 0}", "train.limit"),
        ("validation: {limit: -1}", "validation.limit"),
        ("train: {acs: {x: 3}}", "train.acs"),
        ("train: {acs: {0: 3}}", "train.acs"),
        ("weight_decay: -1", "weight_decay"),
        ("weight_decay: .nan", "weight_decay"),
        ("warmup: -3", "warmup"),
        (f"seed: {2**80}", "seed"),
        ("name: ..", "name"),
        ("steps: 0", "steps"),
        ("save_every: 0", "save_every"),
        ("rate: 0", "rate"),
        ("rate: .nan", "rate"),
        ("ema: 1", "ema"),
        ("name: checkpoint", "name"),
        ("name: a/b", "name"),
        ("name: ''", "name"),
    ],
)
def test_a_wrong_setting_is_named(write, change, key):
    rest = {"output": "run", "train": {}}
    changed = yaml.safe_load(change)
    lines = [change, *(yaml.safe_dump({k: v}) for k, v in rest.items() if k not in changed)]
    for source in (write("\n".join(lines)), rest | changed):
        with pytest.raises(InputError) as error:
            read_config(source)
        assert error.value.field == key


@pytest.mark.parametrize(("text", "key"), [("train: {}", "output"), ("output: run", "train")])
def test_a_missing_setting_is_named(write, text, key):
    with pytest.raises(InputError, match="missing") as error:
        read_config(write(text))
    assert error.value.field == key


@pytest.mark.parametrize(
    ("objective", "key"),
    [
        ({"wdth": 4}, "objective.wdth"),
        ({"cascades": 0}, "objective.cascades"),
        ({"width": 0}, "objective.width"),
        ({"split": {"los": [0, 1]}}, "objective.split.los"),
        ({"split": {"loss": [0, "all"]}}, "objective.split.loss[1]"),
        ({"time": {"scale": "wide"}}, "objective.time.scale"),
    ],
)
def test_objectives_are_checked_alike(objective, key):
    with pytest.raises(InputError) as error:
        build(UpmriObjective, objective, "objective")
    assert error.value.field == key


def test_an_objective_may_be_an_instance():
    objective = UpmriObjective(cascades=3)
    config = TrainConfig(output="run", train=DataConfig(), objective=objective)
    assert read_config(config) is config
    assert read_config({"output": "run", "train": {}, "objective": objective}) == config
    assert read_config(config, ("steps=3",)).objective == objective
    with pytest.raises(InputError) as error:
        read_config(config, ("objective.width=3",))
    assert error.value.field == "--set"
    with pytest.raises(InputError) as error:
        TrainConfig(output="run", train=DataConfig(), objective=UpmriObjective)
    assert error.value.field == "objective"


OLD = """
output: run
method: upmri
lesson: {width: 4, doubt: 0.1, split: {judged: [0.1, 0.5], told: [0, 0.2], calibration: 0.3}}
train: {}
"""


def test_old_names_are_read(write):
    config = read_config(write(OLD))
    split = {"loss": [0.1, 0.5], "path": [0, 0.2], "calibration": 0.3}
    assert config.objective == {"width": 4, "sigma_jitter": 0.1, "split": split}
    assert read_config(yaml.safe_load(OLD)) == config
    changed = read_config(write(OLD), ("lesson.split.told=[0, 1]", "objective.doubt=0.2", "lesson.width=5"))
    assert changed.objective == {"width": 5, "sigma_jitter": 0.2, "split": split | {"path": [0, 1]}}
    assert read_config(write(OLD), ("lesson={}",)).objective == {}


def test_old_and_new_names_of_a_base(write):
    base = write(OLD)
    for key in ("lesson", "objective"):
        over = base.parent / "over.yaml"
        over.write_text(f"base: config.yaml\n{key}: {{width: 8}}\n")
        assert read_config(over).objective == {"width": 8}


def test_old_and_new_names_together_are_refused(write):
    path = write(OLD + "objective: {}")
    with pytest.raises(InputError) as error:
        read_config(path)
    assert (error.value.field, error.value.path) == ("lesson", str(path))


def test_changes_are_made(write):
    changes = (
        "train.noise=[0.02,0.04]",
        "steps = 7",
        "rate=1e-3",
        "validation.limit=3",
        "objective.split.path=[0, 0.1]",
        "about=a b=c",
        "schedule=cosine",
    )
    config = read_config(write(FULL), changes)
    assert config.train.noise == (0.02, 0.04)
    assert config.train.images == ("a", "b")
    assert (config.steps, config.rate, config.schedule) == (7, 1e-3, "cosine")
    assert config.validation == DataConfig(scans=("c.h5",), limit=3)
    assert config.objective == {"cascades": 2, "width": 4, "split": {"loss": [0.1, 0.5], "path": [0, 0.1]}}
    assert config.about == "a b=c"
    assert read_config(read_config(write(FULL)), changes) == config


def test_changes_may_begin_a_part_and_leave_the_source_alone():
    source = {"output": "run", "train": {"coils": 4}}
    config = read_config(source, ("validation.coils=8", "train.coils=2"))
    assert (config.validation.coils, config.train.coils) == (8, 2)
    assert source == {"output": "run", "train": {"coils": 4}}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("steps", "--set"),
        ("steps=many", "steps"),
        ("steps.more=3", "--set"),
        ("stepz=3", "stepz"),
        ("train.noize=3", "train.noize"),
        ("steps=[", "--set"),
        ("steps=2024-13-45", "--set"),
        ("=", ""),
        ("rate={a", "--set"),
    ],
)
def test_changes_that_make_no_sense(write, change, field):
    with pytest.raises(InputError) as error:
        read_config(write(FULL), (change,))
    assert (error.value.field or "") == field


@pytest.mark.parametrize("text", ["", "- a\n- b", "just text", "a: [", "a: 2024-13-45", "a: \x01", "[" * 2000])
def test_what_is_not_a_configuration(write, text):
    path = write(text)
    with pytest.raises(InputError) as error:
        read_config(path)
    assert error.value.path == str(path)


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "missing.yaml"):
        with pytest.raises(InputError) as error:
            read_config(path)
        assert error.value.path == str(path)
    (tmp_path / "latin.yaml").write_bytes("output: \u00fc".encode("latin-1"))
    with pytest.raises(InputError, match="not YAML") as error:
        read_config(tmp_path / "latin.yaml")
    assert error.value.path == str(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:pathlib.Path.touch [{}]",
        "!!python/object/apply:os.system ['touch {}']",
        "!!python/object/new:os.system ['touch {}']",
        "!!python/name:os.system",
        "!!python/module:os",
    ],
)
def test_no_file_and_no_change_runs_code(write, tmp_path, value):
    value = value.format(tmp_path / "ran")
    for source, changes in ((f"output: {value}\ntrain: {{}}", ()), (FULL, (f"output={value}",))):
        with pytest.raises(InputError, match="not YAML.*python"):
            read_config(write(source), changes)
    assert not (tmp_path / "ran").exists()


def test_values_from_python_are_checked_too():
    with pytest.raises(InputError) as error:
        read_config({"output": Path("run"), "train": {}})
    assert error.value.field == "output"
    assert read_config({"output": "run", "train": DataConfig(coils=3)}).train.coils == 3


def test_a_base_is_replaced_key_by_key(write):
    base = write(FULL)
    (base.parent / "sub").mkdir()
    over = base.parent / "sub" / "over.yaml"
    over.write_text("base: ../config.yaml\nmethod: modl\nobjective: {}\nsteps: 7\n")
    config = read_config(over, ("rate=1e-3",))
    assert (config.method, config.objective, config.steps, config.rate) == ("modl", {}, 7, 1e-3)
    assert config.train == read_config(base).train
    third = base.parent / "third.yaml"
    third.write_text("base: sub/over.yaml\nsteps: 9\n")
    assert read_config(third).steps == 9
    assert read_config(third).method == "modl"


@pytest.mark.parametrize(
    ("text", "path", "field"),
    [
        ("base: config.yaml", "config.yaml", "base"),
        ("base: elsewhere.yaml", "elsewhere.yaml", None),
        ("base: [a]", "config.yaml", "base"),
    ],
)
def test_a_base_that_cannot_be_used(write, text, path, field):
    with pytest.raises(InputError) as error:
        read_config(write(text))
    assert (Path(error.value.path).name, error.value.field) == (path, field)


CONFIGS = Path(__file__).parents[2] / "configs"
TRAINING = sorted(path for path in CONFIGS.glob("*/*.yaml") if path.parent.name != "benchmark")


@pytest.mark.parametrize("path", TRAINING, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_configurations_of_the_project(path):
    """Every file can be trained, with the same people as the others of its folder, under a name of its own.

    ``upmri-4x`` and the like are trained with T2 heads at one acceleration; their weights are called ``brain-4x``.
    """
    config = read_config(path)
    build(find_method(config.method).objective, config.objective, "objective")
    first = CONFIGS / f"{path.parent.name}.yaml"
    other = read_config(first if first.exists() else path.parent / "upmri-paper.yaml")
    rate = re.fullmatch(r"upmri-(\d+)x", path.stem)
    if rate:
        heads = other.train.images[-1:]
        other = replace(
            other,
            train=replace(other.train, images=heads, accelerations=(float(rate[1]),)),
            validation=replace(other.validation, images=heads, limit=16),
        )
    if path.stem == "upmri-planes":  # other masks, and fewer slices
        own = [{"lines": "mixed", "limit": part.limit} for part in (config.train, config.validation)]
        other = replace(other, train=replace(other.train, **own[0]), validation=replace(other.validation, **own[1]))
    if path.stem in ("upmri", "upmri-next", "upmri-more", "upmri-long") and first.exists():  # more lines and images
        images, limit = {"brain": (config.train.images, 60), "cardiac": (other.train.images, 32)}[path.parent.name]
        assert images[: len(other.train.images)] == other.train.images
        lines = {"lines": "both", "accelerations": (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)} if path.stem != "upmri-next" else {}
        drawn = {"brain": {"draw": 3, "redraw": 1170}, "cardiac": {"draw": 1, "redraw": 585}}[path.parent.name]
        lines |= {"upmri-more": {"draw": 2}, "upmri-long": drawn}.get(path.stem, {})
        validation = replace(other.validation, images=images, varied=0.7, limit=limit)
        other = replace(other, train=replace(other.train, images=images, **lines), validation=validation)
    assert (config.train, config.validation) == (other.train, other.validation)
    assert config.name == f"{path.parent.name}-{f'{rate[1]}x' if rate else path.stem}"
    assert config.output == f"runs/{config.name}"
    full = "full images" in (find_method(config.method).needs, config.about.rpartition("Learnt from ")[2].rstrip("."))
    assert ("without fully sampled images" in config.about) != full


def test_the_configuration_of_series():
    """Nothing in it is without effect."""
    trained_method(read_config(CONFIGS / "cine.yaml"))
