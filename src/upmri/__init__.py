"""UPMRI: reconstruct accelerated multi-coil MRI without fully sampled training data.

The functions and classes that most users need are attributes of this module, and so are the packages behind them
(``upmri.physics``, ``upmri.methods``, …). Everything is imported on first use: ``import upmri`` loads no torch.

Unless ``OMP_WAIT_POLICY`` is set, it becomes ``PASSIVE``, which torch reads when it is imported afterwards: on a
machine that is busy with other work, threads that spin while they wait make a reconstruction ten times as slow.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from upmri.core import ports
from upmri.core.version import __version__

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from upmri import methods
    from upmri.core.errors import InputError
    from upmri.core.scan import Reconstruction, Scan
    from upmri.evaluation import evaluate
    from upmri.evaluation.info import info
    from upmri.formats import load
    from upmri.inference.plugins import register
    from upmri.inference.reconstruct import reconstruct
    from upmri.physics.epi import correct_ghosts
    from upmri.physics.maps import estimate_maps
    from upmri.physics.problem import Problem
    from upmri.physics.simulate import simulate
    from upmri.training.loop import train
    from upmri.training.site import adapt
    from upmri.weights.files import load_prior as prior

__all__ = [
    "InputError",
    "Problem",
    "Reconstruction",
    "Scan",
    "__version__",
    "adapt",
    "correct_ghosts",
    "estimate_maps",
    "evaluate",
    "info",
    "load",
    "methods",
    "prior",
    "reconstruct",
    "register",
    "simulate",
    "train",
]

# Module and attribute of each public name. The package `methods` can be called: `upmri.methods()` gives the names.
_MODULES = {
    "InputError": "upmri.core.errors:InputError",
    "Problem": "upmri.physics.problem:Problem",
    "Reconstruction": "upmri.core.scan:Reconstruction",
    "Scan": "upmri.core.scan:Scan",
    "adapt": "upmri.training.site:adapt",
    "correct_ghosts": "upmri.physics.epi:correct_ghosts",
    "estimate_maps": "upmri.physics.maps:estimate_maps",
    "evaluate": "upmri.evaluation:evaluate",
    "info": "upmri.evaluation.info:info",
    "load": "upmri.formats:load",
    "prior": "upmri.weights.files:load_prior",
    "reconstruct": "upmri.inference.reconstruct:reconstruct",
    "register": "upmri.inference.plugins:register",
    "simulate": "upmri.physics.simulate:simulate",
    "train": "upmri.training.loop:train",
}
_PACKAGES = {
    "cli": "upmri.cli",
    "cluster": "upmri.cluster",
    "core": "upmri.core",
    "demo": "upmri.cli.demo",
    "evaluation": "upmri.evaluation",
    "figures": "upmri.evaluation.figures",
    "flow": "upmri.flow",
    "formats": "upmri.formats",
    "inference": "upmri.inference",
    "interop": "upmri.interop",
    "learning": "upmri.learning",
    "methods": "upmri.methods",
    "networks": "upmri.networks",
    "physics": "upmri.physics",
    "server": "upmri.server",
    "training": "upmri.training",
    "weights": "upmri.weights",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        module, _, attribute = _MODULES[name].partition(":")
        value = getattr(import_module(module), attribute)
    elif name in _PACKAGES:
        value = import_module(_PACKAGES[name])
    else:
        raise AttributeError(f"module 'upmri' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_PACKAGES})


def _save_scan(*args: Any, **options: Any) -> Any:
    from upmri.formats import native

    return native.write_scan(*args, **options)


def _save_reconstruction(*args: Any, **options: Any) -> Any:
    from upmri import formats

    return formats.save(*args, **options)


ports.save_scan = _save_scan
ports.save_reconstruction = _save_reconstruction
