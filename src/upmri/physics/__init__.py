"""The physics of the scan: transforms, masks, coils, and the operator A with its solvers. Imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from upmri.physics.dynamic_masks import frame_lines
    from upmri.physics.dynamic_scans import simulate_series
    from upmri.physics.identity import IdentityOperator
    from upmri.physics.operator import Operator
    from upmri.physics.problem import Problem
    from upmri.physics.sense import SenseOperator

__all__ = ["IdentityOperator", "Operator", "Problem", "SenseOperator", "frame_lines", "simulate_series"]

_NAMES = {
    "IdentityOperator": "identity", "Operator": "operator", "Problem": "problem", "SenseOperator": "sense",
    "frame_lines": "dynamic_masks", "simulate_series": "dynamic_scans"
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"upmri.physics.{_NAMES[name]}"), name)
    if name.startswith("_"):
        raise AttributeError(f"module 'upmri.physics' has no attribute {name!r}")
    try:
        return import_module(f"upmri.physics.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"upmri.physics.{name}":
            raise
        raise AttributeError(f"module 'upmri.physics' has no attribute {name!r}") from None
