"""The examples in docstrings run, and the API reference has every public object."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import upmri
from upmri.formats import registry as formats
from upmri.methods import registry as methods

SOURCE = Path(upmri.__file__).parent
REFERENCE = Path(__file__).parents[1] / "docs" / "api.rst"
# Objects that a user meets first.
FIRST = {
    "upmri": (
        "load", "info", "simulate", "estimate_maps", "reconstruct", "evaluate", "train", "prior", "register", "Scan",
        "Reconstruction", "Problem",
    ),
    "upmri.physics": ("Operator", "SenseOperator"),
}  # fmt: skip


def modules(package: str = "") -> Iterator[tuple[str, Path]]:
    """Name and file of each module in a package."""
    for path in sorted((SOURCE / package).rglob("*.py")):
        parts = ("upmri", *path.relative_to(SOURCE).with_suffix("").parts)
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def resolve(name: str) -> Any:
    """Return the object of a name such as ``upmri.physics.masks.random_lines``; None if there is none."""
    module, _, attribute = name.rpartition(".")
    module = upmri._PACKAGES.get(module.removeprefix("upmri."), module)
    return getattr(importlib.import_module(module), attribute, None)


@pytest.mark.parametrize("name", [name for name, path in modules() if ">>> " in path.read_text(encoding="utf-8")])
def test_examples_of_a_module_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(methods, "_registered", dict(methods._registered))
    monkeypatch.setattr(formats, "_registered", list(formats._registered))
    monkeypatch.setattr(formats, "_writers", dict(formats._writers))
    result = doctest.testmod(importlib.import_module(name), report=True)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("name", [f"{home}.{name}" for home, names in FIRST.items() for name in names])
def test_the_first_objects_have_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(resolve(name)) or "")


def documented() -> list[str]:
    """Names of the objects in the API reference."""
    text = REFERENCE.read_text(encoding="utf-8")
    return re.findall(r"^\.\. (?:auto)?(?:function|class|exception|data):: ([\w.]+)", text, re.MULTILINE)


def found() -> dict[str, Any]:
    """Objects in the API reference by their names, without those that need other packages."""
    return {name: resolve(name) for name in documented() if not name.startswith("upmri.interop.")}


def test_every_name_in_the_reference_exists() -> None:
    assert [name for name, value in found().items() if value is None] == []


def test_the_reference_has_every_public_name() -> None:
    names = {*documented()}
    assert {f"upmri.{name}" for name in upmri.__all__} <= names
    assert {f"upmri.interop.{name}" for name in upmri.interop.__all__} <= names


@pytest.mark.parametrize("package", ["physics", "networks", "flow", "learning", "methods", "weights"])
def test_the_reference_has_every_public_object(package: str) -> None:
    there = list(found().values())
    for name, _ in modules(package):
        if ".fused_" in name:  # kernels, which need Triton
            continue
        for key, value in vars(importlib.import_module(name)).items():
            own = (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == name
            assert key.startswith("_") or not own or value in there, f"{name}.{key} is not in docs/api.rst"
