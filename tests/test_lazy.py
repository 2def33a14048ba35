"""`import upmri` and `upmri --help` load no torch."""

import subprocess
import sys
from pathlib import Path

import pytest


def lines(code):
    """What a fresh interpreter prints, line by line."""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return out.stdout.splitlines()


def test_imports_load_no_torch():
    """One after another in one process: each must add none of them."""
    code = """
import sys
for code in ("import upmri", "upmri.__version__; dir(upmri)", "import upmri.cli",
             "from upmri.weights.catalogue import weight_names; weight_names()"):
    exec(code)
    heavy = ("torch", "h5py", "matplotlib", "nibabel") + ("numpy",) * ("weights" not in code)
    print([name for name in heavy if name in sys.modules])
"""
    assert lines(code) == ["[]"] * 4


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


def test_help_loads_no_torch():
    """That of every command, one after another in one process."""
    code = f"""
import contextlib, io, sys
from upmri.cli import main
for command in ([], *([name] for name in {COMMANDS})):
    sys.argv, text = ["upmri", *command, "--help"], io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(text):
        main()
    print(*command, "Usage" in text.getvalue(), "torch" in sys.modules)
"""
    assert lines(code) == [" ".join([*command, "True", "False"]) for command in ([], *([name] for name in COMMANDS))]


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


def test_modules_of_physics_are_imported_on_first_use():
    import upmri

    assert upmri.physics.SenseOperator is upmri.physics.sense.SenseOperator
    for file in Path(upmri.physics.__file__).parent.glob("[a-z]*.py"):
        if not file.stem.startswith("fused_"):  # needs triton
            assert getattr(upmri.physics, file.stem).__name__ == f"upmri.physics.{file.stem}"
    with pytest.raises(AttributeError, match="nonsense"):
        _ = upmri.physics.nonsense
