"""M4Raw files as its tutorial and mrpro's reader describe them, with two slices, and what a wrong one could hold."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import upmri
from upmri import load
from upmri.formats import open_source
from upmri.physics.fourier import ifft2c

SLICES, COILS, SIZE = 2, 4, 256
FIRST, LAST = 30, 225  # measured columns
# An ISMRMRD namespace, but no encodings.
HEADER = """<?xml version="1.0"?><ns0:ismrmrdHeader xmlns:ns0="http://www.ismrm.org/ISMRMRD">
<ns0:sequenceParameters><ns0:TR>5500</ns0:TR><ns0:TE>128</ns0:TE></ns0:sequenceParameters></ns0:ismrmrdHeader>"""
SCANNER = {"echo_time": [128.0], "repetition_time": 5500.0}


def rss(kspace: np.ndarray) -> np.ndarray:
    return ifft2c(torch.from_numpy(kspace)).abs().square().sum(1).sqrt().numpy()


def write(path: Path, kspace: np.ndarray, **attributes) -> Path:
    with h5py.File(path, "w") as file:
        file["kspace"], file["reconstruction_rss"], file["ismrmrd_header"] = kspace, rss(kspace), HEADER
        file.attrs.update({"acquisition": "AXT2", "max": 121.5, "patient_id": "88448eec"} | attributes)
    return path


@pytest.fixture(scope="module")
def kspace() -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2, SLICES, COILS, SIZE, SIZE)).astype(np.float32)
    kspace = values[0] + 1j * values[1]
    kspace[..., :FIRST] = kspace[..., LAST:] = 0
    return kspace


@pytest.fixture
def path(tmp_path, kspace) -> Path:
    return write(tmp_path / "2022061003_T201.h5", kspace)


def test_a_repetition_becomes_a_scan(path, kspace):
    scan = load(path)
    np.testing.assert_array_equal(scan.kspace, kspace)
    assert scan.mask.shape == (SLICES, 1, SIZE)
    assert scan.mask[0, 0].nonzero().flatten().tolist() == list(range(FIRST, LAST))
    np.testing.assert_allclose(scan.reference, rss(kspace), rtol=1e-5)
    assert scan.spacing == (0.9375, 0.9375, 5.0)
    assert scan.meta == {"acquisition": "AXT2", "contrast": "T2", "repetition": 1, "scanner": SCANNER}
    assert "88448eec" not in repr(scan.meta)


def test_slices_are_read_one_by_one(path, kspace):
    with open_source(path) as source:
        assert (source.format, source.slices, source.coils) == ("M4Raw HDF5", SLICES, COILS)
        np.testing.assert_array_equal(source.read(1).kspace, kspace[1:])


def test_info_names_the_layout(path):
    assert upmri.info(path)["format"] == "M4Raw HDF5"


def test_lines_that_were_left_out_later_are_not_sampled(tmp_path, kspace):
    scan = load(write(tmp_path / "x.h5", kspace * (np.arange(SIZE) % 4 == 0)))
    assert scan.mask[0, 0].nonzero().flatten().tolist() == list(range(32, LAST, 4))
    assert scan.meta == {"acquisition": "AXT2", "scanner": SCANNER}  # the name says nothing


def test_files_of_fastmri_are_not_taken_for_it(tmp_path, kspace):
    """fastMRI has a norm, and needs its header."""
    path = write(tmp_path / "x.h5", kspace[:1], norm=1.0)
    with pytest.raises(upmri.InputError) as error:
        load(path)
    assert error.value.field == "ismrmrd_header"


@pytest.mark.parametrize(
    ("name", "array", "field", "word"),
    [
        ("kspace", np.ones((1, 4, SIZE, SIZE), np.float32), "kspace", "float32"),
        ("kspace", np.ones((0, 4, SIZE, SIZE), np.complex64), "kspace", "(0, 4"),
        ("kspace", np.full((SLICES, 4, SIZE, SIZE), np.nan, np.complex64), "kspace", "finite"),
        ("reconstruction_rss", np.ones((SLICES, SIZE, 8), np.float32), "reconstruction_rss", "(2, 256, 8)"),
        ("reconstruction_rss", np.ones((1, SIZE, SIZE), np.float32), "reconstruction_rss", "(1, 256, 256)"),
        ("reconstruction_rss", np.ones((SLICES, SIZE, SIZE), np.complex64), "reconstruction_rss", "complex64"),
    ],
)
def test_what_is_wrong_inside_is_named(path, name, array, field, word, refuse):
    with h5py.File(path, "r+") as file:
        del file[name]
        file[name] = array
    refuse(path, word, field=field)


def test_k_space_of_another_file_is_not_followed(path, tmp_path, kspace, refuse):
    other = write(tmp_path / "other.h5", kspace[:1])
    with h5py.File(path, "r+") as file:
        del file["kspace"]
        file["kspace"] = h5py.ExternalLink(str(other), "kspace")
    refuse(path, "leads", field="kspace")


def test_files_cut_short_are_refused(path, refuse):
    whole = path.read_bytes()
    for length in (8, 2000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refuse(path)
