from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import torch

from upmri import formats
from upmri.formats import check_target, nifti, save, suffixes


@pytest.mark.parametrize(
    ("name", "coils", "matrix", "mask", "acceleration"),
    [
        ("invivo_brain_16ch_kspace", 16, (128, 128), (1, 1, 128), 1.0),
        ("brain_8ch_poisson_kspace", 8, (230, 180), (1, 230, 180), 8.04),
    ],
)
def test_real_scans_are_read(data, name, coils, matrix, mask, acceleration):
    path = data / "scans" / f"{name}.npy"
    with formats.open_source(path) as source:
        assert (source.slices, source.coils, source.matrix, source.name) == (1, coils, matrix, name)
        scan = source.read(slice(0, 1))
    assert scan.name == name
    assert (scan.coils, scan.matrix, tuple(scan.mask.shape)) == (coils, matrix, mask)
    assert scan.acceleration == pytest.approx(acceleration, rel=1e-3)
    assert torch.equal(scan.kspace[0], torch.from_numpy(np.load(path)).to(torch.complex64))


def test_nothing_heavy_is_imported_before_it_is_needed(fresh):
    heavy = {"h5py", "ismrmrd", "nibabel", "matplotlib", "PIL", "pydicom", "highdicom"}
    code = f"import sys, upmri.formats; sys.exit(bool({heavy} & set(sys.modules)))"
    fresh(code).check_returncode()


def test_npy_is_the_complex_image(tmp_path, rec):
    image = np.load(save(rec, tmp_path / "x.npy"))
    assert image.dtype == np.complex64
    np.testing.assert_array_equal(image, rec.image.numpy())


FILES = [suffix for suffix in suffixes() if suffix != ".dcm"]  # which is a folder; test_dicom.py


@pytest.mark.parametrize("suffix", FILES)
def test_every_suffix_writes_and_overwrites_when_allowed(tmp_path, rec, suffix, refused):
    path = tmp_path / f"x.y{suffix.upper()}"
    assert rec.save(str(path)) == path
    first = path.read_bytes()
    with refused("exists", path=path):
        rec.save(path)
    path.write_bytes(b"old")
    rec.save(path, overwrite=True)
    assert path.read_bytes() == first
    assert not [name for name in tmp_path.iterdir() if not name.name.startswith("x.y")]


@pytest.mark.parametrize("name", ["x", "x.jpg", "x.gz", ".", "x.h5.bak"])
def test_an_unknown_suffix_lists_the_known(tmp_path, rec, name, refused):
    with refused(".nii.gz, .nii, .h5, .npy, .cfl, .png", path=tmp_path / name):
        save(rec, tmp_path / name)
    with refused(".nii.gz", path=tmp_path / name):
        check_target(tmp_path / name)


def test_a_target_is_checked_before_the_work(tmp_path, rec, refused):
    check_target(tmp_path / "x.nii")
    assert not list(tmp_path.iterdir())
    save(rec, tmp_path / "x.nii")
    check_target(tmp_path / "x.nii", overwrite=True)
    with refused("exists", path=tmp_path / "x.nii"):
        check_target(tmp_path / "x.nii")
    with refused("magnitudes", path=tmp_path / "x.png"):
        check_target(tmp_path / "x.png", complex=True)
    with refused("folder", path=tmp_path / "absent" / "x.nii"):
        check_target(tmp_path / "absent" / "x.nii")


@pytest.mark.parametrize("keep_phase", [True, False])
def test_what_deviations_need_is_checked_before_the_work(tmp_path, monkeypatch, keep_phase, refused):
    (tmp_path / "x_std.nii.gz").write_text("precious")
    check_target(tmp_path / "x.nii.gz", complex=keep_phase)
    with refused("exists", path=tmp_path / "x_std.nii.gz"):
        check_target(tmp_path / "x.nii.gz", complex=keep_phase, deviations=True)
    check_target(tmp_path / "x.nii.gz", complex=keep_phase, deviations=True, overwrite=True)
    check_target(tmp_path / "x.nii", complex=keep_phase, deviations=True)
    monkeypatch.setitem(sys.modules, "highdicom", None)
    check_target(tmp_path / "x.dcm")
    check_target(tmp_path / "x.h5", deviations=True)
    with refused("upmri[dicom]", field="std"):
        check_target(tmp_path / "x.dcm", deviations=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x_std.nii.gz"]


def test_a_missing_folder_is_named(tmp_path, rec, refused):
    with refused(str(tmp_path / "absent"), path=tmp_path / "absent" / "x.nii"):
        save(rec, tmp_path / "absent" / "x.nii")


@pytest.mark.parametrize("suffix", FILES)
def test_a_full_disk_leaves_what_was_there(tmp_path, rec, suffix, monkeypatch, refused):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused("No space left on device", path=path):
        save(rec, path, overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"


def test_a_writer_that_fails_half_way_leaves_nothing(tmp_path, rec, monkeypatch):
    monkeypatch.setattr(nifti, "describe", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(rec, tmp_path / "x.nii")
    assert not list(tmp_path.iterdir())


def test_slices_out_of_range_name_the_file_and_the_count(tmp_path, scan, refuse):
    scan.save(tmp_path / "x.h5")
    refuse(tmp_path / "x.h5", "5 slices", field="slices", slices="3:7")
