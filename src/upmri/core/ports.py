"""Functions of a higher layer that are methods of objects of this one.

``Scan.save`` and ``Reconstruction.save`` write files, which is the work of ``upmri.formats``, a layer above. This layer
does not import it: ``upmri/__init__.py``, which knows all layers, assigns the two functions below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

save_scan: Callable[..., Any]
save_reconstruction: Callable[..., Any]
