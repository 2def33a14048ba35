"""From a configuration to a database: every result once, also after crashes."""

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.evaluation.benchmark import cases
from upmri.evaluation.benchmark.by_workers import spread_benchmark
from upmri.evaluation.benchmark.plan import read_config
from upmri.evaluation.benchmark.present import present_rows
from upmri.evaluation.benchmark.run import DATABASE, TRUTH, run_benchmark, variants
from upmri.evaluation.benchmark.store import Store
from upmri.methods.upmri_objective import UpmriObjective
from upmri.weights.files import save_weights


def results(folder):
    """All rows, without the times, which differ between runs."""
    store = Store(folder / DATABASE)
    rows = [replace(row, seconds=0.0) for row in store.rows()]
    store.close()
    return rows


def benchmark(*words):
    return [sys.executable, "-m", "upmri", "benchmark", *map(str, words), "--quiet", "--device", "cpu"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The place of results that are made once for all tests."""
    return tmp_path_factory.mktemp("done") / "once"


@pytest.fixture
def once(write, tmp_path, done):
    """The configuration and the rows of a benchmark; a copy of its results is in the folder ``once`` of the test."""
    config = read_config(write())
    if not done.exists():
        run_benchmark(config, done, device="cpu").close()
    shutil.copytree(done, tmp_path / "once")
    return config, results(tmp_path / "once")


def test_everything_is_there_once(once):
    config, rows = once
    tasks, wanted = cases.tasks(config), variants(config)
    assert len(tasks) == 2 * 3 * 2
    assert len(wanted) == 1 + 2 + 1 + 1
    assert {(row.scan, row.variant) for row in rows} == {(t.key, v.key) for t in tasks for v in wanted}
    assert len(rows) == len(tasks) * len(wanted)
    assert {row.person for row in rows} == {"person0", "person1"}


def test_a_result_can_be_reproduced(once, tmp_path):
    """From the facts in the database alone."""
    config, rows = once
    by_key, store = {task.key: task for task in cases.tasks(config)}, Store(tmp_path / "once" / DATABASE)
    for row in rows[::7]:
        settings, scan = store.settings(row.variant), by_key[row.scan].make()
        assert settings.pop("maps_off") == 0
        scan = replace(scan, noise=settings.pop("noise_factor") * scan.noise)
        rec = upmri.reconstruct(scan, settings.pop("method"), device="cpu", **settings)
        assert upmri.evaluate(rec, scan.reference)["psnr"] == pytest.approx(row.psnr, abs=1e-3)
    store.close()


def test_what_is_done_is_not_done_again(once, tmp_path, monkeypatch):
    config, rows = once
    monkeypatch.setattr(cases.Task, "make", lambda *_, **__: pytest.fail("made again"))
    run_benchmark(config, tmp_path / "once", device="cpu").close()
    assert results(tmp_path / "once") == rows


def as_sent(value):
    """What another process gets."""
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("spread", [False, True])
def test_scans_that_changed_are_computed_again(write, heads, tmp_path, spread):
    """As in a fresh folder; and what is set back is not computed again."""
    by_others = partial(spread_benchmark, run=lambda jobs: ((job, as_sent(job())) for job in jobs))
    run = by_others if spread else run_benchmark
    quiet, loud = (
        read_config(
            write(
                groups=[{"name": "heads", "images": [str(heads)], "coils": 4, "limit": 2, "noise": noise}],
                entries=[{"method": "zero-filled", "label": "upmri"}],
                accelerations=[2],
            )
        )
        for noise in (0.01, 0.02)
    )
    run(loud, tmp_path / "fresh", device="cpu").close()
    store = run(quiet, tmp_path / "both", device="cpu")
    before = store.rows()
    run(loud, tmp_path / "both", device="cpu").close()
    rows = [replace(row, seconds=0.0) for row in present_rows(store, cases.tasks(loud))]
    assert rows == results(tmp_path / "fresh")
    assert present_rows(store, cases.tasks(quiet)) == before
    store.close()


def test_pictures_of_some_are_kept(once, tmp_path):
    config, _ = once
    store = Store(tmp_path / "once" / DATABASE)
    kept = cases.with_pictures(config, cases.tasks(config))
    assert len(kept) == 2  # one slice, two accelerations
    for task in cases.tasks(config):
        truth = store.picture(task.key, TRUTH)
        assert (truth is not None) == (task.key in kept)
        if truth is not None:
            reference = task.make().reference[0]
            assert np.iscomplexobj(truth)
            assert np.allclose(truth, reference / reference.abs().max(), atol=1e-3)
    store.close()


def test_maps_of_a_neighbour_and_lines_at_equal_distances(write, heads, tmp_path):
    group = {"name": "heads", "images": [str(heads)], "coils": 4, "lines": "equispaced"}
    first, *_ = cases.tasks(read_config(write(groups=[group])))
    scan, other = first.make(), first.neighbour(1).make()
    sampled = scan.mask[0, 0].nonzero().flatten()
    assert (sampled.diff() <= 2).all()
    assert not torch.allclose(scan.maps, other.maps)
    assert torch.equal(scan.mask, other.mask)
    both = (scan.maps != 0).any(1) & (other.maps != 0).any(1)
    overlap = (scan.maps.conj() * other.maps).sum(1).abs()[both]
    assert overlap.mean() > 0.95  # the same array, another slice
    last = replace(first, slice=replace(first.slice, index=2))
    assert last.neighbour(1).slice.index == 1
    with pytest.raises(InputError) as error:
        first.neighbour(7)
    assert (error.value.field, error.value.path) == ("maps_off", str(first.slice.path))
    entries = [{"method": "sense", "label": "upmri"}, {"method": "sense", "label": "off", "maps_off": 1}]
    config = read_config(write(groups=[group | {"limit": 1}], entries=entries, accelerations=[2]))
    run_benchmark(config, tmp_path / "off", device="cpu").close()
    keys = [variant.key for variant in variants(config)]
    straight, off = sorted(results(tmp_path / "off"), key=lambda row: keys.index(row.variant))
    rec = upmri.reconstruct(replace(scan, maps=other.maps), "sense", device="cpu")
    assert off.psnr == pytest.approx(upmri.evaluate(rec, scan.reference)["psnr"], abs=1e-6)
    assert off.psnr < straight.psnr


def test_other_weights_are_another_variant(write, tmp_path, monkeypatch):
    """Also if the method chooses among all available weights: results of the old ones are not taken for the new."""
    config = read_config(write(entries=[{"method": "upmri"}, {"method": "sense"}]))
    monkeypatch.delenv("UPMRI_MODELS", raising=False)
    shipped = [variant.key for variant in variants(config)]
    objective = UpmriObjective(cascades=1, width=4)
    path = tmp_path / "models" / "mine.safetensors"
    path.parent.mkdir()
    monkeypatch.setenv("UPMRI_MODELS", str(path.parent))
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        save_weights(path, objective.network().state_dict(), "upmri", objective, {"name": "mine"})
        found.append([variant.key for variant in variants(config)])
    assert found[0] == found[1]
    assert len({shipped[0], found[0][0], found[2][0]}) == 3
    assert shipped[1] == found[0][1] == found[2][1]


def test_an_error_names_its_scan(write, tmp_path, heads):
    with pytest.raises(InputError) as error:
        run_benchmark(read_config(write(accelerations=[8])), tmp_path / "results", device="cpu")
    assert error.value.path == str(heads / "person0.npz")
    assert "kspace" in str(error.value)
    assert "heads heads/person0.npz 0 8x espirit" in error.value.message


def test_scans_that_cannot_be_used_do_not_stop_the_others(write, heads, tmp_path):
    """All three scans at 8×, where the maps have too few lines: the others have their results."""
    group = {"name": "heads", "images": [str(heads)], "coils": 4, "limit": 3}
    config = read_config(write(accelerations=[8, 2], groups=[group]))
    with pytest.raises(InputError, match="; 2 other scans failed, too"):
        run_benchmark(config, tmp_path / "results", device="cpu")
    found = results(tmp_path / "results")
    assert {row.acceleration for row in found} == {2.0}
    assert len(found) == 3 * len(variants(config))


def test_a_wrong_setting_names_its_entry(write):
    config = read_config(write(entries=[{"method": "sense", "label": "upmri", "settings": {"speed": 3}}]))
    with pytest.raises(InputError) as error:
        variants(config)
    assert error.value.field.startswith("entries.upmri")
    assert "speed" in str(error.value)


@pytest.mark.soak
def test_several_processes_share_the_work(once, write, tmp_path, popen):
    _, rows = once
    crowd = [popen(benchmark(write(), "-o", tmp_path / "shared")) for _ in range(2)]
    assert [process.wait() for process in crowd] == [0, 0]
    assert results(tmp_path / "shared") == rows


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_killed_at_random_it_ends_as_if_nothing_had_happened(once, write, tmp_path, kills):
    _, rows = once
    dice, command = random.Random(kills), benchmark(write(), "-o", tmp_path / "killed")
    for _ in range(kills):
        with subprocess.Popen(command) as process:
            deadline = time.monotonic() + 60
            while not (tmp_path / "killed" / DATABASE).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(dice.uniform(0, 0.4))
            os.kill(process.pid, signal.SIGKILL)
    subprocess.run(command, check=True)
    assert results(tmp_path / "killed") == rows
    assert json.loads(Store(tmp_path / "killed" / DATABASE)._base.execute("SELECT versions FROM variant").fetchone()[0])
