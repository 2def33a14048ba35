"""U-Net passes: the hook on the network agrees with hooks on its U-Nets, for every loss."""

import json
from pathlib import Path

import pytest

from upmri.methods import find_method
from upmri.networks.cnn import Cnn, UNet
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.simulate import simulate
from upmri.training import train
from upmri.training.passes import PassCounter, passes_per_slice, steps_within
from upmri.weights.card import read_header

EVALUATIONS = {
    ("ssdu", "unrolled"): 1,
    ("weighted-ssdu", "varnet"): 1,
    ("robust-ssdu", "unrolled"): 1,
    ("robust-ssdu", "denoising"): 2,
    ("rei", "unrolled"): 3,
    ("moi", "unrolled"): 3,
    ("moi", "modl"): 3,
    ("ensure", "unrolled"): 2,
    ("varnet", "unrolled"): 1,
}


def objective_of(method, backbone):
    depth = "unrolls" if method in ("moi", "ensure") else "cascades"
    return find_method(method).objective(backbone=backbone, width=4, **{depth: 3})


@pytest.mark.parametrize(("method", "backbone"), EVALUATIONS)
def test_the_count_is_that_of_the_unets(method, backbone):
    objective = objective_of(method, backbone)
    network, seen = objective.network().train(), []
    for part in network.modules():
        if isinstance(part, UNet | Cnn):
            part.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    counter = PassCounter(network)
    problem = Problem.from_scan(simulate(image((32, 32)).expand(2, -1, -1).clone(), 2, 2))
    objective.loss(network, problem)
    assert counter.total == sum(seen) == 2 * 3 * EVALUATIONS[method, backbone]
    counter.stop()
    objective.loss(network, problem)
    assert counter.total == 2 * 3 * EVALUATIONS[method, backbone]
    assert passes_per_slice(objective) == 3 * EVALUATIONS[method, backbone]


def test_every_frame_of_a_series_counts_for_each_cascade():
    objective, frames = find_method("cine").objective(cascades=3, width=4), 4
    network, seen = objective.network().train(), []
    network.network.register_forward_hook(lambda *_: seen.append(frames))
    counter = PassCounter(network)
    scan = simulate(image((32, 32)).expand(frames, -1, -1).clone(), 2, 2)
    objective.loss(network, Problem.from_scans([scan], frames=frames))
    assert counter.total == sum(seen) == frames * 3


def test_the_path_needs_a_second_pass_in_some_steps():
    kind = find_method("upmri").objective
    assert passes_per_slice(kind(cascades=2, width=4, path_every=0)) == 2
    assert passes_per_slice(kind(cascades=2, width=4, path_every=4), 4) == 2.5
    assert steps_within(1000, kind(cascades=2, width=4, path_every=4), 10) == 40
    assert steps_within(1, kind(cascades=2, width=4, path_every=0), 10) == 1


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
def test_a_run_logs_its_passes_and_goes_on_counting(config):
    """Two slices, one cascade, every second step with a second pass; validation is not counted."""
    plain = config(validation=config()["train"] | {"limit": 2}, validate_every=2)
    path = train(plain)
    log = [json.loads(line) for line in (Path(plain["output"]) / "log.jsonl").read_text().splitlines()]
    assert [line["passes"] for line in log if "passes" in line] == [4, 6, 10, 12]
    assert read_header(path)["training"]["passes"] == 12
    again = train({**plain, "output": plain["output"], "steps": 4}, resume=True)
    assert read_header(again)["training"]["passes"] == 12
