"""The command line as a person uses it: run in this process, in an empty folder, with one set of small weights."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import upmri
from upmri import cli
from upmri.cli import console
from upmri.methods.upmri_objective import UpmriObjective
from upmri.weights import catalogue
from upmri.weights.files import save_weights

OBJECTIVE = UpmriObjective(cascades=1, width=16)
CARD = {"about": "ten apples", "licence": "CC0-1.0", "training": {"seconds": 12}, "figures": {"gain, dB": 2.5}}


@pytest.fixture(scope="session")
def apples(tmp_path_factory):
    """Weights of a small network that was not trained."""
    path = tmp_path_factory.mktemp("shipped") / "apples.safetensors"
    return save_weights(path, OBJECTIVE.network().state_dict(), "upmri", OBJECTIVE, {"name": "apples", **CARD})


@pytest.fixture
def shipped(tmp_path_factory, monkeypatch):
    """The folder of the package's weights, empty."""
    folder = tmp_path_factory.mktemp("package")
    monkeypatch.setattr(catalogue, "_FOLDER", folder)
    return folder


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, shipped, apples):
    """``run(*words, code=0)``: output of a command that ends with this exit status."""
    (shipped / apples.name).write_bytes(apples.read_bytes())
    monkeypatch.chdir(tmp_path)
    # Nothing of the terminal or the environment changes what is printed.
    for name in (
        "UPMRI_MODELS",
        "UPMRI_DATA",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "FORCE_COLOR",
        "TTY_COMPATIBLE",
        "TTY_INTERACTIVE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # set by the program; restored after the test
    monkeypatch.setattr(console, "out", Console(width=200, force_terminal=False))
    monkeypatch.setattr(console, "err", Console(width=200, force_terminal=False, stderr=True))

    def call(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["upmri", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        done = SimpleNamespace(**capsys.readouterr()._asdict())
        assert (stop.value.code or 0) == code, done.err + done.out
        return SimpleNamespace(stdout=done.out, stderr=done.err)

    return call


@pytest.fixture
def scan(tmp_path):
    """A scan of three slices, saved as ``scan.h5``."""
    made = upmri.simulate(upmri.demo.brain(), coils=4, acceleration=2, acs=12)
    made.save(tmp_path / "scan.h5")
    return made


@pytest.fixture
def one_line():
    """``one_line(done, *parts)``: nothing on stdout, and on stderr one line of the program that holds these parts."""

    def check(done, *parts):
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("upmri: ")
        assert "Traceback" not in done.stderr
        for part in parts:
            assert part in done.stderr

    return check


@pytest.fixture
def recipe(tmp_path):
    """A configuration of a short training, ``small.yaml``."""
    rows = upmri.demo.brain()[:, 24:72, 24:72]
    np.save(tmp_path / "images.npy", rows)
    (tmp_path / "small.yaml").write_text(
        "output: run\ntrain: {images: [images.npy], coils: 4, accelerations: [2.0]}\n"
        "objective: {cascades: 1, width: 4}\nsteps: 4\nbatch: 2\nname: mine\nabout: '[b]three slices'\ndevice: cpu\n"
    )
