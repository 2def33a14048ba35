"""The benchmarks of the project can be read, and there is a training configuration for all weights they need."""

from dataclasses import replace
from pathlib import Path

import pytest

from upmri.core.settings import build
from upmri.evaluation.benchmark.plan import read_config
from upmri.methods import find_method, method_names
from upmri.physics.espirit import MIN_LINES
from upmri.physics.masks import calibration_region
from upmri.training.config import read_config as read_training
from upmri.training.selection import draw_lines

CONFIGS = Path(__file__).parents[3] / "configs"
# Plans of scripts in benchmarks/, with keys of their own.
OTHERS = ("controlled", "settings")


@pytest.fixture(scope="module")
def trained():
    """The method of the weights, by the name of the weights, for every training configuration."""
    configs = [read_training(path) for path in CONFIGS.rglob("*.yaml") if path.parent.name != "benchmark"]
    for config in configs:
        build(find_method(config.method).objective, config.objective, "objective")
    return {config.name: config.method for config in configs}


BENCHMARKS = [path for path in sorted((CONFIGS / "benchmark").glob("*.yaml")) if path.stem not in OTHERS]


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda p: p.stem)
def test_every_row_can_be_trained(path, trained):
    config = read_config(path)
    assert config.output == f"results/{path.stem}"
    for entry in config.entries:
        owner = find_method(entry.method).weights_of or entry.method
        model = entry.settings.get("model")
        if model is None or model in ("brain", "cardiac"):
            continue
        assert trained[Path(model).stem] == owner


def test_brains_have_every_method_with_those_of_many_evaluations_apart():
    once, drawn = ({entry.method for entry in read_config(CONFIGS / "benchmark" / f"{name}.yaml").entries}
                   for name in ("brain", "means"))  # fmt: skip
    # Methods over time need series. GRAPPA has a benchmark of its own.
    methods = {name for name in method_names() if not find_method(name).dynamic} - {"grappa"}
    many = {name for name in methods if find_method(name).evaluations > 1}
    assert once == methods - many
    # With a network that takes as long, and the default beside them.
    assert drawn == many | {"robust-ssdu", "upmri"}


@pytest.mark.parametrize("name", ["samplers", "means"])
def test_what_draws_is_measured_on_the_same_scans_or_some_of_them(name):
    """Slices of a limit are spread evenly: those of a sixth of the limit are among them."""
    all_of, some = (read_config(CONFIGS / "benchmark" / f"{name}.yaml") for name in ("brain", name))
    for group, part in zip(all_of.groups, some.groups, strict=True):
        assert part == replace(group, limit=part.limit)
        assert group.limit % part.limit == 0
    assert some.accelerations == all_of.accelerations
    assert set(some.maps) <= set(all_of.maps)
    assert (some.seed, some.draws) == (all_of.seed, all_of.draws)


def test_what_draws_has_one_draw_and_the_mean_of_eight():
    entries = read_config(CONFIGS / "benchmark" / "means.yaml").entries
    single = read_config(CONFIGS / "benchmark" / "samplers.yaml").entries
    for entry in single:
        if not entry.settings["model"].startswith("brain-gtf2m"):
            assert entry.settings in [other.settings for other in entries if other.method == entry.method]
    for method in ("ddnm", "dds", "dps", "ot-ode", "pnp-flow", "ambient"):
        found = [entry for entry in entries if entry.method == method]
        assert found
        for one, eight in zip(found[::2], found[1::2], strict=True):
            assert eight.settings == one.settings | {"samples": 8}
            assert eight.evaluations == 8 * find_method(method).evaluations


def test_the_highest_rates_leave_lines_to_calibrate_and_lines_to_draw():
    config = read_config(CONFIGS / "benchmark" / "rates.yaml")
    assert config.accelerations == (4, 8, 10, 12)
    (group,) = config.groups
    for rate in config.accelerations:
        for seed in range(8):
            lines = draw_lines(group, 128, rate, seed)
            _, centre = calibration_region(lines, 128)
            assert lines.sum() == round(128 / rate)
            assert MIN_LINES <= centre.stop - centre.start < lines.sum()
