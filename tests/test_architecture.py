"""The packages are layers, and the architecture page has the generated parts as they are now."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "upmri"
# The same name for the same role in several modules, or for a command and the function that it calls.
ROLES = {"recognise", "open_source", "read_config", "register", "write"}
# A method or network and its physics have the name that the literature gives both.
LITERATURE = {"grappa", "modl", "sense", "varnet"}
COMMANDS = {"benchmark", "doctor", "maps", "report"}
REGISTRIES = {"registry"}


def test_contracts_hold():
    """Layers and cycles, as `make lint` checks them."""
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_no_import_of_a_higher_layer_by_name():
    """No lazy import that the contracts cannot see, but those within a package and of the top-level module."""
    found = []
    for path in SOURCE.rglob("*.py"):
        package = path.relative_to(SOURCE).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else name
            if name != "import_module" or package == "__init__.py":
                continue
            text = ast.unparse(node.args[0])
            if "upmri" in text and f"upmri.{package}." not in text:
                found.append((str(path.relative_to(SOURCE)), text))
    assert found == []


def test_one_name_has_one_meaning():
    modules, names = defaultdict(set), defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE)
        if path.stem not in ("__init__", "__main__"):
            modules[path.stem].add(str(place.parent))
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                names[node.name].add(str(place))
    shared = {name for name, places in modules.items() if len(places) > 1} - LITERATURE - COMMANDS - REGISTRIES
    assert shared == set()
    # `__init__` modules may wrap a function of their package under its own name.
    assert {name: places for name, places in names.items() if len(places) > 1 and name not in ROLES} == {}


def test_generated_parts_are_current(fresh):
    code = "import runpy; runpy.run_path('docs/architecture_tables.py', run_name='__main__')"
    done = fresh(code, "--check", cwd=ROOT)
    assert done.returncode == 0, done.stderr or "run `python docs/architecture_tables.py`"


@pytest.mark.parametrize("page", ["architecture.md"])
def test_modules_that_pages_name_exist(page):
    text = (ROOT / "docs" / page).read_text()
    for name in re.findall(r"`((?:core|physics|formats|server|inference)\.[a-z_]+)`", text):
        assert (SOURCE / (name.replace(".", "/") + ".py")).exists(), name
