"""Functions of higher layers that objects of this one offer as methods.

``Scan.save`` and ``Reconstruction.save`` write files, which is the work of ``upmri.formats``, a layer above. That layer
is not imported here: ``upmri/__init__.py``, which knows all layers, enters the functions below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

save_scan: Callable[..., Any]
save_reconstruction: Callable[..., Any]
