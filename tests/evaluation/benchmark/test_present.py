"""The results of the configuration among all in a database."""

from dataclasses import replace

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


def fill(store, tasks, psnr, enter=True):
    """One result of each task."""
    for task in tasks:
        name = store.enter(task.key, task.origin) if enter else task.key
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


def test_another_noise_has_results_of_its_own(store, write, heads):
    """Those of the first are kept, and found again."""
    first, second = (
        cases.tasks(read_config(write(groups=[{"name": "g", "images": [str(heads)], "coils": 4, "noise": noise}])))[:3]
        for noise in (0.01, 0.2)
    )
    assert [task.key for task in first] == [task.key for task in second]
    fill(store, first, 30.0)
    assert present_rows(store, second) == []
    fill(store, second, 14.0)
    for tasks, psnr in ((first, 30.0), (second, 14.0)):
        rows = present_rows(store, tasks)
        assert [(row.scan, row.psnr) for row in rows] == sorted((task.key, psnr) for task in tasks)


def test_results_of_databases_without_origins_count(store, write):
    """For the configuration that is the first to continue them."""
    tasks = cases.tasks(read_config(write()))[:2]
    noisy = [replace(task, group=replace(task.group, noise=0.2)) for task in tasks]
    fill(store, tasks, 30.0, enter=False)
    store._base.execute("DROP TABLE origin")
    again = Store(store._base.execute("PRAGMA database_list").fetchone()[2])
    assert len(present_rows(again, tasks)) == len(present_rows(again, noisy)) == 2
    assert [again.enter(task.key, task.origin) for task in tasks] == [task.key for task in tasks]
    assert len(present_rows(again, tasks)) == 2
    assert present_rows(again, noisy) == []
    again.close()
