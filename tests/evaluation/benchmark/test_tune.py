"""Search of settings on validation scans: scores, growth of the grid, and the project's own plan."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from upmri import InputError
from upmri.core.settings import build
from upmri.evaluation.benchmark.tune import TuningConfig, read_tuning, score, tune, tuning_markdown
from upmri.evaluation.metrics import evaluate
from upmri.learning.held_out import HeldOut
from upmri.methods.sense import Sense

PLAN = Path(__file__).parents[3] / "configs" / "benchmark" / "settings.yaml"


@pytest.fixture
def config(heads, tmp_path):
    def entry(name, by):
        grid = {"values": [1.0, 2.0], "factor": 4.0, "extensions": 8}
        return {"name": name, "method": "sense", "setting": "damping", "grid": grid, "by": by}

    plan = {
        "output": str(tmp_path / "scores"),
        "groups": [{"name": "heads", "images": [str(heads)], "coils": 4, "limit": 2}],
        "accelerations": [2],
        "entries": [entry("truth", "psnr"), entry("lines", "held-out")],
    }
    return build(TuningConfig, plan)


def test_a_grid_grows_until_its_best_value_is_inside(config):
    """λ of SENSE from far too large values: both scores find one near the best."""
    seen = []
    found = tune(config, device="cpu", report=lambda *what: seen.append(what))
    for entry in config.entries:
        scores = found[entry.name]
        assert entry.grid.inside(scores)
        assert max(scores, key=scores.get) < 0.1
        stored = json.loads((Path(config.output) / f"{entry.name}.json").read_text())
        assert {float(value): gain for value, gain in stored["scores"].items()} == scores
    assert len(seen) == sum(map(len, found.values()))
    assert tune(config, ["lines"], device="cpu", report=lambda *_: pytest.fail("known")) == {"lines": found["lines"]}
    assert "damping" in tuning_markdown(config, found)


def test_scores_of_other_scans_are_not_taken(config):
    found = tune(config, ["truth"], device="cpu")
    other = replace(config, groups=(replace(config.groups[0], limit=1),))
    assert tune(other, ["truth"], device="cpu") != found
    assert tune(config, ["truth"], device="cpu") == found


def test_the_scores(config):
    problems = config.problems("cpu")
    method = Sense(damping=0.02)
    psnr = [evaluate(method.reconstruct(p), p.reference)["psnr"] for p in problems]
    assert score(method, problems, "psnr") == pytest.approx(sum(psnr) / len(psnr))
    gains = []
    for problem in problems:
        test = HeldOut.draw(problem.with_seeds(problem.seeds))
        gains.append(10 * torch.log10(test.error(test.sense()) / test.error(method.reconstruct(test.inputs))).item())
    assert score(method, problems, "held-out") == pytest.approx(sum(gains) / len(gains), abs=1e-4)
    assert score(method, problems, "held-out") == score(method, problems, "held-out")  # the same lines each time


def test_the_plan_of_the_project():
    config = read_tuning(PLAN)
    assert {group.part for group in config.groups} == {"val"}
    by = {entry.method: entry.by for entry in config.entries}
    assert by["ambient"] == "held-out"
    assert {"ddnm", "dds", "dps", "ot-ode", "pnp-flow"} <= set(by)
    for change in ("entries=[{name: a/b, method: sense, setting: damping, grid: {values: [1, 2]}}]",):
        with pytest.raises(InputError) as error:
            read_tuning(PLAN, (change,))
        assert error.value.field == "entries[0].name"
