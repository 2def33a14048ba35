"""The results of the configuration among all in a database."""

import pytest

from upmri.evaluation.benchmark import cases
from upmri.evaluation.benchmark.plan import read_config
from upmri.evaluation.benchmark.present import present_rows
from upmri.evaluation.benchmark.store import Store

SCORES = {"psnr": 30.0, "ssim": 0.9, "nmse": 0.01}


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "results.sqlite")
    yield made
    made.close()


def fill(store, tasks, psnr):
    """One result of each task."""
    for task in tasks:
        name = task.key
        facts = {"grp": task.group.name, "person": task.slice.person, "name": task.slice.name, "maps": task.maps}
        store.add_scan(name, **facts, slice=task.slice.index, acceleration=2.0, true_acceleration=2.0)
        store.put(name, "v", SCORES | {"psnr": psnr}, 0.0, {})


def test_scans_of_other_configurations_are_left_out(store, write, heads):
    """Fewer slices, and another stand-in for a person."""
    group = {"name": "heads", "images": [str(heads)], "coils": 4}
    every = cases.tasks(read_config(write(groups=[group], accelerations=[2])))
    few = cases.tasks(read_config(write(groups=[group | {"limit": 2, "person": "folder"}], accelerations=[2])))
    fill(store, every, 30.0)
    assert {row.scan for row in present_rows(store, every)} == {task.key for task in every}
    assert [(row.scan, row.person) for row in present_rows(store, few)] == [(t.key, heads.name) for t in few]
