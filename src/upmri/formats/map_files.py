"""Coil maps in files of their own: written for other programs, and read for a scan that has none.

==========  ==========================================================================================================
``.npy``    complex64, (slice, coil, readout, phase); read also as (coil, readout, phase)
``.cfl``    BART's order: readout × phase × 1 × coil, slices on dimension 13
``.h5``     UPMRI's own HDF5 of the scan with its maps, the dataset ``maps``
==========  ==========================================================================================================
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import atomic, cfl, native
from upmri.formats.guard import MAX_BYTES, naming

SUFFIXES = (".h5", ".npy", ".cfl")
_BARE = ("NumPy .npy", "BART cfl")  # formats with one array, which does not say what it is
# k-space is much larger at DC than elsewhere; the length of maps, (Σ|S_c|²)^½, varies little.
_PEAK = 20


def check_maps_target(path: str | Path, *, overwrite: bool = False) -> None:
    """Check before the work that :func:`save_maps` could write a file."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"expected a name that ends in {', '.join(SUFFIXES)} for coil maps", path=path)
    atomic.check_writable(path, overwrite=overwrite)


def save_maps(scan: Scan, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write the coil maps of a scan, by suffix: ``.npy``, ``.cfl`` for BART, or ``.h5`` with the rest of the scan.

    Examples
    --------
    >>> import upmri
    >>> scan = upmri.simulate(upmri.physics.phantom.image((48, 48)), coils=4, acceleration=2)
    >>> path = upmri.formats.save_maps(scan, "maps.cfl")
    >>> upmri.formats.load_maps("maps.cfl").shape
    torch.Size([1, 4, 48, 48])
    """
    path = Path(path)
    check_maps_target(path, overwrite=overwrite)
    if scan.maps is None:
        raise InputError("the scan has none; upmri.estimate_maps(scan) gives it some", field="maps")
    if path.suffix.lower() == ".h5":
        return native.write_scan(scan, path, overwrite=overwrite)
    with atomic.staged(path, overwrite=overwrite) as stage:
        if path.suffix.lower() == ".cfl":
            cfl.write_maps(scan.maps, stage)
        else:
            with stage.open("wb") as file:
                np.save(file, scan.maps.numpy())
    return path


def load_maps(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Tensor:
    """Read coil maps, complex64 (slice, coil, readout, phase), from an array of maps or a scan that has some."""
    from upmri.formats import open_source

    with open_source(path, max_bytes=max_bytes) as source, naming(Path(path)):
        bare = source.format in _BARE
        scan = source.read()
        if scan.maps is not None:
            return scan.maps
        if not bare:
            raise InputError(f"expected coil maps, there are none in this scan ({source.format})", field="maps")
        if "readout" in scan.meta.get("axes", {}):
            raise InputError("expected coil maps of 2-D slices, got a volume", field="maps")
        length = scan.kspace.abs().square().sum(1).sqrt()
        inside = length[length > 0]
        if not len(inside) or bool(inside.max() > _PEAK * inside.median()):
            raise InputError("expected coil maps, got what looks like k-space (a reference scan?)", field="maps")
        return scan.kspace
