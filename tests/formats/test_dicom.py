from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import nibabel
import numpy as np
import pydicom
import pytest
import torch

from upmri import InputError, Reconstruction, __version__
from upmri.formats import check_target, dicom, save

ROTATION = np.linalg.qr(np.array([[2.0, 1.0, -1.0], [0.5, -3.0, 1.0], [1.0, 1.0, 4.0]]))[0]
DIRECTIONS = {
    "axial": np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
    "sagittal": np.array([[0, 0, -1], [0, 1, 0], [1, 0, 0]]),
    "oblique": ROTATION,
    "other-handed": ROTATION * [[1], [1], [-1]],
    "readout reversed": ROTATION * [[-1], [1], [1]],
}


def geometry(directions) -> dict[str, list[float]]:
    readout, phase, slice_ = np.asarray(directions, float).tolist()
    return {"position": [-91.5, 40.25, 12.125], "readout": readout, "phase": phase, "slice": slice_}


@pytest.fixture
def plain(rec) -> Reconstruction:
    """Three slices without deviations."""
    return replace(rec, samples=None, std=None)


@pytest.fixture(params=DIRECTIONS)
def placed(plain, request) -> Reconstruction:
    """The same, lying somewhere in the scanner."""
    return replace(plain, meta={"geometry": geometry(DIRECTIONS[request.param])})


def read(folder) -> list[pydicom.Dataset]:
    return [pydicom.dcmread(path) for path in sorted(folder.iterdir()) if path.name != "std.dcm"]


def values(image: pydicom.Dataset) -> np.ndarray:
    return image.pixel_array * float(image.RescaleSlope) + float(image.RescaleIntercept)


def run(*command: object) -> str:
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# --- the images -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-30, 1e-5, 1.0, 1e30])
def test_pydicom_reads_the_magnitudes_back(tmp_path, plain, scale):
    rec = replace(plain, image=plain.image * scale)
    folder = save(rec, tmp_path / "x.dcm")
    assert sorted(path.name for path in folder.iterdir()) == ["0001.dcm", "0002.dcm", "0003.dcm"]
    for image, expected in zip(read(folder), rec.image.abs().numpy().astype(float), strict=True):
        assert (image.Rows, image.Columns, image.pixel_array.dtype) == (8, 6, np.uint16)
        np.testing.assert_allclose(values(image), expected, rtol=0, atol=0.5001 * float(image.RescaleSlope))
    assert len({image.RescaleSlope for image in read(folder)}) == 1
    assert max(image.pixel_array.max() for image in read(folder)) == 2**16 - 1


def test_black_is_black(tmp_path):
    (image,) = read(save(Reconstruction(image=np.zeros((4, 4))), tmp_path / "x.dcm"))
    assert not values(image).any()
    assert (image.WindowCenter, image.WindowWidth) == (0.5, 1)


def test_the_window_is_from_0_to_the_999th_thousandth(tmp_path):
    ramp = np.arange(2000.0).reshape(1, 40, 50)
    (image,) = read(save(Reconstruction(image=ramp), tmp_path / "x.dcm"))
    white = np.percentile(ramp, 99.9)
    assert (image.WindowCenter, image.WindowWidth) == (pytest.approx(white / 2), pytest.approx(white))
    assert image.VOILUTFunction == "LINEAR_EXACT"


def test_slices_are_in_order(tmp_path):
    volume = np.arange(1.0, 13)[:, None, None] * np.ones((1, 2, 3))
    images = read(save(Reconstruction(image=volume, spacing=(1, 1, 2.5)), tmp_path / "x.dcm"))
    assert [image.InstanceNumber for image in images] == list(range(1, 13))
    np.testing.assert_allclose([values(image)[0, 0] for image in images], np.arange(1, 13), rtol=1e-4)
    np.testing.assert_allclose([image.ImagePositionPatient[2] for image in images], 2.5 * np.arange(12))


def test_every_voxel_lies_where_the_scan_says(tmp_path, placed):
    given = {name: np.array(vector) for name, vector in placed.meta["geometry"].items()}
    for k, image in enumerate(read(save(placed, tmp_path / "x.dcm"))):
        # PS3.3 C.7.6.2.1.1: the column index goes along the first direction, by the second spacing.
        along_row, along_column = np.reshape(image.ImageOrientationPatient, (2, 3)).astype(float)
        between_rows, between_columns = map(float, image.PixelSpacing)
        for i, j in [(0, 0), (7, 0), (0, 5), (7, 5)]:
            found = np.array(image.ImagePositionPatient, float)
            found += j * between_columns * along_row + i * between_rows * along_column
            at = zip(("readout", "phase", "slice"), placed.spacing, (i, j, k), strict=True)
            expected = given["position"] + sum(n * step * given[axis] for axis, step, n in at)
            np.testing.assert_allclose(found, expected, atol=1e-6)
        assert (image.SliceThickness, image.SpacingBetweenSlices) == (4, 4)
        assert "not known" not in image.ImageComments


def test_what_is_not_known_is_axial_and_has_a_comment(tmp_path, plain):
    first, second, _ = read(save(plain, tmp_path / "x.dcm"))
    assert list(first.ImageOrientationPatient) == [1, 0, 0, 0, 1, 0]
    assert (list(first.PixelSpacing), list(first.ImagePositionPatient)) == ([0.9, 1.1], [0, 0, 0])
    assert list(second.ImagePositionPatient) == [0, 0, 4]
    assert "orientation are not known" in first.ImageComments
    assert "Voxel size" not in first.ImageComments
    (image,) = read(save(Reconstruction(image=np.ones((2, 2))), tmp_path / "y.dcm"))
    assert (list(image.PixelSpacing), image.SliceThickness) == ([1, 1], 1)
    assert "Voxel size is not known: 1 mm" in image.ImageComments


@pytest.mark.parametrize(
    "wrong",
    [
        "axial",
        [],
        {},
        {"position": None},
        {"position": [0, 0]},
        {"position": [0, 0, float("nan")]},
        {"position": [0, 0, 1e9]},
        {"position": [0, 0, 10**400]},
        {"position": [0, 0, "1"]},
        {"position": [0, 0, True]},
        {"slice": [0, 0, 2]},
        {"slice": [0, 0.1, 1]},
        {"slice": [1, 0, 0]},
        {"phase": {"x": 1}},
    ],
)
@pytest.mark.parametrize("suffix", [".dcm", ".nii.gz"])
def test_a_place_that_makes_no_sense_is_refused(tmp_path, plain, wrong, suffix):
    if isinstance(wrong, dict) and wrong:
        wrong = geometry(DIRECTIONS["axial"]) | wrong
    with pytest.raises(InputError) as error:
        save(replace(plain, meta={"geometry": wrong}), tmp_path / f"x{suffix}")
    assert error.value.field == 'meta["geometry"]'
    assert not list(tmp_path.iterdir())


def test_directions_with_the_rounding_of_single_precision_are_welcome(tmp_path, plain):
    rounded = geometry(DIRECTIONS["oblique"].astype(np.float32).round(4))
    first, *_ = read(save(replace(plain, meta={"geometry": rounded}), tmp_path / "x.dcm"))
    directions = np.reshape(first.ImageOrientationPatient, (2, 3)).astype(float)
    np.testing.assert_allclose(directions @ directions.T, np.eye(2), atol=1e-9)


# --- what it says -----------------------------------------------------------------------------------------------------


def test_it_says_what_made_it_and_what_it_is_not_for(tmp_path, plain):
    settings = {"model": "/home/someone/my brain.safetensors", "sha256": "0123456789abcdef" * 4}
    for image in read(save(replace(plain, method="upmri", settings=settings), tmp_path / "x.dcm")):
        assert image.SeriesDescription == "UPMRI upmri NOT FOR CLINICAL USE"
        assert image.ImageComments.startswith("NOT FOR CLINICAL USE")
        assert image.DerivationDescription == (
            f"UPMRI 0.0.1, method upmri, weights my brain.safetensors, sha256 {settings['sha256']}"
        )
        assert image.SoftwareVersions == f"UPMRI {__version__}"
        assert image.ImageType[0] == "DERIVED"


def test_uids_are_valid_and_new_each_time(tmp_path, plain):
    images = [image for name in "xy" for image in read(save(plain, tmp_path / f"{name}.dcm"))]
    for name, count in {"SOPInstanceUID": 6, "SeriesInstanceUID": 2, "StudyInstanceUID": 2}.items():
        uids = {image[name].value for image in images}
        assert len(uids) == count
        assert all(uid.is_valid and uid.startswith("2.25.") for uid in uids)
    assert all(image.file_meta.MediaStorageSOPInstanceUID == image.SOPInstanceUID for image in images)


HOSTILE = "a\\b\n\x1b[31m\0ö\u202e\ud800=^" + "z" * 3000


def test_hostile_names_and_meta_stay_text(tmp_path, plain):
    rec = replace(
        plain,
        name="Doe^John" + HOSTILE,
        method=HOSTILE,
        settings={"model": "../" + HOSTILE, "sha256": HOSTILE},
        versions={"upmri": HOSTILE},
        meta={"PatientName": "Doe^John", "StudyInstanceUID": "1.2", "(0010,0010)": "Doe^John", HOSTILE: HOSTILE},
    )
    folder = save(rec, tmp_path / "Doe^John [x] $(y).dcm")
    for path in folder.iterdir():
        assert b"Doe" not in path.read_bytes()
    for image in read(folder):
        texts = [image.SeriesDescription, image.DerivationDescription, image.ImageComments]
        assert all(isinstance(text, str) and text.isascii() and text.isprintable() for text in texts)
        assert not any("\\" in text for text in texts)
        assert len(image.SeriesDescription) <= 64
        assert len(image.DerivationDescription) <= 1024
        assert image.SeriesDescription.startswith("UPMRI a?b??[31m?")
        assert image.SeriesDescription.endswith("NOT FOR CLINICAL USE")
    assert not [line for line in run("dciodvfy", folder / "0001.dcm").splitlines() if line.startswith("Error")]


def test_nothing_is_said_of_the_patient(tmp_path, rec):
    pytest.importorskip("highdicom")
    for path in save(replace(rec, name="Doe", meta={"PatientID": "123"}), tmp_path / "x.dcm").iterdir():
        image = pydicom.dcmread(path)
        said = [element for element in image.group_dataset(0x0010) if element.value]
        assert not said
        assert not any((image.StudyDate, image.StudyTime, image.AccessionNumber, image.ReferringPhysicianName))


def test_it_has_no_phase(tmp_path, plain, refuse):
    for refuse in (lambda path: save(plain, path, complex=True), lambda path: check_target(path, complex=True)):
        with pytest.raises(InputError) as error:
            refuse(tmp_path / "x.dcm")
        assert error.value.path == str(tmp_path / "x.dcm")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["image", "std"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(tmp_path, rec, name, value, refused):
    getattr(rec, name)[1, 2, 3] = value
    with refused("finite", field=name):
        save(rec, tmp_path / "x.dcm")
    assert not list(tmp_path.iterdir())


def test_more_than_dicom_counts_is_refused(tmp_path, rec, monkeypatch, refused):
    with refused("65535", field="image"):
        save(Reconstruction(image=np.ones((1, 65536, 1))), tmp_path / "x.dcm")
    monkeypatch.setattr(dicom, "_MOST_BYTES", 2 * 8 * 6)
    with refused("4 GiB", field="std"):
        save(rec, tmp_path / "x.dcm")
    assert not list(tmp_path.iterdir())


# --- the folder -------------------------------------------------------------------------------------------------------


def test_a_series_is_replaced_only_when_allowed_and_only_its_own(tmp_path, plain, refused):
    folder = save(plain, tmp_path / "x.DCM")
    with refused("exists", path=folder):
        save(plain, folder)
    save(replace(plain, image=plain.image[:1], reference=None), folder, overwrite=True)
    assert [path.name for path in folder.iterdir()] == ["0001.dcm"]
    theirs = pydicom.dcmread(folder / "0001.dcm")
    theirs.file_meta.ImplementationClassUID = "1.2.3"
    theirs.save_as(folder / "0002.dcm")
    with refused("'0002.dcm'", path=folder):
        save(plain, folder, overwrite=True)
    with refused("'0002.dcm'", path=folder):
        check_target(folder, overwrite=True)
    assert sorted(path.name for path in folder.iterdir()) == ["0001.dcm", "0002.dcm"]


def test_only_dicom_that_upmri_wrote_is_its_own(tmp_path, rec):
    pytest.importorskip("highdicom")
    folder = save(rec, tmp_path / "x.dcm")
    assert all(dicom.is_ours(path) for path in folder.iterdir())
    other = tmp_path / "y.dcm"
    for content in (b"", b"DICM", (folder / "0001.dcm").read_bytes()[1:]):
        other.write_bytes(content)
        assert not dicom.is_ours(other)
    shutil.copy(folder / "0001.dcm", tmp_path / "y.txt")
    assert not dicom.is_ours(tmp_path / "y.txt")
    assert not dicom.is_ours(tmp_path / "absent.dcm")


def test_a_full_disk_leaves_the_series_that_was_there(tmp_path, plain, monkeypatch, refused):
    folder = save(plain, tmp_path / "x.dcm")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused("No space left on device", path=folder):
        save(plain, folder, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["x.dcm"]


# --- the map of deviations --------------------------------------------------------------------------------------------


def test_deviations_are_a_map_of_the_same_place(tmp_path, placed, rec):
    pytest.importorskip("highdicom")
    folder = save(replace(placed, std=rec.std), tmp_path / "x.dcm")
    images, std = read(folder), pydicom.dcmread(folder / "std.dcm")
    assert std.SOPClassUID.name == "Parametric Map Storage"
    assert std.SeriesDescription == "UPMRI std of cg-sense NOT FOR CLINICAL USE"
    assert std.ImageComments == images[0].ImageComments
    assert std.DerivationDescription == images[0].DerivationDescription
    for name in ("StudyInstanceUID", "FrameOfReferenceUID"):
        assert std[name].value == images[0][name].value
    assert std.SeriesInstanceUID != images[0].SeriesInstanceUID
    (shared,) = std.SharedFunctionalGroupsSequence
    (mapping,) = shared.RealWorldValueMappingSequence
    assert (mapping.RealWorldValueSlope, mapping.RealWorldValueIntercept) == (1, 0)
    orientation = shared.PlaneOrientationSequence[0].ImageOrientationPatient
    assert orientation == images[0].ImageOrientationPatient
    assert shared.PixelMeasuresSequence[0].PixelSpacing == images[0].PixelSpacing
    expected = {tuple(image.ImagePositionPatient): k for k, image in enumerate(images)}
    frames = list(zip(std.PerFrameFunctionalGroupsSequence, std.pixel_array, strict=True))
    assert len(frames) == len(expected) == 3
    for group, pixels in frames:
        k = expected[tuple(group.PlanePositionSequence[0].ImagePositionPatient)]
        np.testing.assert_array_equal(pixels, rec.std[k].numpy())


def test_a_single_slice_without_deviation_is_a_map_too(tmp_path):
    pytest.importorskip("highdicom")
    rec = Reconstruction(image=np.ones((4, 3)), std=np.zeros((4, 3)))
    std = pydicom.dcmread(save(rec, tmp_path / "x.dcm") / "std.dcm")
    assert not std.pixel_array.any()


def test_without_highdicom_the_error_says_what_to_do(tmp_path, rec, plain, monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "highdicom", None)
    with refused("upmri[dicom]", field="std"):
        save(rec, tmp_path / "x.dcm")
    assert not list(tmp_path.iterdir())
    save(plain, tmp_path / "x.dcm")


# --- what others make of it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slices", [1, 3])
def test_dciodvfy_finds_no_errors(tmp_path, rec, slices):
    pytest.importorskip("highdicom")
    some = Reconstruction(image=rec.image[:slices], std=rec.std[:slices], spacing=rec.spacing, method="upmri")
    for path in save(some, tmp_path / "x.dcm").iterdir():
        said = run("dciodvfy", path)
        assert ("ParametricMap" if path.name == "std.dcm" else "MRImage") in said
        assert not [line for line in said.splitlines() if line.startswith("Error")]


def same_world(ours, theirs, atol) -> None:
    """Every voxel of ours is a voxel of theirs at the same place, of the same value."""
    assert sorted(ours.shape) == sorted(theirs.shape)
    index = np.indices(ours.shape).reshape(3, -1)
    world = nibabel.affines.apply_affine(ours.affine, index.T)
    found = nibabel.affines.apply_affine(np.linalg.inv(theirs.affine), world)
    np.testing.assert_allclose(found, np.rint(found), atol=1e-3)
    at = tuple(np.rint(found).astype(int).T)
    np.testing.assert_allclose(theirs.get_fdata()[at], ours.get_fdata()[tuple(index)], rtol=0, atol=atol)


def test_dcm2niix_reads_the_same_image_at_the_same_place_as_our_nifti(tmp_path, placed, rec):
    pytest.importorskip("highdicom")
    full = replace(placed, std=rec.std)
    folder = save(full, tmp_path / "x.dcm")
    (tmp_path / "out").mkdir()
    run("dcm2niix", "-b", "n", "-z", "n", "-f", "%s", "-o", tmp_path / "out", folder)
    save(full, tmp_path / "x.nii.gz")
    slope = float(read(folder)[0].RescaleSlope)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["1.nii", "2.nii"]
    same_world(nibabel.load(tmp_path / "x.nii.gz"), nibabel.load(tmp_path / "out" / "1.nii"), atol=0.51 * slope)
    same_world(nibabel.load(tmp_path / "x_std.nii.gz"), nibabel.load(tmp_path / "out" / "2.nii"), atol=0)


def test_dcm2niix_reads_a_single_slice(tmp_path):
    image = torch.arange(12.0).reshape(1, 4, 3)
    rec = Reconstruction(image=image, spacing=(2, 3, 4), meta={"geometry": geometry(ROTATION)})
    folder = save(rec, tmp_path / "x.dcm")
    (tmp_path / "out").mkdir()
    run("dcm2niix", "-b", "n", "-z", "n", "-f", "x", "-o", tmp_path / "out", folder)
    same_world(nibabel.load(save(rec, tmp_path / "x.nii")), nibabel.load(tmp_path / "out" / "x.nii"), atol=1e-3)


def test_frames_have_their_number_in_time_and_the_position_of_their_place(tmp_path):
    rec = Reconstruction(image=torch.rand(4, 4, 5) + 0j, spacing=(1, 1, 8), meta={"axes": {"phase": 2, "slice": 2}})
    files = [pydicom.dcmread(file) for file in sorted(save(rec, tmp_path / "x.dcm").iterdir())]
    assert [file.TemporalPositionIdentifier for file in files] == [1, 1, 2, 2]
    assert {file.NumberOfTemporalPositions for file in files} == {2}
    assert [float(file.ImagePositionPatient[2]) for file in files] == [0, 8, 0, 8]


SCANNER = {
    "vendor": "SIEMENS",
    "model": "Prisma",
    "field_strength": 2.89362,
    "echo_time": [4.5],
    "repetition_time": 2300,
}


def test_scanner_and_times_are_kept(tmp_path, plain):
    meta = {"scanner": SCANNER, "PatientName": "Miller"}
    for image in read(save(replace(plain, meta=meta), tmp_path / "i.dcm")):
        assert (image.Manufacturer, image.ManufacturerModelName) == ("SIEMENS", "Prisma")
        assert (image.MagneticFieldStrength, image.EchoTime, image.RepetitionTime) == (2.89362, 4.5, 2300)
        assert "Miller" not in str(image)
        assert image.SoftwareVersions.startswith("UPMRI")


def test_echoes_have_their_own_times(tmp_path, plain):
    meta = {"scanner": {"echo_time": [5.0, 10.0, 15.0]}, "axes": {"echo": 3}}
    assert [image.EchoTime for image in read(save(replace(plain, meta=meta), tmp_path / "i.dcm"))] == [5, 10, 15]


@pytest.mark.parametrize(
    "scanner",
    [None, "Prisma", {}, {"vendor": 3, "echo_time": "4", "field_strength": -1}, {"repetition_time": float("inf")}],
)
def test_scanners_that_are_not_known_stay_empty(tmp_path, plain, scanner):
    image = read(save(replace(plain, meta={"scanner": scanner}), tmp_path / "i.dcm"))[0]
    assert (image.Manufacturer, image.EchoTime, image.RepetitionTime) == ("UPMRI", None, None)
    assert "MagneticFieldStrength" not in image


def test_dciodvfy_finds_no_errors_with_a_scanner(tmp_path, rec):
    folder = save(replace(rec, meta={"scanner": SCANNER}), tmp_path / "i.dcm")
    assert not [line for line in run("dciodvfy", folder / "0001.dcm").splitlines() if line.startswith("Error")]
