from __future__ import annotations

import nibabel
import numpy as np
import pytest

from upmri import InputError, Reconstruction
from upmri.formats import save


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_nibabel_reads_the_magnitude_back(tmp_path, rec, suffix):
    image = nibabel.load(save(rec, tmp_path / f"x{suffix}"))
    assert image.get_data_dtype() == np.float32
    expected = np.moveaxis(rec.image.abs().numpy(), 0, -1)  # (readout, phase, slice)
    np.testing.assert_array_equal(np.asanyarray(image.dataobj), expected)


def test_nibabel_reads_the_phase_back(tmp_path, rec):
    image = nibabel.load(save(rec, tmp_path / "x.nii.gz", complex=True))
    assert image.get_data_dtype() == np.complex64
    np.testing.assert_array_equal(np.asanyarray(image.dataobj), np.moveaxis(rec.image.numpy(), 0, -1))


def test_voxels_have_their_size(tmp_path, rec, gaussian):
    image = nibabel.load(save(rec, tmp_path / "x.nii"))
    np.testing.assert_allclose(image.header.get_zooms(), rec.spacing, rtol=1e-6)
    np.testing.assert_allclose(image.affine, np.diag([*rec.spacing, 1]), rtol=1e-6)
    assert image.header.get_xyzt_units()[0] == "mm"
    image = nibabel.load(save(Reconstruction(image=gaussian(1, 4, 4)), tmp_path / "y.nii"))
    np.testing.assert_array_equal(image.affine, np.eye(4))


@pytest.mark.parametrize("method", ["cg-sense", "ö" * 99])
def test_it_says_what_it_is_and_what_it_is_not_for(tmp_path, gaussian, method):
    rec = Reconstruction(image=gaussian(1, 4, 4), method=method)
    description = nibabel.load(save(rec, tmp_path / "x.nii")).header["descrip"].item().decode()
    assert description.startswith("UPMRI " + method.replace("ö", "?")[:50])
    assert description.endswith(" NOT FOR CLINICAL USE")


def test_the_same_image_is_the_same_file(tmp_path, rec):
    a, b = save(rec, tmp_path / "a.nii.gz"), save(rec, tmp_path / "b.nii.gz")
    assert a.read_bytes() == b.read_bytes()
    assert a.read_bytes()[3:8] == bytes(5)  # no name and no time in the gzip header


def test_more_slices_than_nifti_counts_are_refused(tmp_path):
    rec = Reconstruction(image=np.ones((40000, 1, 1), np.complex64))
    with pytest.raises(InputError, match=r"x\.nii: NIfTI holds at most 32767"):
        save(rec, tmp_path / "x.nii")
    assert not list(tmp_path.iterdir())
