"""`kill -9` at random moments of the commands that write: nothing is torn, and the next run leaves nothing behind.

Each command runs on tiny data in a process of its own, is killed with all that it started, and runs again. `make soak`
has three moments of each command, or as many as ``UPMRI_MOMENTS`` says; other draws than those of the last time with
``UPMRI_SEED``. `make test` has moments of `train` and `benchmark` in ``tests/training/test_loop.py`` and
``tests/evaluation/benchmark/test_run.py``, and of what writes all files in ``tests/formats/test_leftovers.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pydicom
import pytest
import torch
from safetensors.torch import load_file

import upmri
from upmri import formats
from upmri.evaluation.benchmark.run import DATABASE
from upmri.evaluation.benchmark.store import Store
from upmri.methods.upmri_objective import UpmriObjective
from upmri.weights.files import save_weights

PATIENCE = 240.0  # seconds after which a failing test stops to wait
MOMENTS = int(os.environ.get("UPMRI_MOMENTS", "3"))
SEED = int(os.environ.get("UPMRI_SEED", "0"))
SHORTER = 0.7  # times the wait, after a command was over before it was killed
Contents = dict[str, object]

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="processes and their memory are Linux's")


# --- running and killing ----------------------------------------------------------------------------------------------


@pytest.fixture
def start(popen, tmp_path):
    """``start(words)``: a command in a group of its own, so that all it starts is killed with it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UPMRI_")}

    def begin(words: list[str]) -> subprocess.Popen[str]:
        return popen(
            [sys.executable, "-m", "upmri", *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True, env=environment | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    return begin


@pytest.fixture
def finish(start):
    """``finish(words, code=0)``: what a command that runs to its end writes to stderr."""

    def run(words: list[str], code: int = 0) -> str:
        process = start(words)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, err
        return err

    return run


def kill(process: subprocess.Popen[str]) -> bool:
    """Kill the whole group; return whether it was still at work."""
    running = process.poll() is None
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, -signal.SIGKILL)
    return process.returncode == -signal.SIGKILL


def names(folder: Path) -> set[str]:
    """Every name below a folder; `os.walk` passes over folders that another process removes meanwhile."""
    return {f"{place}/{name}" for place, folders, files in os.walk(folder) for name in (*folders, *files)}


def wait_at_random(process: subprocess.Popen[str], output: Path, longest: float, dice: random.Random) -> None:
    """Wait for any moment of the run or, every second time, for one after it began to write."""
    if dice.random() < 0.5:
        time.sleep(dice.uniform(0, longest))
        return
    until = time.monotonic() + PATIENCE
    before = names(output)
    while process.poll() is None and names(output) <= before:
        assert time.monotonic() < until
        time.sleep(0.002)
    time.sleep(dice.uniform(0, 0.2 * longest))


def orphans(before: set[str]) -> set[str]:
    """Shared memory that is new and that no process has mapped."""
    new = {path.name for path in Path("/dev/shm").iterdir()} - before
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text() if new else ""
        except OSError:  # it has ended, or is another user's
            continue
        new -= {name for name in new if f"/dev/shm/{name}" in text}
    return new


@pytest.fixture
def shared_memory():
    """No shared memory is left behind."""
    before = {path.name for path in Path("/dev/shm").iterdir()}
    yield
    until = time.monotonic() + 10
    while (left := orphans(before)) and time.monotonic() < until:
        time.sleep(0.2)
    assert left == set()


# --- what a folder holds ----------------------------------------------------------------------------------------------


def tensors(path: Path) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(load_file(path).items()):
        found.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def content(path: Path) -> object:
    """What a file holds that is the same in every run: no times, no numbers of processes, no unique numbers."""
    match path.suffix or path.name:
        case ".dcm":
            return pydicom.dcmread(path).pixel_array.tobytes()
        case ".h5":
            return formats.load_reconstruction(path).image.numpy().tobytes()
        case ".safetensors":
            return tensors(path)
        case ".jsonl":
            entries = map(json.loads, path.read_text().splitlines())
            return [{key: value for key, value in entry.items() if key != "seconds"} for entry in entries]
        case ".sqlite":
            store = Store(path)
            rows = [replace(row, seconds=0.0) for row in store.rows()]
            store.close()
            return rows
        case ".lock" | ".md" | ".csv" | ".html" | ".png" | ".json":
            return None
    return path.read_bytes()


def contents(folder: Path) -> Contents:
    """Every file, hidden ones too, with what it holds."""
    return {str(path.relative_to(folder)): content(path) for path in folder.rglob("*") if path.is_file()}


def check_not_torn(folder: Path, whole: Contents) -> None:
    """Whatever has the name of a result is that result, complete."""
    for path in folder.glob("[!.]*"):
        names = [name for name in whole if Path(name).parts[0] == path.name]
        assert names, path
        held = (
            {f"{path.name}/{name}": held for name, held in contents(path).items()}
            if path.is_dir()
            else {path.name: content(path)}
        )
        assert held == {name: whole[name] for name in names}


# --- recon ------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.usefixtures("shared_memory")
def test_recon(tmp_path, scan, start, finish):
    scans = [f"scan{number}.h5" for number in range(8)]
    for name in scans:
        shutil.copy(tmp_path / "scan.h5", tmp_path / name)
    dice, whole, longest, killed = random.Random(SEED), {}, {}, 0
    while killed < MOMENTS:
        target = ("many", "file/x.h5", "series/x.dcm")[killed % 3]
        out = tmp_path / target.split("/")[0]
        read = [*scans, "--slices", "0"] if target == "many" else ["scan.h5"]
        words = ["recon", *read, "-o", target, "-m", "sense", "--overwrite", "--quiet", "--device", "cpu"]
        if target not in whole:
            out.mkdir()
            begun = time.monotonic()
            finish(words)
            longest[target], whole[target] = time.monotonic() - begun, contents(out)
        elif dice.random() < 0.5:  # else the results of the last time are replaced
            shutil.rmtree(out)
            out.mkdir()
        process = start(words)
        wait_at_random(process, out, longest[target], dice)
        if kill(process):
            killed += 1
        else:
            longest[target] *= SHORTER
        check_not_torn(out, whole[target])
        finish(words)
        assert contents(out) == whole[target]


# --- train ------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.usefixtures("shared_memory")
def test_train(tmp_path, recipe, start, finish):
    steps = ["--set", "steps=20", "--set", "save_every=2", "--set", "log_every=1", "--quiet"]
    words = ["train", "small.yaml", *steps]
    begun = time.monotonic()
    finish([*words, "--set", "output=whole"])
    longest, whole, run = time.monotonic() - begun, contents(tmp_path / "whole"), tmp_path / "run"
    dice, kills = random.Random(SEED), 0
    while kills < MOMENTS:
        run.mkdir()
        process = start(words)
        wait_at_random(process, run, longest, dice)
        killed = kill(process)
        kills += killed
        longest *= 1 if killed else SHORTER
        checkpoint = run / "checkpoint.safetensors"
        if checkpoint.exists():
            tensors(checkpoint)  # complete
            finish([*words, "--resume"])
        elif (run / ".lock").exists():
            assert killed
            finish([*words, "--resume"])  # begins again
        else:
            assert killed
            assert finish([*words, "--resume"], code=2).count("\n") == 1  # says that nothing was begun
            finish(words)
        assert contents(run) == whole
        shutil.rmtree(run)


# --- adapt ------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.usefixtures("shared_memory")
def test_adapt(tmp_path, start, finish):
    """The weights appear complete, and the folder of the run is gone when they do."""
    objective = UpmriObjective(cascades=1, width=4)
    network = objective.network()
    torch.nn.init.normal_(network.network.out.weight, std=0.3)
    save_weights(tmp_path / "poor.safetensors", network.state_dict(), "upmri", objective, {"name": "poor"})
    (tmp_path / "scans").mkdir()
    for number in range(3):
        scan = upmri.simulate(upmri.demo.brain()[:1, 24:72, 24:72], coils=4, acceleration=2, seed=number)
        scan.save(tmp_path / "scans" / f"{number}.h5")
    more = ["--begin", "poor.safetensors", "--steps", "20", "--device", "cpu", "--quiet"]
    (tmp_path / "whole").mkdir()
    begun = time.monotonic()
    finish(["adapt", "scans", "-o", "whole/site.safetensors", *more])
    longest, whole, out = time.monotonic() - begun, contents(tmp_path / "whole"), tmp_path / "out"
    assert list(whole) == ["site.safetensors"]
    dice, kills = random.Random(SEED), 0
    words = ["adapt", "scans", "-o", "out/site.safetensors", "--overwrite", *more]
    while kills < MOMENTS:
        out.mkdir()
        process = start(words)
        wait_at_random(process, out, longest, dice)
        killed = kill(process)
        kills += killed
        longest *= 1 if killed else SHORTER
        if (out / "site.safetensors").exists():
            assert content(out / "site.safetensors") == whole["site.safetensors"]
        resumes = (out / "site.run" / "checkpoint.safetensors").exists()
        finish([*words, *(["--resume"] if resumes else [])])
        assert contents(out) == whole
        shutil.rmtree(out)


# --- benchmark --------------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.usefixtures("shared_memory")
def test_benchmark(tmp_path, start, finish):
    np.savez(tmp_path / "heads.npz", image=upmri.demo.brain()[:, 24:72, 24:72])
    (tmp_path / "bench.yaml").write_text(
        "output: out\ngroups: [{name: heads, images: [heads.npz], coils: 4}]\naccelerations: [2, 2.5]\n"
        "entries: [{method: zero-filled, label: upmri}, {method: sense, choices: {damping: [0.001, 0.03]}}]\n"
    )
    words, dice = ["benchmark", "bench.yaml", "--quiet", "--device", "cpu"], random.Random(SEED)
    begun = time.monotonic()
    finish([*words, "-o", "whole"])
    longest, whole, out = time.monotonic() - begun, contents(tmp_path / "whole"), tmp_path / "out"
    assert DATABASE in whole
    kills = 0
    while kills < MOMENTS:
        out.mkdir()
        process = start(words)
        wait_at_random(process, out, longest, dice)
        killed = kill(process)
        kills += killed
        longest *= 1 if killed else SHORTER
        finish(words)
        assert contents(out) == whole
        shutil.rmtree(out)


# --- serve ------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for(process: subprocess.Popen[str], log: Path, event: str) -> None:
    until = time.monotonic() + PATIENCE
    while not re.search(f'"event": ?"{event}"', log.read_text() if log.exists() else ""):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.soak
@pytest.mark.usefixtures("shared_memory")
def test_serve(tmp_path, scan, start, finish):
    """The client says in one line that the server is gone; the next server, at the same port, serves the same image."""
    dice, out, log, port = random.Random(SEED), tmp_path / "out", tmp_path / "log.jsonl", free_port()
    serve = ["serve", "--port", str(port), "-m", "sense", "--workers", "1", "--device", "cpu", "--log", str(log)]
    stream = ["stream", "scan.h5", "--to", f"127.0.0.1:{port}", "-m", "sense", "-o", "out/x.h5", "--quiet"]
    out.mkdir()
    whole, longest = None, 0.0
    for _ in range(MOMENTS):
        server = start(serve)
        wait_for(server, log, "worker_ready")
        if whole is None:
            begun = time.monotonic()
            finish(stream)
            whole, longest = contents(out), time.monotonic() - begun
            (out / "x.h5").unlink()
        client = start(stream)
        time.sleep(dice.uniform(0, longest))
        assert kill(server)
        _, err = client.communicate(timeout=PATIENCE)
        assert client.returncode in (0, 2), err
        assert err.count("\n") == (client.returncode == 2), err
        assert contents(out) == (whole if client.returncode == 0 else {})
        (out / "x.h5").unlink(missing_ok=True)
        log.unlink()
        server = start(serve)
        wait_for(server, log, "worker_ready")
        finish(stream)
        assert contents(out) == whole
        (out / "x.h5").unlink()
        kill(server)
        log.unlink()
