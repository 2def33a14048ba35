"""UPMRI: reconstruct accelerated multi-coil MRI without ever having seen a fully sampled scan.

The verbs and the two nouns are here; the rooms behind them (``upmri.physics``, ``upmri.methods``, …) are attributes
too. Everything is imported on first use, so that ``import upmri`` loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from upmri import methods
    from upmri.errors import InputError
    from upmri.evaluation import evaluate
    from upmri.formats import load
    from upmri.methods import reconstruct
    from upmri.physics.espirit import estimate_maps
    from upmri.physics.simulate import simulate
    from upmri.scan import Reconstruction, Scan
    from upmri.training.loop import train

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "Reconstruction",
    "Scan",
    "estimate_maps",
    "evaluate",
    "load",
    "methods",
    "reconstruct",
    "simulate",
    "train",
]

# Where each public name lives. `methods` is a room that can be called: `upmri.methods()` gives the names.
_HOME = {
    "InputError": "upmri.errors",
    "Reconstruction": "upmri.scan",
    "Scan": "upmri.scan",
    "estimate_maps": "upmri.physics.espirit",
    "evaluate": "upmri.evaluation",
    "load": "upmri.formats",
    "reconstruct": "upmri.methods",
    "simulate": "upmri.physics.simulate",
    "train": "upmri.training.loop",
}
_ROOMS = {
    "demo", "errors", "evaluation", "figures", "flow", "formats", "methods", "networks", "physics", "scan", "server",
    "training", "weights",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _ROOMS:
        value = import_module(f"upmri.{name}")
    else:
        raise AttributeError(f"module 'upmri' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_ROOMS})
