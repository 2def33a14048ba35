import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SCRIPTS = (
    "ahead",
    "bounds_lines",
    "calibrate_bounds",
    "levers",
    "mean_weights",
    "people",
    "provenance",
    "published",
    "reproduce",
)


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    """Scripts of `benchmarks/` import each other by their names."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("UPMRI_MODELS", str(ROOT / "models"))  # which they set where it is not: not for other tests
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in _SCRIPTS:
            del sys.modules[name]
