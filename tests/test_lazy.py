"""`import upmri` and `upmri --help` load no torch."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("code", ["import upmri", "import upmri; upmri.__version__; dir(upmri)", "import upmri.cli"])
def test_no_torch(code):
    heavy = "[m for m in ('torch', 'numpy', 'h5py', 'matplotlib', 'nibabel') if m in sys.modules]"
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print({heavy})"], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


COMMANDS = [
    "demo",
    "info",
    "simulate",
    "recon",
    "report",
    "train",
    "methods",
    "models",
    "benchmark",
    "serve",
    "stream",
    "doctor",
]


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_loads_no_torch(command):
    code = (
        f"import sys, atexit; sys.argv = ['upmri', *{command!r}, '--help'];"
        "atexit.register(lambda: print('TORCH' if 'torch' in sys.modules else 'LIGHT', file=sys.stderr));"
        "from upmri.cli import main; main()"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in out.stdout
    assert "LIGHT" in out.stderr


def test_unknown_names_are_attribute_errors():
    import upmri

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = upmri.nonsense
    assert {"Scan", "load", "physics", "reconstruct", "train"} <= set(dir(upmri))


def test_packages_and_functions_are_imported_on_first_use():
    import upmri

    for package in ("core", "evaluation", "flow", "formats", "learning", "networks", "physics", "training", "weights"):
        assert getattr(upmri, package).__name__ == f"upmri.{package}"
    assert upmri.train is upmri.training.train


def test_listing_weights_loads_no_torch():
    code = "import sys; from upmri.weights.catalogue import weight_names; weight_names(); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_modules_of_physics_are_imported_on_first_use():
    import upmri

    assert upmri.physics.SenseOperator is upmri.physics.sense.SenseOperator
    assert upmri.physics.masks.__name__ == "upmri.physics.masks"
    with pytest.raises(AttributeError, match="nonsense"):
        _ = upmri.physics.nonsense
