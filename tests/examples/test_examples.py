"""Every script of the gallery runs, and the method and format of the examples work inside the package."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import upmri
from upmri import formats
from upmri.methods import registry

FOLDER = Path(__file__).parents[2] / "examples"
NEED_DATA = {"real_brain"}
LONG = {"own_training_loop", "train_prior"}  # they train, for 5 s on one core; `make docs` runs every script
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NEED_DATA)


@pytest.fixture
def script(tmp_path, monkeypatch):
    """``script(name)``: run a script in an empty folder and return its globals."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["script"])
    return lambda name: runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")


@pytest.fixture
def small():
    return upmri.simulate(upmri.demo.brain()[1], coils=4, acceleration=2)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak] if name in LONG else [])
        for name in SCRIPTS
        if not name.startswith("add_")
    ],
)
def test_runs_and_prints_something(script, name, capsys):
    script(name)
    assert capsys.readouterr().out


def test_all_have_a_title_and_cells():
    for path in FOLDER.glob("*.py"):
        text = path.read_text()
        title, line = text.splitlines()[1:3]
        assert line == "=" * len(title), path.name
        assert text.count("# %%") > 1, path.name


@pytest.fixture
def landweber(script, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    return script("add_method")["Landweber"]


def test_the_method_is_known_once_it_is_registered(landweber, small):
    assert "landweber" in upmri.methods()
    rec = upmri.reconstruct(small, "landweber", steps=100)
    assert (rec.settings["steps"], rec.settings["seed"]) == (100, 0)
    assert torch.equal(rec.image, upmri.reconstruct(small, landweber(steps=100)).image)
    assert upmri.evaluate(rec)["psnr"] > upmri.evaluate(upmri.reconstruct(small, "zero-filled"))["psnr"]
    with pytest.raises(upmri.InputError) as error:
        upmri.reconstruct(small, "landweber", steps=0)
    assert error.value.field == "steps"


def test_the_method_is_landwebers(landweber, small):
    """After k steps from 0 each eigenvector of N has the share 1 − (1−ν)^k of its final value."""
    problem = upmri.Problem.from_scan(small)
    x, y = landweber(steps=3).reconstruct(problem), problem.adjoint
    apply = problem.operator.normal
    torch.testing.assert_close(x, 3 * y - 3 * apply(y) + apply(apply(y)), rtol=1e-4, atol=1e-5)


@pytest.fixture
def ksp(script, monkeypatch):
    monkeypatch.setattr(formats.registry, "_registered", [])
    return SimpleNamespace(**script("add_format"))


def test_the_format_is_known_once_it_is_registered(ksp):
    scan = upmri.load("scan.ksp")
    np.testing.assert_array_equal(scan.kspace, ksp.made.kspace)
    np.testing.assert_array_equal(upmri.load("scan.ksp", slices="1:3").kspace, ksp.made.kspace[1:3])
    assert scan.name == "scan"


@pytest.mark.parametrize(
    "sizes", [b"3 4 96 95", b"3 4 96", b"0 4 96 96", b"3 4 96 9600000000000", b"-3 4 96 96", b"\xff" * 90]
)
def test_the_format_refuses_what_is_wrong(ksp, sizes):
    whole = Path("scan.ksp").read_bytes()
    Path("bad.ksp").write_bytes(whole.replace(b"3 4 96 96", sizes, 1))
    with pytest.raises(upmri.InputError, match="expected") as caught:
        upmri.load("bad.ksp")
    assert caught.value.path == "bad.ksp"
    assert "\n" not in str(caught.value)


def test_the_format_refuses_what_is_too_large(ksp):
    with pytest.raises(upmri.InputError, match="limit"):
        upmri.load("scan.ksp", max_bytes=1000)
