"""Reconstruction methods, by name. ``upmri.methods()`` gives the names.

A method is a callable on a :class:`~upmri.physics.problem.Problem`; ``upmri.reconstruct`` applies one to a scan.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from upmri.methods.registry import DEFAULT, find_method, method_names, register_method

if TYPE_CHECKING:
    from upmri.methods.base import Estimate, Method, Objective
    from upmri.methods.learned import Learned
    from upmri.methods.prior import Prior

__all__ = [
    "DEFAULT",
    "Estimate",
    "Learned",
    "Method",
    "Objective",
    "Prior",
    "find_method",
    "method_names",
    "register_method",
]

# Classes that import torch, loaded on first use: a listing of the methods does not need it.
_MODULES = {"Estimate": "base", "Method": "base", "Objective": "base", "Learned": "learned", "Prior": "prior"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"upmri.methods.{_MODULES[name]}"), name)


class _CallablePackage(ModuleType):
    def __call__(self) -> tuple[str, ...]:
        return method_names()


sys.modules[__name__].__class__ = _CallablePackage
