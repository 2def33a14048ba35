"""The checks of `upmri doctor`, on a working installation and on broken ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import upmri
from upmri import __version__
from upmri.cli import diagnosis, separate
from upmri.cli.installation import Diagnosis, Finding, Package

SECRET = "wilhelmina"


def run(*words, **environment):
    command = [sys.executable, "-m", "upmri", "doctor", *words]
    env = {key: value for key, value in os.environ.items() if not key.startswith("UPMRI_")}
    env |= {"PYTHONIOENCODING": "utf-8", **environment}
    return subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=False)


def test_everything_works(tmp_path):
    home = tmp_path / SECRET
    home.mkdir()
    (home / f"{SECRET}.safetensors").touch()
    done = run("--json", UPMRI_MODELS=str(home), UPMRI_DATA=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["healthy"]
    assert found["upmri"] == __version__
    assert {"torch", "numpy", "h5py"} <= {package["name"] for package in found["packages"]}
    assert set(found["extras"]) == set(diagnosis.FEATURES)
    assert {"brain", "cardiac"} <= set(found["weights"])
    installed = all(package["version"] for package in found["extras"]["cluster"])
    assert found["cluster"].startswith("a worker of this machine works" if installed else "not installed")
    assert found["environment"]["UPMRI_MODELS"] == "a folder with 1 set of weights"
    assert found["environment"]["UPMRI_DATA"] == "a folder without anatomies and scans"
    assert found["threads"] >= 1
    assert SECRET not in done.stdout + done.stderr


def broken_torch(folder, code):
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(code)
    return os.pathsep.join([str(folder), str(Path(upmri.__file__).parents[1])])  # this upmri, with that torch


def test_torch_that_cannot_be_imported(tmp_path):
    message = f"/home/{SECRET} of the team/lib/libtorch.so: cannot open shared object file"
    done = run(PYTHONPATH=broken_torch(tmp_path, f"raise ImportError({message!r})"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert "cannot be imported: ImportError: …/libtorch.so: cannot open" in done.stderr
    assert "pip install --force-reinstall 'torch>=" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "numpy" in done.stdout  # the rest is reported


def test_torch_that_crashes_its_process(tmp_path):
    done = run("--json", PYTHONPATH=broken_torch(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGILL)"))
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [problem["what"].split(": ")[1] for problem in found["problems"]] == ["its process was ended by SIGILL"]
    assert all(package["error"] is None for package in found["packages"] if package["name"] != "torch")


def test_torch_that_never_comes_back(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", broken_torch(tmp_path, "import time; time.sleep(60)"))
    monkeypatch.setattr(separate, "_SECONDS", 6)
    assert diagnosis._import(["json", "torch"]) == [None, "it took longer than 6 s"]


def test_torch_that_cannot_compute(monkeypatch):
    gpu = {"name": "G", "gib": 80.0, "free_gib": 79.0, "error": "RuntimeError: no kernel image"}
    facts = {"threads": 2, "cpu": "RuntimeError: no LAPACK", "cuda": "13.0", "devices": [gpu]}
    monkeypatch.setattr(diagnosis, "_run", lambda *_: ([facts], ""))
    diagnosis._check_torch(found := Diagnosis())
    assert [problem.essential for problem in found.problems] == [True, False]
    assert "--device cpu" in found.problems[1].remedy
    assert not found.healthy


@pytest.mark.parametrize(
    ("package", "what"),
    [
        (Package("h5py", "3.11", None), "is missing"),
        (Package("h5py", "3.11", "3.9.9"), "is older than 3.11"),
        (Package("h5py", "3.11", "3.11.0", "OSError: …"), "cannot be imported: OSError"),
    ],
)
def test_check_packages_name_their_remedy(package, what):
    finding = diagnosis._check_package(package)
    assert isinstance(finding, Finding)
    assert what in finding.what
    assert finding.remedy.startswith("pip install ")
    assert finding.remedy.endswith("'h5py>=3.11'")


def test_versions():
    assert diagnosis._check_package(Package("torch", "2.6", "2.13.0+cpu")) is None
    assert diagnosis._requirement("twixtools>=0.24; extra == 'siemens'") == ("twixtools", "0.24", "siemens")
    assert diagnosis._requirement("PyYAML>=6") == ("pyyaml", "6", None)


@pytest.mark.parametrize(
    "text",
    [
        f"ImportError: cannot import name 'x' from 'y' (/home/{SECRET}/y/__init__.py)",
        f'File "C:\\Users\\{SECRET}\\y.py", line 3',
        f"no such file: '/Users/{SECRET} B/y.so'",
    ],
)
def test_folders_are_not_shown(text):
    assert SECRET not in diagnosis._anonymous(text)
    assert "y" in diagnosis._anonymous(text)


def test_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("UPMRI_DATA", str(tmp_path / "nowhere"))
    found = Diagnosis()
    assert diagnosis._variable("UPMRI_DATA", found) == "not a folder"
    assert found.healthy
    assert "unset UPMRI_DATA" in found.problems[0].remedy
    monkeypatch.delenv("UPMRI_DATA")
    assert diagnosis._variable("UPMRI_DATA", found) == "not set"
    for part in ("anatomies", "scans"):
        (tmp_path / part).mkdir()
    monkeypatch.setenv("UPMRI_DATA", str(tmp_path))
    assert diagnosis._variable("UPMRI_DATA", found) == "a folder with anatomies and scans"


def test_damaged_or_missing_files(monkeypatch, tmp_path):
    from upmri import weights

    monkeypatch.setattr(weights, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    diagnosis._check_files(found := Diagnosis())
    assert [problem.what for problem in found.problems] == [
        "the shipped weights bad are damaged", "the package contains no weights"
    ]  # fmt: skip
    assert not found.healthy


def test_a_system_that_reports_no_memory(monkeypatch):
    monkeypatch.setattr(diagnosis.Path, "read_text", lambda _: "")
    total, free = diagnosis._memory()
    assert free is None
    assert total is None or total > 0
