"""From a configuration to a store: everything once, whatever happens on the way."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError, cli, weights
from upmri.evaluation.benchmark import cases
from upmri.evaluation.benchmark.plan import read_config
from upmri.evaluation.benchmark.run import DATABASE, TRUTH, run, variants
from upmri.evaluation.benchmark.store import Store
from upmri.methods.upmri import UpmriLesson
from upmri.physics.fourier import fft2c
from upmri.physics.masks import calibration_region, seed_for
from upmri.training.selection import select


def results(folder):
    """All that must not depend on when and by whom it was computed."""
    store = Store(folder / DATABASE)
    rows = [replace(row, seconds=0.0) for row in store.rows()]
    store.close()
    return rows


def benchmark(*words):
    return [sys.executable, "-m", "upmri", "benchmark", *map(str, words), "--quiet", "--device", "cpu"]


@pytest.fixture
def once(write, tmp_path):
    config = read_config(write())
    run(config, tmp_path / "once", device="cpu").close()
    return config, results(tmp_path / "once")


def test_everything_is_there_once(once):
    config, rows = once
    tasks, wanted = cases.tasks(config), variants(config)
    assert len(tasks) == 2 * 3 * 2
    assert len(wanted) == 1 + 2 + 1 + 1
    assert {(row.scan, row.variant) for row in rows} == {(t.key, v.key) for t in tasks for v in wanted}
    assert len(rows) == len(tasks) * len(wanted)
    assert {row.person for row in rows} == {"person0", "person1"}


def test_a_cell_can_be_had_again(once, tmp_path):
    """From what the store says of it alone."""
    config, rows = once
    by_key, store = {task.key: task for task in cases.tasks(config)}, Store(tmp_path / "once" / DATABASE)
    for row in rows[::7]:
        told, scan = store.settings(row.variant), by_key[row.scan].make()
        assert told.pop("maps_off") == 0
        scan = replace(scan, noise=told.pop("told_noise") * scan.noise)
        rec = upmri.reconstruct(scan, told.pop("method"), device="cpu", **told)
        assert upmri.evaluate(rec, scan.reference)["psnr"] == pytest.approx(row.psnr, abs=1e-3)
    store.close()


def test_what_is_done_is_not_done_again(once, tmp_path, monkeypatch):
    config, rows = once
    monkeypatch.setattr(cases.Task, "make", lambda *_, **__: pytest.fail("made again"))
    run(config, tmp_path / "once", device="cpu").close()
    assert results(tmp_path / "once") == rows


def test_pictures_of_some_are_kept(once, tmp_path):
    config, _ = once
    store = Store(tmp_path / "once" / DATABASE)
    kept = cases.shown(config, cases.tasks(config))
    assert len(kept) == 2  # one slice, two accelerations
    for task in cases.tasks(config):
        truth = store.picture(task.key, TRUTH)
        assert (truth is not None) == (task.key in kept)
        if truth is not None:
            reference = task.make().reference[0]
            assert np.iscomplexobj(truth)
            assert np.allclose(truth, reference / reference.abs().max(), atol=1e-3)
    store.close()


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
    with pytest.raises(InputError, match="maps_off: .* has no slice 7 from slice 0"):
        first.neighbour(7)
    entries = [{"method": "sense", "label": "upmri"}, {"method": "sense", "label": "off", "maps_off": 1}]
    config = read_config(write(groups=[group | {"limit": 1}], entries=entries, accelerations=[2]))
    run(config, tmp_path / "off", device="cpu").close()
    keys = [variant.key for variant in variants(config)]
    straight, off = sorted(results(tmp_path / "off"), key=lambda row: keys.index(row.variant))
    rec = upmri.reconstruct(replace(scan, maps=other.maps), "sense", device="cpu")
    assert off.psnr == pytest.approx(upmri.evaluate(rec, scan.reference)["psnr"], abs=1e-6)
    assert off.psnr < straight.psnr


def test_other_weights_are_another_variant(write, tmp_path, monkeypatch):
    """Also where the method chooses among those at hand: what is kept of the old is not taken for the new."""
    config = read_config(write(entries=[{"method": "upmri"}, {"method": "sense"}]))
    monkeypatch.delenv("UPMRI_MODELS", raising=False)
    shipped = [variant.key for variant in variants(config)]
    lesson = UpmriLesson(cascades=1, width=4)
    path = tmp_path / "models" / "mine.safetensors"
    path.parent.mkdir()
    monkeypatch.setenv("UPMRI_MODELS", str(path.parent))
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.save(path, lesson.network().state_dict(), "upmri", lesson, {"name": "mine"})
        found.append([variant.key for variant in variants(config)])
    assert found[0] == found[1]
    assert len({shipped[0], found[0][0], found[2][0]}) == 3
    assert shipped[1] == found[0][1] == found[2][1]


def test_which_scan_failed_is_told(write, tmp_path):
    with pytest.raises(InputError, match="heads heads/person0.npz 0 8x espirit: kspace: ESPIRiT needs"):
        run(read_config(write(accelerations=[8])), tmp_path / "results", device="cpu")


def test_wrong_settings_are_told_before_the_work(write, capsys, monkeypatch):
    path = write(entries=[{"method": "sense", "label": "upmri", "settings": {"speed": 3}}])
    monkeypatch.setattr(sys, "argv", ["upmri", "benchmark", str(path)])
    with pytest.raises(SystemExit):
        cli.main()
    assert "entries: upmri: speed: not a setting of sense" in capsys.readouterr().err


def test_the_command_writes_tables_and_draws_them_again(write, tmp_path):
    path = write(accelerations=[2])
    subprocess.run(benchmark(path), check=True)
    folder = tmp_path / "results"
    names = {p.name for p in folder.iterdir()}
    assert {"table.md", "table.csv", DATABASE, "heads_2x_espirit_person1_0.png"} <= names
    table = (folder / "table.md").read_text()
    (folder / "table.md").unlink()
    subprocess.run([*benchmark(path), "--redraw"], check=True)
    assert (folder / "table.md").read_text() == table
    assert "| nothing | sense |" in table
    nowhere = [*benchmark(path, "-o", tmp_path / "no"), "--redraw"]
    failed = subprocess.run(nowhere, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "no results to draw" in failed.stderr


def test_several_processes_share_the_work(once, write, tmp_path):
    _, rows = once
    crowd = [subprocess.Popen(benchmark(write(), "-o", tmp_path / "shared")) for _ in range(2)]
    assert [process.wait() for process in crowd] == [0, 0]
    assert results(tmp_path / "shared") == rows


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.soak)])
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


def test_the_command_measures_times_instead(write, tmp_path, monkeypatch, capsys):
    path = write(entries=[{"method": "zero-filled", "label": "upmri"}])
    monkeypatch.setattr(sys, "argv", ["upmri", "benchmark", str(path), "--timing", "--device", "cpu"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "results" / f"timing.{s}") for s in ("md", "csv")]
    text = (tmp_path / "results" / "timing.md").read_text()
    assert text.startswith("### 320×320, 16 coils, 4×, CPU, ")
    assert "| upmri | – |" in text
