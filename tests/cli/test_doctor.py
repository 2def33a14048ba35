"""`upmri doctor`: its lines, its JSON and its exit status."""

import json

import pytest

from upmri.cli import diagnosis
from upmri.cli.installation import Diagnosis, Finding, Package


@pytest.fixture
def found(monkeypatch):
    made = Diagnosis(cores=4, threads=2, cuda="13.0", memory_gib=16.0, free_memory_gib=8.0, weights=["brain"])
    made.packages = [Package("torch", "2.6", "2.7"), Package("h5py", "3.11", None)]
    made.extras = {"siemens": [Package("twixtools", "0.24", None)]}
    made.devices = [
        {"name": "G", "gib": 80.0, "free_gib": 79.0, "error": None, "seconds": 0.013, "first_seconds": 8.21}
    ]
    made.compile_cache, made.cluster = "can be written, 5.0 GiB free", "a worker of this machine works; Slurm found"
    monkeypatch.setattr(diagnosis, "examine", lambda: made)
    return made


def test_lines(run, found):
    shown = run("doctor").stdout
    for part in (
        "torch 2.7, h5py missing",
        "4 cores, torch uses 2 threads",
        "G, 79 of 80 GiB free, reconstructs a slice in 0.01 s, the first in 8.2 s",
        "can be written, 5.0 GiB free",
        "a worker of this machine works; Slurm found",
        "8 of 16 GiB free",
        "pip install 'upmri[siemens]'",
        "Everything that reconstruction needs is installed.",
    ):
        assert part in shown


def test_findings_are_warnings_and_only_an_essential_one_is_exit_1(run, found):
    found.problems = [Finding("UPMRI_DATA is wrong", "unset it", essential=False)]
    assert run("doctor").stderr == "upmri: UPMRI_DATA is wrong; unset it\n"
    found.problems.append(Finding("h5py is missing", "pip install h5py"))
    done = run("doctor", code=1)
    assert done.stderr.splitlines()[1] == "upmri: h5py is missing; pip install h5py"
    assert "Everything" not in done.stdout
    shown = json.loads(run("doctor", "--json", code=1).stdout)
    assert not shown["healthy"]
    assert shown["problems"][1] == {"what": "h5py is missing", "remedy": "pip install h5py", "essential": True}
