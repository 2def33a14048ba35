"""The physics of the scan: transforms, masks, coils, and the operator A with its solvers. Imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from upmri.physics.sense import SenseOperator

__all__ = ["SenseOperator"]

_MODULES = {
    "coils", "contrast", "espirit", "fourier", "geometry", "masks", "phantom", "sense", "simulate", "solve", "wavelet"
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"upmri.physics.{name}")
    if name in __all__:
        return getattr(import_module("upmri.physics.sense"), name)
    raise AttributeError(f"module 'upmri.physics' has no attribute {name!r}")
