"""The trials of `upmri doctor`: what works, and what a broken machine gives."""

import pytest

from upmri.cli import trials
from upmri.cli.installation import Diagnosis, Package
from upmri.cli.probes import DEVICE


def with_device():
    return Diagnosis(devices=[{"name": "G", "gib": 80.0, "free_gib": 79.0, "error": None}])


def answers(monkeypatch, facts, end="its process ended with 1"):
    monkeypatch.setattr(trials, "run_code", lambda *_: (facts, end))


def test_a_device_that_reconstructs(monkeypatch):
    answers(monkeypatch, [{"error": None, "first_seconds": 9.0, "seconds": 0.1, "difference": 1e-3}])
    trials.try_devices(found := with_device())
    assert (found.devices[0]["seconds"], found.problems) == (0.1, [])


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        ([{"error": "RuntimeError: PTX of /home/somebody/x.cu"}], "PTX of …/x.cu"),
        ([{"error": None, "first_seconds": 9.0, "seconds": 0.1, "difference": 0.4}], "differs by 40.0%"),
        ([], "its process ended with 1"),
    ],
)
def test_a_device_that_does_not(monkeypatch, facts, part):
    answers(monkeypatch, facts)
    trials.try_devices(found := with_device())
    assert part in found.problems[0].what
    assert part in found.devices[0]["error"]
    assert found.healthy  # the CPU is left


@pytest.mark.soak
def test_the_program_for_a_device_runs():
    """On the CPU, which is a device, too."""
    (facts,), _ = trials.run_code(DEVICE, ["cpu"])
    assert facts["error"] is None
    assert facts["difference"] == 0


def test_compile_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(trials, "find_spec", lambda _: None)
    trials.check_cache(found := Diagnosis())
    assert "no Triton" in found.compile_cache
    monkeypatch.setattr(trials, "find_spec", lambda _: object())
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "somebody" / "cache"))
    trials.check_cache(found := Diagnosis())
    assert found.compile_cache.startswith("can be written")
    assert list(tmp_path.iterdir()) == []
    usage = type("Usage", (), {"free": 2**20})
    monkeypatch.setattr(trials.shutil, "disk_usage", lambda _: usage)
    trials.check_cache(found := Diagnosis())
    assert "0.00 GiB left" in found.problems[0].what

    def fail(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(trials.tempfile, "TemporaryFile", fail)
    trials.check_cache(found := Diagnosis())
    assert "Read-only file system" in found.problems[0].what
    assert "somebody" not in str(found)


def test_cluster(monkeypatch):
    trials.try_cluster(found := Diagnosis())
    assert found.cluster.startswith("not installed")
    installed = {"cluster": [Package("dask", "1", "2")]}
    answers(monkeypatch, ["InputError: needs Dask"])
    trials.try_cluster(found := Diagnosis(extras=installed))
    assert (found.cluster, found.healthy) == ("does not work", True)
    assert "needs Dask" in found.problems[0].what
