"""Operators and denoisers of deepinv, mrpro, sigpy and mri-nufft in upmri, and those of upmri in theirs.

Each function needs its own package: ``pip install "upmri[interop]"`` installs all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from upmri.interop.deepinv_bridge import from_deepinv, from_deepinv_denoiser, prior_to_deepinv, to_deepinv
    from upmri.interop.mrinufft_bridge import from_mrinufft
    from upmri.interop.mrpro_bridge import from_mrpro, to_mrpro
    from upmri.interop.sigpy_bridge import from_sigpy, to_sigpy

__all__ = [
    "from_deepinv",
    "from_deepinv_denoiser",
    "from_mrinufft",
    "from_mrpro",
    "from_sigpy",
    "prior_to_deepinv",
    "to_deepinv",
    "to_mrpro",
    "to_sigpy",
]

_PEERS = ("deepinv", "mrinufft", "mrpro", "sigpy")


def __getattr__(name: str) -> Any:
    if name in __all__:
        peer = next(peer for peer in _PEERS if peer in name)
        try:
            return getattr(import_module(f"upmri.interop.{peer}_bridge"), name)
        except ModuleNotFoundError as error:
            raise ImportError(f'{name} needs {error.name}: pip install "upmri[interop]"', name=error.name) from error
    raise AttributeError(f"module 'upmri.interop' has no attribute {name!r}")
