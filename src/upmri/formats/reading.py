"""Files read in this process: the readers are asked one after the other which of them knows the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.core.printable import one_line
from upmri.core.scan import Reconstruction
from upmri.formats import fastmri, guard, hdf5, m4raw, mrd, native, registry, skmtea
from upmri.formats.ordered import OrderedSource
from upmri.formats.source import Source

_IMAGES = (".nii", ".nii.gz", ".dcm", ".png")
_NAMED = (native, skmtea, m4raw, mrd, fastmri)  # HDF5 that says which axis is which; the last only with a header
_FASTMRI_AXES = 4  # slice, coil, readout, phase
_KINDS = {
    ".npy": "a NumPy array",
    ".npz": "a NumPy archive",
    ".h5": "HDF5",
    ".mat": "MATLAB 7.3",
    ".dat": "Siemens twix",
}


def open_here(path: Path, max_bytes: int, also: Sequence[str] = (), axes: str | None = None) -> Source:
    """Open a scan.

    Parameters
    ----------
    path, max_bytes, axes
        As for :func:`upmri.formats.open_source`.
    also
        What readers that were asked before read, for the message when none knows the file.
    """
    with guard.naming(path):
        head = guard.head(path)
        if axes is not None:
            _check_unnamed(path, head)
            return OrderedSource(path, max_bytes, axes)
        for reader in registry.readers():
            if reader.recognise(path, head):
                return reader.open_source(path, max_bytes)
        if hdf5.is_hdf5(path):
            held = ", ".join(map(one_line, hdf5.names(path))) or "nothing"
            raise InputError(
                f"no scan in a known format: HDF5 that holds {held}; k-space of another program is read from an array "
                "called kspace, with --axes (axes=… in Python)"
            )
        if path.name.lower().endswith(_IMAGES):
            raise InputError("no scan in a known format: an image has no k-space; `upmri simulate` makes a scan of one")
        if (kind := _KINDS.get(path.suffix.lower())) is not None:
            raise InputError(f"no scan in a known format: its name is that of {kind}, its content is not")
        known = ", ".join([*also, *(reader.READS for reader in registry.readers())])
        raise InputError(f"no scan in a known format, which are {known}")


def _check_unnamed(path: Path, head: bytes) -> None:
    """Refuse names of axes for a file whose format has them: as a mere array it would lose all but its k-space."""
    known = next((reader for reader in _NAMED if reader.recognise(path, head)), None)
    if known is not None and (known is not fastmri or hdf5.matches(path, _has_slices_and_header)):
        raise InputError(
            f"not for {known.READS}, which says itself which axis is which; leave --axes (axes=…) out", field="axes"
        )


def _has_slices_and_header(file: Any) -> bool:
    """Return whether it is HDF5 that fastMRI's reader can use; k-space of another number of axes needs names."""
    kspace = hdf5.find_array(file, "kspace")
    return hdf5.has_link(file, "ismrmrd_header") and kspace is not None and len(kspace.shape) == _FASTMRI_AXES


def read_reconstruction_here(path: Path, max_bytes: int) -> Reconstruction:
    """Read a reconstruction that was saved as .h5."""
    with guard.naming(path):
        guard.head(path)
        if not hdf5.is_hdf5(path):
            raise InputError("expected a reconstruction that UPMRI saved as .h5")
        return native.read_reconstruction(path, max_bytes)
