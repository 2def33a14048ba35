"""Changes to the training of `upmri`: each differs from what is shipped, at the same cost."""

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import pytest

from upmri.core.settings import build
from upmri.methods.upmri_objective import UpmriObjective
from upmri.training.passes import passes_per_slice
from upmri.weights.files import load_prior

PASSES = 20_000
GIVEN = Namespace(
    passes=PASSES, side=64, coils=4, limit=8, validation=2, batch=4, width=4, rate=2e-3, device="cpu", workers=1,
    work=Path("levers"),
)  # fmt: skip


@pytest.fixture
def levers(monkeypatch):
    import levers

    monkeypatch.setenv("UPMRI_DATA", "anywhere")
    return levers


def test_the_first_is_the_shipped_network(levers):
    made = build(UpmriObjective, levers.SHIPPED, "objective")
    shipped = asdict(load_prior("brain").objective)
    assert asdict(made) == shipped


@pytest.mark.parametrize("number", range(1, 12))
def test_each_differs_in_one_thing_and_costs_as_much(levers, number):
    names = list(levers.VARIANTS)
    assert len(names) == 12
    first, config = (levers.config_of(each, 0, GIVEN) for each in (names[0], names[number]))
    objectives = [build(UpmriObjective, each.objective, "objective") for each in (first, config)]
    changed = {key for key, value in asdict(objectives[1]).items() if value != asdict(objectives[0])[key]}
    changed |= {key for key in ("batch", "optimiser") if getattr(config, key) != getattr(first, key)}
    assert len(changed) == 1
    assert config.name != first.name
    step = config.batch * passes_per_slice(objectives[1], max(1, objectives[1].path_every))
    assert PASSES - step <= config.steps * step <= PASSES
