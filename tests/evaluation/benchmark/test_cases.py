"""The scans of a benchmark: which there are, and what is in them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.evaluation.benchmark import cases
from upmri.evaluation.benchmark.plan import read_config
from upmri.physics.fourier import fft2c
from upmri.physics.masks import calibration_region, seed_for
from upmri.training.selection import select


def test_simulated_scans_are_those_of_simulate(write, heads):
    tasks = {task.key: task for task in cases.tasks(read_config(write(maps=["exact"])))}
    task = tasks["heads heads/person1.npz 2 2.5x exact"]
    seed = seed_for("heads/person1.npz", 2, 2.5) % 2**31
    image = np.load(heads / "person1.npz")["image"][2]
    expected = upmri.simulate(image, coils=4, acceleration=2.5, seed=seed)
    made = task.make()
    assert torch.equal(made.mask, expected.mask)
    assert torch.allclose(made.kspace, expected.kspace)
    assert torch.allclose(made.maps, expected.maps)


def test_lines_can_be_drawn_again(write):
    first, second, *_ = cases.tasks(read_config(write(draws=2)))
    assert (first.draw, second.draw, second.slice) == (0, 1, first.slice)
    assert second.key == first.key + " draw 1"
    assert not torch.equal(first.make().mask, second.make().mask)


def test_measured_scans_lose_lines_and_keep_a_reference(write, tmp_path):
    """Of the kind of each file's meta that is asked for, of people in a share."""
    image = upmri.demo.brain()[:2, ::2, ::2]
    folder = tmp_path / "scans"
    for i in range(4):
        full = upmri.simulate(image, coils=4, acceleration=1, acs=0, seed=i)
        (folder / f"p{i}").mkdir(parents=True)
        kind = {"acquisition": "AXT2" if i < 3 else "AXT1"}
        replace(full, maps=None, reference=None, meta=kind).save(folder / f"p{i}" / "scan.h5")
    group = {"name": "real", "scans": [str(folder)], "only": {"acquisition": "AXT2"}, "person": "folder"}
    group |= {"acs": {3: 10}, "counting": "excluded"}
    config = read_config(write(groups=[group], accelerations=[3]))
    tasks = cases.tasks(config)
    assert {task.slice.person for task in tasks} == {"p0", "p1", "p2"}
    assert len(tasks) == 6
    scan = tasks[1].make()
    _, columns = calibration_region(scan.mask[0], scan.matrix[0])
    assert int(scan.mask.sum()) == 10 + round((48 - 10) / 3)
    assert columns.stop - columns.start >= 10
    full = upmri.load(folder / "p0" / "scan.h5")
    assert torch.allclose(scan.kspace, full.kspace[1:] * scan.mask[:, None])
    again = fft2c(scan.maps * scan.reference[:, None])
    assert (again - full.kspace[1:]).norm() < 0.2 * full.kspace[1:].norm()
    halves = [replace(config.groups[0], share=share) for share in ((0.0, 0.5), (0.5, 1.0))]
    found = [{at.person for at in select(half)} for half in halves]
    assert found[0] | found[1] == {"p0", "p1", "p2"}
    assert not found[0] & found[1]


def test_a_group_without_slices(write, tmp_path):
    group = {"name": "empty", "scans": [str(tmp_path)]}
    with pytest.raises(InputError):
        cases.tasks(read_config(write(groups=[group])))


def test_keys_differ(write):
    config = read_config(write(maps=["espirit", "exact"], draws=2))
    keys = [task.key for task in cases.tasks(config)]
    assert len(set(keys)) == len(keys) == 6 * 2 * 2 * 2


def test_equal_keys_are_refused(write, heads, tmp_path):
    """Two people whose files and folders have the same names; and a file that is given twice."""
    files = [tmp_path / person / "anat" / "T1w.npz" for person in "AB"]
    for file, source in zip(files, sorted(heads.iterdir()), strict=True):
        file.parent.mkdir(parents=True)
        file.write_bytes(source.read_bytes())
    images = [{"name": f"brains {i}", "images": [str(file)], "coils": 4} for i, file in enumerate(files)]
    assert len(cases.tasks(read_config(write(groups=images)))) == 2 * 3 * 2  # groups of their own
    together = {"name": "brains", "images": [str(file) for file in files], "coils": 4}
    twice = images[1] | {"images": [str(files[1]), str(files[1])]}
    for group, named in ((together, files), (twice, files[1:])):
        with pytest.raises(InputError) as error:
            cases.tasks(read_config(write(groups=[group])))
        assert (error.value.field, error.value.path) == (f"groups.{group['name']}", str(files[1]))
        assert all(str(file) in error.value.message for file in named)
    with pytest.raises(InputError):
        cases.tasks(read_config(write(accelerations=[2, 2])))


@pytest.mark.parametrize(
    "change",
    [
        {"noise": 0.2},
        {"coils": 6},
        {"anatomy": "torso"},
        {"lines": "equispaced"},
        {"counting": "excluded"},
        {"acs": {2: 12}},
        {"side": 36},
    ],
)
def test_the_origin_is_another_where_the_data_are_others(write, heads, change):
    """The key is the same; and the origin, for scans that do not depend on what is changed."""
    group = {"name": "heads", "images": [str(heads)], "coils": 4}
    (before, *_), (after, *_) = (cases.tasks(read_config(write(groups=[g]))) for g in (group, group | change))
    assert before.key == after.key
    assert before.origin != after.origin
    kspaces = [task.make().kspace for task in (before, after)]
    assert kspaces[0].shape != kspaces[1].shape or not torch.equal(*kspaces)
    other = cases.tasks(read_config(write(groups=[group | {"limit": 1, "acs": {8: 4}, "noise": 0.01}])))
    assert other[0].origin == before.origin


def test_the_origin_of_measured_scans_has_no_settings_of_simulations(write, tmp_path):
    full = upmri.simulate(upmri.demo.brain()[:1, ::2, ::2], coils=4, acceleration=1, acs=0)
    path = full.save(tmp_path / "scan.h5")
    group = {"name": "real", "scans": [str(path)]}
    changes = ({}, {"noise": 0.2, "coils": 6}, {"lines": "equispaced"})
    first, same, other = (cases.tasks(read_config(write(groups=[group | c])))[0] for c in changes)
    assert first.origin == same.origin != other.origin


def test_pictures_are_spread_over_a_group(write):
    config = read_config(write(accelerations=[2], shown=2))
    tasks = cases.tasks(config)
    kept = cases.with_pictures(config, tasks)
    assert [index for index, task in enumerate(tasks) if task.key in kept] == [1, 4]
