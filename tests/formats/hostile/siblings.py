"""The modules of the formats' tests, which know how to write their files."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType


@cache
def sibling(name: str) -> ModuleType:
    """Return the module of another format's tests."""
    spec = importlib.util.spec_from_file_location(f"sibling_{name}", Path(__file__).parents[1] / f"test_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
