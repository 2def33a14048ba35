from __future__ import annotations

from dataclasses import replace

import nibabel
import numpy as np
import pydicom
import pytest

from upmri import Reconstruction
from upmri.formats import check_target, load_images_with_spacing, nifti, save


def assumed(rows: float, columns: float, thickness: float) -> np.ndarray:
    """The matrix of an image of unknown geometry: rows to the back, columns to the left, slices to the head."""
    return np.array([[0, -columns, 0, 0], [-rows, 0, 0, 0], [0, 0, thickness, 0], [0, 0, 0, 1]], float)


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
    np.testing.assert_allclose(image.affine, assumed(*rec.spacing), rtol=1e-6)
    assert image.header.get_xyzt_units()[0] == "mm"
    image = nibabel.load(save(Reconstruction(image=gaussian(1, 4, 4)), tmp_path / "y.nii"))
    np.testing.assert_array_equal(image.affine, assumed(1, 1, 1))


def test_what_is_not_known_has_the_axes_of_dicom(tmp_path, rec):
    """Both exports of an image show left and right alike; the header says that its coordinates are no scanner's."""
    image = nibabel.load(save(rec, tmp_path / "x.nii"))
    first, second, *_ = sorted(save(replace(rec, samples=None, std=None), tmp_path / "x.dcm").iterdir())
    first, second = pydicom.dcmread(first), pydicom.dcmread(second)
    along_row, along_column = np.reshape(first.ImageOrientationPatient, (2, 3)).astype(float)
    between_rows, between_columns = map(float, first.PixelSpacing)
    across = np.subtract(second.ImagePositionPatient, first.ImagePositionPatient).astype(float)
    in_dicom = np.stack([along_column * between_rows, along_row * between_columns, across], axis=1)
    np.testing.assert_allclose(image.affine[:3, :3], np.diag([-1, -1, 1]) @ in_dicom, rtol=1e-6)
    np.testing.assert_array_equal(image.affine[:3, 3], first.ImagePositionPatient)
    assert nibabel.aff2axcodes(image.affine) == ("P", "L", "S")
    assert (image.header["sform_code"], image.header["qform_code"]) == (2, 0)
    assert image.header["descrip"].item() == b"UPMRI cg-sense, geometry unknown NOT FOR CLINICAL USE"


def test_images_are_read_back_as_they_were(tmp_path, rec):
    images, spacing = load_images_with_spacing(save(rec, tmp_path / "x.nii.gz", complex=True))
    np.testing.assert_array_equal(images, rec.image.numpy())
    assert spacing == rec.spacing


@pytest.mark.parametrize("method", ["cg-sense", "ö" * 99])
def test_it_says_what_it_is_and_what_it_is_not_for(tmp_path, gaussian, method):
    rec = Reconstruction(image=gaussian(1, 4, 4), method=method)
    description = nibabel.load(save(rec, tmp_path / "x.nii")).header["descrip"].item().decode()
    assert description.startswith("UPMRI " + method.replace("ö", "?")[:25] + ", geometry unknown")
    assert description.endswith(" NOT FOR CLINICAL USE")


def test_the_same_image_is_the_same_file(tmp_path, rec):
    a, b = save(rec, tmp_path / "a.nii.gz"), save(rec, tmp_path / "b.nii.gz")
    assert a.read_bytes() == b.read_bytes()
    assert a.read_bytes()[3:8] == bytes(5)  # no name and no time in the gzip header


def test_more_slices_than_nifti_counts_are_refused(tmp_path, refused):
    rec = Reconstruction(image=np.ones((40000, 1, 1), np.complex64))
    with refused("32767", field="image"):
        save(rec, tmp_path / "x.nii")
    assert not list(tmp_path.iterdir())


def test_voxels_lie_where_the_scan_says(tmp_path, rec):
    """An oblique volume: position and directions to the left, back and head become right, front and head."""
    turn = np.linalg.qr(np.array([[2.0, 1.0, -1.0], [0.5, -3.0, 1.0], [1.0, 1.0, 4.0]]))[0]
    for directions in (turn, turn * [[1], [1], [-1]]):  # of either hand
        place = dict(zip(("readout", "phase", "slice"), directions.tolist(), strict=True))
        placed = replace(rec, meta={"geometry": place | {"position": [10.0, -20.0, 30.0]}})
        image = nibabel.load(save(placed, tmp_path / "x.nii.gz", overwrite=True))
        for corner in np.ndindex(2, 2, 2):
            index = np.array(corner) * (np.array(image.shape) - 1)
            left, back, head = [10.0, -20.0, 30.0] + (index * rec.spacing) @ directions
            found = nibabel.affines.apply_affine(image.affine, index)
            np.testing.assert_allclose(found, [-left, -back, head], atol=1e-4)
        assert (image.header["sform_code"], image.header["qform_code"]) == (1, 1)
        np.testing.assert_allclose(image.get_qform(), image.get_sform(), atol=1e-4)
        np.testing.assert_allclose(image.header.get_zooms(), rec.spacing, rtol=1e-6)
        beside = nibabel.load(tmp_path / "x_std.nii.gz")
        np.testing.assert_array_equal(beside.affine, image.affine)


@pytest.mark.parametrize("keep_phase", [True, False])
@pytest.mark.parametrize(("name", "beside"), [("x.nii.gz", "x_std.nii.gz"), ("x.y.NII", "x.y_std.NII")])
def test_deviations_are_written_beside(tmp_path, rec, name, beside, keep_phase):
    save(rec, tmp_path / name, complex=keep_phase)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, beside])
    std = nibabel.load(tmp_path / beside)
    assert std.get_data_dtype() == np.float32
    np.testing.assert_array_equal(np.asanyarray(std.dataobj), np.moveaxis(rec.std.numpy(), 0, -1))
    np.testing.assert_allclose(std.affine, assumed(*rec.spacing), rtol=1e-6)
    assert std.header["descrip"].item() == b"UPMRI std of cg-sense, geometry unknown NOT FOR CLINICAL USE"


def test_image_and_deviations_appear_together_or_not_at_all(tmp_path, rec, refused):
    (tmp_path / "x_std.nii.gz").write_text("precious")
    with refused("exists", path=tmp_path / "x_std.nii.gz"):
        save(rec, tmp_path / "x.nii.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["x_std.nii.gz"]
    assert (tmp_path / "x_std.nii.gz").read_text() == "precious"


@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
def test_deviations_of_the_image_that_is_replaced_do_not_stay(tmp_path, rec, name, refused):
    plain = replace(rec, samples=None, std=None)
    save(rec, tmp_path / name)
    save(plain, tmp_path / name, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    beside = nifti.std_path(tmp_path / name)
    for other in (b"precious", b"\x1f\x8bprecious", b""):
        before = (tmp_path / name).read_bytes()
        beside.write_bytes(other)
        with refused("UPMRI did not write it", path=beside):
            check_target(tmp_path / name, overwrite=True)
        with refused("UPMRI did not write it", path=beside):
            save(plain, tmp_path / name, overwrite=True)
        assert (beside.read_bytes(), (tmp_path / name).read_bytes()) == (other, before)
    beside.unlink()
    save(replace(plain, method="std of sense"), beside.with_name("y.nii"))
    beside.symlink_to("y.nii")
    with refused("UPMRI did not write it", path=beside):
        save(plain, tmp_path / name, overwrite=True)
    save(rec, tmp_path / name, overwrite=True)  # the image has deviations now


def test_without_deviations_there_is_one_file(tmp_path, rec):
    save(replace(rec, samples=None, std=None), tmp_path / "x.nii.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["x.nii.gz"]


@pytest.mark.parametrize("axes", [{"phase": 3, "slice": 2}, {"slice": 2, "repetition": 3}])
def test_frames_are_the_fourth_axis(tmp_path, gaussian, axes):
    rec = Reconstruction(image=gaussian(6, 4, 5), spacing=(1, 1, 8), meta={"axes": axes})
    image = nibabel.load(save(rec, tmp_path / "x.nii"))
    grid = rec.image.abs().numpy().reshape(*axes.values(), 4, 5)
    order = (2, 3, 1, 0) if next(iter(axes)) == "phase" else (2, 3, 0, 1)
    np.testing.assert_array_equal(np.asanyarray(image.dataobj), grid.transpose(order))
    assert image.header.get_zooms()[:3] == (1, 1, 8)


def test_places_with_different_numbers_of_frames_stay_slices(tmp_path, gaussian):
    frames = [{"slice": 0, "phase": 0}, {"slice": 0, "phase": 1}, {"slice": 1, "phase": 0}]
    rec = Reconstruction(image=gaussian(3, 4, 5), meta={"frames": frames})
    assert nibabel.load(save(rec, tmp_path / "x.nii")).shape == (4, 5, 3)
