"""Search of rates: the grid grows while the best value is at an edge, and held-out lines decide."""

import importlib.util
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from upmri import InputError
from upmri.training import search
from upmri.training.config import read_config
from upmri.training.loop import DivergedError
from upmri.training.search import GrowingGrid, best_value, held_out_gain, resumed, search_rate
from upmri.weights.files import load_prior


def run(grid, score):
    scores = {}
    while (value := grid.next(scores)) is not None:
        scores[value] = score(value)
    return scores


@pytest.mark.parametrize(
    ("best", "tried"),
    [
        (2, [1, 2, 4]),
        (16, [1, 2, 4, 8, 16, 32]),
        (0.5, [1, 2, 4, 0.5, 0.25]),
        (1000, [1, 2, 4, 8, 16, 32]),  # three values may be added
    ],
)
def test_the_grid_grows_at_its_edge(best, tried):
    grid = GrowingGrid((1.0, 2.0, 4.0), factor=2.0, extensions=3)
    scores = run(grid, lambda value: -abs(math.log(value / best)))
    assert list(scores) == tried
    assert grid.inside(scores) == (best < 1000)
    assert best_value(scores) == min(best, 32)


def test_a_bound_ends_the_search():
    grid = GrowingGrid((1.0, 2.0), factor=2.0, most=5.0)
    assert list(run(grid, lambda value: value)) == [1, 2, 4]


def test_a_training_that_diverges_is_worst():
    scores = {1.0: -3.0, 2.0: -math.inf, 4.0: math.nan}
    assert best_value(scores) == 1.0
    assert GrowingGrid((1.0, 2.0, 4.0)).next(scores) == 0.5


@pytest.mark.parametrize("settings", [{"values": (1.0,)}, {"values": (2.0, 1.0)}, {"factor": 1.0}, {"extensions": -1}])
def test_wrong_grids(settings):
    with pytest.raises(InputError) as error:
        GrowingGrid(**settings)
    assert [error.value.field] == list(settings)


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
def test_rates_are_scored_on_held_out_lines(config, monkeypatch):
    """The score is that of the weights kept; a search that was interrupted goes on; a diverged training is worst."""
    plain = config(validation=config()["train"] | {"limit": 2}, steps=2, save_every=1, validate_every=1)
    known = []
    real = search.resumed

    def train_unless_large(given):
        if given.rate > 3e-3:
            raise DivergedError("large")
        return real(given)

    monkeypatch.setattr(search, "resumed", train_unless_large)
    grid = GrowingGrid((1e-3, 4e-3), extensions=1)
    found = search_rate(read_config(plain), grid, report=lambda scores: known.append(dict(scores)))
    assert list(found.scores) == [1e-3, 4e-3, 5e-4]
    assert found.scores[4e-3] == -math.inf
    assert found.rate in (1e-3, 5e-4)
    assert [len(scores) for scores in known] == [1, 2, 3]
    kept = read_config({**plain, "output": f"{plain['output']}/0.001", "rate": 1e-3, "keep": "best"})
    weights = resumed(kept)  # nothing is trained again
    assert held_out_gain(weights) == found.scores[1e-3]
    with pytest.raises(InputError, match="steps was 2, is 3.*; choose another folder"):
        resumed(replace(kept, steps=3))
    monkeypatch.setattr(search, "resumed", None)
    assert search_rate(read_config(plain), grid, known=found.scores) == found


@pytest.fixture
def script(monkeypatch):
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location("rates", folder / "rates.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_script_counts_passes_of_the_weights_that_training_begins_with(config, script):
    plain = {**config(), "objective": {}}
    begun = script.steps_of(read_config(plain | {"begin": "brain"}), 10_000)
    same = asdict(load_prior("brain").objective)
    assert begun == script.steps_of(read_config(plain | {"objective": same}), 10_000)
    assert begun != script.steps_of(read_config(plain), 10_000)


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
def test_the_script_for_several_trainings(config, tmp_path, script, capsys):
    plain = config(validation=config()["train"] | {"limit": 2}) | {"name": "first"}
    plans = tmp_path / "plans.json"
    plans.write_text(json.dumps([plain, plain | {"name": "second"}]))
    options = [str(plans), "--rates", "1e-3", "2e-3", "--extensions", "0", "--passes", "10"]
    options += ["--work", str(tmp_path / "work"), "--device", "cpu"]
    script.main([*options, "--only", "first"])
    out = capsys.readouterr().out
    assert out.count("first, ") == out.count("dB over SENSE") == 2
    assert "(3 steps each)" in out  # of two slices, every second step with a second pass
    script.main([*options, "--out", str(tmp_path / "found.json")])
    out = capsys.readouterr().out
    assert out.count("second, ") == out.count("dB over SENSE") == 2  # the first is not trained again
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["first", "second"]
    assert all(set(row["scores"]) == {"0.001", "0.002"} and not row["inside"] for row in rows)
    with pytest.raises(InputError, match=r"first-rates/rates.json: .*batch was 2, is 1; .*steps was 3, is 6"):
        script.main([*options, "--set", "batch=1"])
