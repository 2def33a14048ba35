"""Reading in this process."""

import h5py
import numpy as np
import pytest

from upmri import InputError
from upmri.formats import reading


def test_what_is_known_is_named_with_what_was_asked_before(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("hello")
    with pytest.raises(InputError, match="which are words, NumPy") as error:
        reading.open_here(path, 10**6, ["words"])
    assert error.value.path == str(path)


def test_only_reconstructions_are_reconstructions(tmp_path, scan, rec, refused):
    assert reading.read_reconstruction_here(rec.save(tmp_path / "rec.h5"), 10**6).name == "head"
    path = scan.save(tmp_path / "scan.h5")
    with refused("expected a reconstruction", path=path):
        reading.read_reconstruction_here(path, 10**6)


def test_hdf5_of_another_program_is_named_by_its_entries(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["raw"], file["b\nold"] = 1, 2
    with pytest.raises(InputError, match="HDF5 that holds b old, raw; .* array called kspace, with --axes") as error:
        reading.open_here(tmp_path / "x.h5", 2**20)
    assert "\n" not in str(error.value)


def test_axes_are_refused_where_the_file_says_them(tmp_path, scan, refused):
    """Read as a mere array it would lose its maps, noise, spacing and geometry."""
    path = scan.save(tmp_path / "own.h5")
    with refused("HDF5 written by UPMRI, which says itself which axis is which", field="axes", path=path):
        reading.open_here(path, 2**20, axes="slice,coil,readout,phase")
    slices, frames = "slice,coil,readout,phase", "frame,slice,coil,readout,phase"
    for name, order, others, known in (
        ("plain.h5", slices, {}, False),
        ("fastmri.h5", slices, {"ismrmrd_header": b"<xml>"}, True),
        ("frames.h5", frames, {"ismrmrd_header": b"<xml>"}, False),  # its reader has no use for five axes
        ("skmtea.h5", slices, {"maps": 0, "target": 0}, True),
    ):
        with h5py.File(tmp_path / name, "w") as file:
            file["kspace"] = np.ones((2, 3, 8, 6) if order == slices else (2, 1, 3, 8, 6), np.complex64)
            file.update(others)
        if known:
            with refused("says itself which axis is which", field="axes", path=tmp_path / name):
                reading.open_here(tmp_path / name, 2**20, axes=order)
        else:
            with reading.open_here(tmp_path / name, 2**20, axes=order) as source:
                assert (source.slices, source.coils) == (2, 3)
