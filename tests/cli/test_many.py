"""`upmri recon` on folders: shards, several processes, and one summary."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

import upmri
from upmri.cli.recon_join import JoinWork
from upmri.cli.recon_work import ReconWork
from upmri.cluster.all_tasks import run_tasks
from upmri.cluster.engine import Serial
from upmri.cluster.perform import FileTask
from upmri.methods.upmri_objective import UpmriObjective
from upmri.weights.files import save_weights


@pytest.fixture
def folder(tmp_path):
    """Five scans in two folders, and a file that is none."""
    image = upmri.demo.brain()[:1, ::2, ::2]
    for number in range(5):
        place = tmp_path / "in" / f"p{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        upmri.simulate(image, coils=4, acceleration=2, seed=number).save(place / f"s{number}.h5")
    (tmp_path / "in" / "p0" / "bad.h5").write_bytes(b"no scan")
    return tmp_path / "in"


def images(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.nii.gz"))}


def test_shards_and_merge(run, folder, tmp_path, monkeypatch):
    run("recon", "in", "-m", "sense", "-o", "whole", "-q", code=2)
    assert len(images(tmp_path / "whole")) == 5
    run("recon", "in", "-m", "sense", "-o", "out", "--shard", "2/2", code=0)
    done = run("recon", "in", "-m", "sense", "-o", "out", "--merge", code=2)
    assert done.stderr.count("is not done yet") == 3
    for key, value in {"ID": 7, "COUNT": 2, "MIN": 7}.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{key}", str(value))
    done = run("recon", "in", "-m", "sense", "-o", "out", "--shard", "auto", code=2)
    assert "2 done, 1 bad" in done.stdout
    assert "bad.h5" in done.stderr
    done = run("recon", "in", "-m", "sense", "-o", "out", "--merge", code=2)
    assert "5 results, 1 bad" in done.stdout
    assert images(tmp_path / "out") == images(tmp_path / "whole")
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    assert sum("error" in row for row in rows) == 1
    assert sum("psnr" in row for row in rows) == 5
    done = run("recon", "in", "-m", "sense", "-o", "out", "--shard", "1/1", code=2)
    assert "5 finished before" in done.stdout
    done = run("recon", "in", "-m", "zero-filled", "-o", "out", "--shard", "1/1", code=2)
    assert done.stderr.count("exists already, from other input or settings") == 5
    done = run("recon", "in", "-m", "zero-filled", "-o", "out", "--shard", "1/1", "--overwrite", "--json", code=2)
    assert done.stdout == ""  # the table is that of --merge


def test_other_weights_are_other_content(run, folder, tmp_path, apples):
    words = ("recon", "in/p1", "-m", "upmri", "--model", "m.safetensors", "-o", "out", "--shard", "1/1")
    Path("m.safetensors").write_bytes(apples.read_bytes())
    assert "2 done" in run(*words).stdout
    assert "2 finished before" in run(*words).stdout
    data = bytearray(apples.read_bytes())
    data[-2:] = b"\x00\x00"
    Path("m.safetensors").write_bytes(bytes(data))
    assert "exists already" in run(*words, code=2).stderr


def test_a_folder_of_images_is_simulated(run, tmp_path):
    for number in range(3):
        (tmp_path / "images" / f"p{number}").mkdir(parents=True)
        np.save(tmp_path / "images" / f"p{number}" / "brain.npy", upmri.demo.brain()[:1, ::2, ::2])
    words = ("simulate", "images", "--coils", "4", "--accel", "2")
    assert "3 done" in run(*words, "scans").stdout
    scans = [upmri.load(tmp_path / "scans" / f"p{number}" / "brain.h5") for number in range(3)]
    assert not np.array_equal(scans[0].kspace, scans[1].kspace)  # other coils and lines
    run(*words, "again", "--shard", "1/2")
    assert (tmp_path / "again" / "p2" / "brain.h5").exists()
    assert not (tmp_path / "again" / "p1" / "brain.h5").exists()
    again = upmri.load(tmp_path / "again" / "p2" / "brain.h5")
    assert np.array_equal(again.kspace, scans[2].kspace)


def test_slices_are_prepared_by_a_cluster(run, recipe, tmp_path):
    run("train", "small.yaml", "--prepare", "-q")
    made = {p.name: p.read_bytes() for p in (tmp_path / "run" / "cache").iterdir()}
    assert len(made) == 3
    done = run("train", "small.yaml", "--set", "cache=other", "--prepare", "--cluster", "local:1")
    assert "other: 3 slices" in done.stdout
    assert {p.name: p.read_bytes() for p in (tmp_path / "other").iterdir()} == made


def test_training_itself_takes_no_cluster(run, recipe, one_line):
    one_line(run("train", "small.yaml", "--cluster", "local", code=2), "--prepare", "torchrun")


def test_merge_without_records(run, tmp_path, one_line):
    one_line(run("recon", "--merge", "-o", tmp_path, code=2), "no records of shards")


def test_wrong_words(run, folder, one_line):
    one_line(run("recon", code=2), "SCAN")
    one_line(run("recon", "in", "-o", "o", "--shard", "3/2", code=2), "--shard")
    one_line(run("recon", "in", "-o", "o", "--shard", "1/2", "--cluster", "local", code=2), "got both")
    one_line(run("recon", "in", "-o", "o", "--cluster", "apple", code=2), "--cluster", "local, slurm:FILE.yaml")
    one_line(run("recon", "in", "-o", "o", "--device", "cpu,nonsense", code=2), "nonsense")
    one_line(run("recon", "in", "-o", "x.npy", "--shard", "1/2", code=2), "--out")


@pytest.mark.parametrize("missing", ["distributed", "dask_jobqueue", "cryptography"])
def test_without_the_extra_one_line_says_what_to_install(run, folder, one_line, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    one_line(run("recon", "in", "-o", "out", "--cluster", "local", code=2), "pip install 'upmri[cluster]'")


def test_a_cluster_gives_the_same_files_as_one_process(run, folder, tmp_path, apples):
    run("recon", "in", "--model", apples, "-o", "whole", "-q", code=2)
    done = run("recon", "in", "--model", apples, "-o", "out", "--cluster", "local:2", "--device", "cpu", code=2)
    assert "5 done, 1 bad" in done.stdout
    assert "5 results, 1 bad; results.json, results.csv, index.html" in done.stdout
    assert images(tmp_path / "out") == images(tmp_path / "whole")


@pytest.mark.parametrize(("words", "again"), [([], "the same command does"), (["--overwrite"], "without --overwrite")])
def test_after_an_interruption_the_rest_is_done(run, folder, tmp_path, monkeypatch, one_line, words, again):
    whole = ReconWork.reconstruct

    def interrupted(self, path, *rest, **options):
        if path.name == "s1.h5":
            raise KeyboardInterrupt
        return whole(self, path, *rest, **options)

    monkeypatch.setattr(ReconWork, "reconstruct", interrupted)
    (folder / "p0" / "bad.h5").unlink()
    command = ["recon", "in", "-m", "sense", "-o", "out", "--shard", "1/1"]
    one_line(run(*command, *words, code=130), "out: interrupted", "what is done is kept", again)
    assert len(images(tmp_path / "out")) == 3
    monkeypatch.setattr(ReconWork, "reconstruct", whole)
    assert "2 done, 3 finished before" in run(*command).stdout


@pytest.mark.soak
def test_ctrl_c_ends_a_cluster_with_one_line_and_status_130(folder, tmp_path, popen):
    words = [sys.executable, "-m", "upmri", "recon", "in", "-o", "out", "--cluster", "local:1", "--device", "cpu"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    client = popen(words, cwd=tmp_path, start_new_session=True, **pipes)
    until = time.monotonic() + 120
    while not list((tmp_path / "out").glob("p?/*.nii.gz")) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(client.pid, signal.SIGINT)  # as a terminal does
    said = client.communicate(timeout=120)[1].splitlines()
    assert client.returncode == 130
    assert said[-1].endswith("the same command does the rest")
    assert all("bad.h5" in line for line in said[:-1])


@pytest.mark.soak
def test_three_shards_that_overlap_do_nothing_twice(folder, tmp_path, popen):
    words = [sys.executable, "-m", "upmri", "recon", "in", "-m", "sense", "-o", "out", "--shard"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [popen([*words, part], cwd=tmp_path, **pipes) for part in ("1/2", "2/2", "1/1")]
    said = [process.communicate(timeout=300)[0] for process in started]
    done = [int(text.split(": ")[1].split(" done")[0]) for text in said]
    assert sum(done) == 5, said
    assert len(images(tmp_path / "out")) == 5


def small_weights(folder):
    """Weights of a small network that was not trained, with a gain of its draws."""
    objective = UpmriObjective(cascades=1, width=4)
    card = {"name": "small", "spread": {"radius": [5.0, 40.0], "gain": [1.0, 1.0], "exponent": [0.0, 0.0]}}
    return save_weights(folder / "small.safetensors", objective.network().state_dict(), "upmri", objective, card)


@pytest.mark.parametrize("samples", [1, 2])
def test_ranges_of_slices_give_the_same_image(tmp_path, samples):
    image = np.repeat(upmri.demo.brain()[:1, ::4, ::4], 34, 0) * np.linspace(1, 2, 34)[:, None, None]
    upmri.simulate(image, coils=3, acceleration=2, seed=1).save(tmp_path / "scan.h5")
    settings = {"samples": None} if samples == 1 else {"samples": samples, "model": str(small_weights(tmp_path))}
    method = "sense" if samples == 1 else "upmri"
    work = ReconWork(method=method, settings=settings, limit=1 << 30, device="cpu", split_above=0)
    rec = replace(work, split_above=None).reconstruct(tmp_path / "scan.h5", tmp_path / "whole.h5")
    (tmp_path / "out").mkdir()
    task = FileTask("scan", (str(tmp_path / "scan.h5"),), str(tmp_path / "out" / "scan.h5"))
    report = run_tasks(Serial(), work, [task], tmp_path / "out", joiner=JoinWork(work))
    assert report.counts == {"done": 1}, report.wrong
    made = upmri.formats.load_reconstruction(tmp_path / "out" / "scan.h5")
    assert np.array_equal(made.image, rec.image)
    if samples > 1:
        assert np.array_equal(made.std, rec.std)
        assert np.array_equal(made.samples, rec.samples)
    assert made.settings == rec.settings
    assert (made.spacing, made.meta) == (rec.spacing, rec.meta)
    assert not [p for p in (tmp_path / "out" / ".upmri" / "parts").rglob("*") if p.is_file()]


@pytest.mark.soak
def test_a_killed_client_takes_its_workers_with_it_and_the_next_one_does_the_rest(folder, tmp_path):
    words = [sys.executable, "-m", "upmri", "recon", "in", "-o", "out", "--cluster", "local:2", "--device", "cpu"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        try:
            until = time.monotonic() + 120
            # Only the named places: temporary folders beside them come and go while the client works.
            while not list((tmp_path / "out").glob("p?/*.nii.gz")) and time.monotonic() < until:
                time.sleep(0.02)
            workers = psutil.Process(client.pid).children(recursive=True)
        finally:
            client.kill()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert "5 results, 1 bad" in done.stdout, done.stderr
    assert len(images(tmp_path / "out")) == 5


@pytest.mark.soak
def test_dask_on_slurm(folder, tmp_path, monkeypatch):
    """The job script that dask-jobqueue submits is run here by a `sbatch` of our own."""
    (tmp_path / "bin").mkdir()
    for name, text in {
        "sbatch": 'echo $$ >> "$JOBS"; cp "$1" "$JOBS.$$"; setsid bash "$JOBS.$$" > "$JOBS.log" 2>&1 &\n'
        'echo "Submitted batch job $$"',
        "scancel": "true",
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("JOBS", str(tmp_path / "jobs"))
    (tmp_path / "slurm.yaml").write_text(
        "jobs: 2\nmemory: 2GB\nwalltime: '00:10:00'\n"
        "scheduler_options: {host: 127.0.0.1}\nworker_extra_args: [--host, 127.0.0.1]\n"
    )
    words = [sys.executable, "-m", "upmri", "recon", "in", "-m", "sense", "-o", "out", "--cluster", "slurm:slurm.yaml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "5 results, 1 bad" in done.stdout, done.stderr + (tmp_path / "jobs.log").read_text()
    assert len((tmp_path / "jobs").read_text().split()) == 2
