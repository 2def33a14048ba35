from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import h5py
import ismrmrd
import nibabel
import numpy as np
import pydicom
import pytest
import torch

from upmri import InputError, cli, load, reconstruct
from upmri.formats import mrd, open_source, save
from upmri.inference.whole_series import frames_of_places
from upmri.physics.epi import Ramp
from upmri.physics.fourier import fft1c, fft2c, ifft1c, ifft2c
from upmri.physics.frames import places

SAMPLES, LINES, COILS = 16, 6, 2
SHEPP_LOGAN = "ismrmrd_generate_cartesian_shepp_logan"


def xml(
    samples=SAMPLES, lines=LINES, partitions=1, cut=2, trajectory="cartesian", centre=None, more="", head=""
) -> str:
    centre = lines // 2 if centre is None else centre
    return f"""<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
    <subjectInformation><patientName>Jane Doe</patientName><patientID>4711</patientID></subjectInformation>{head}
    <encoding><encodedSpace><matrixSize><x>{samples}</x><y>{lines}</y><z>{partitions}</z></matrixSize>
      <fieldOfView_mm><x>{100 * cut}</x><y>120</y><z>5</z></fieldOfView_mm></encodedSpace>
    <reconSpace><matrixSize><x>{samples // cut}</x><y>{lines}</y><z>{partitions}</z></matrixSize>
      <fieldOfView_mm><x>100</x><y>120</y><z>5</z></fieldOfView_mm></reconSpace>
    <encodingLimits>
      <kspace_encoding_step_1><center>{centre}</center></kspace_encoding_step_1>
      <kspace_encoding_step_2><center>{partitions // 2}</center></kspace_encoding_step_2>
    </encodingLimits><trajectory>{trajectory}</trajectory>{more}</encoding></ismrmrdHeader>"""


def readout(data, line=0, flags=(), centre=None, partition=0, space=0, dwell=5.0, position=(0, 0, 0), **idx):
    acquisition = ismrmrd.Acquisition.from_array(np.ascontiguousarray(data, np.complex64))
    acquisition.center_sample = data.shape[-1] // 2 if centre is None else centre
    acquisition.sample_time_us = dwell
    acquisition.encoding_space_ref = space
    acquisition.position[:] = position
    for name, direction in zip(("read_dir", "phase_dir", "slice_dir"), idx.pop("directions", ()), strict=False):
        getattr(acquisition, name)[:] = direction
    acquisition.discard_pre, acquisition.discard_post = idx.pop("discard", (0, 0))
    acquisition.idx.kspace_encode_step_1, acquisition.idx.kspace_encode_step_2 = line, partition
    for name, value in idx.items():
        setattr(acquisition.idx, name, value)
    for flag in flags:
        acquisition.setFlag(flag)
    return acquisition


def write(path: Path, readouts, header: str | bytes | None = None, group="dataset") -> Path:
    with ismrmrd.Dataset(str(path), group, mode="a") as file:
        file.write_xml_header(xml() if header is None else header)
        append(file, list(readouts))
    return path


def append(file: ismrmrd.Dataset, readouts: list) -> None:
    """What ``append_acquisition`` does with each of them; the others after the first at once, which is much faster."""
    for one in readouts[:1]:
        file.append_acquisition(one)
    rows = np.empty(len(readouts[1:]), ismrmrd.hdf5.acquisition_dtype)
    for row, one in zip(rows, readouts[1:], strict=True):
        row["head"] = np.frombuffer(one.getHead(), ismrmrd.hdf5.acquisition_header_dtype)[0]
        row["data"], row["traj"] = one.data.view(np.float32).ravel(), one.traj.view(np.float32).ravel()
    if len(rows):
        stored = file._dataset["data"]
        stored.resize(len(stored) + len(rows), axis=0)
        stored[-len(rows) :] = rows


def image(*shape: int, seed: int = 0) -> torch.Tensor:
    """Coil images (…, coil, readout, phase), nothing of which lies outside the field of view."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64))


def measured(truth: torch.Tensor, samples: int = SAMPLES) -> np.ndarray:
    """K-space (coil, line, sample) of (coil, readout, phase) with the readout oversampled."""
    wide = torch.zeros(truth.shape[0], samples, truth.shape[2], dtype=truth.dtype)
    first = samples // 2 - truth.shape[1] // 2
    wide[:, first : first + truth.shape[1]] = truth
    return fft2c(wide).mT.numpy()


def readouts(kspace: np.ndarray, **options) -> list:
    return [readout(kspace[:, line], line, **options) for line in range(kspace.shape[1])]


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-5) -> bool:
    return bool((a - b).norm() <= tolerance * b.norm())


def test_all_at_once_are_stored_as_one_by_one(tmp_path):
    """That of the official package, which the tests here replace because it is slow."""
    made = readouts(measured(image(COILS, SAMPLES // 2, LINES)), position=(1, 2, 3))
    turned = ismrmrd.Acquisition.from_array(made[0].data, np.ones((SAMPLES, 2), np.float32))
    made.append(turned)
    with ismrmrd.Dataset(str(tmp_path / "x.h5"), "dataset") as one, ismrmrd.Dataset(str(tmp_path / "y.h5")) as other:
        append(one, made)
        for acquisition in made:
            other.append_acquisition(acquisition)
        found, expected = (file._dataset["data"] for file in (one, other))
        assert (found.dtype, found.chunks, found.shape) == (expected.dtype, expected.chunks, expected.shape)
        for a, b in zip(found[()], expected[()], strict=True):
            assert a["head"] == b["head"]
            np.testing.assert_array_equal(a["data"], b["data"])
            np.testing.assert_array_equal(a["traj"], b["traj"])
        assert len(found[-1]["traj"]) == 2 * SAMPLES


@pytest.fixture
def truth() -> torch.Tensor:
    return image(COILS, SAMPLES // 2, LINES)


@pytest.fixture
def simple(tmp_path, truth) -> Path:
    return write(tmp_path / "x.h5", readouts(measured(truth)))


# --- files that others write ------------------------------------------------------------------------------------------


def generate(path: Path, *options: str) -> Path:
    if shutil.which(SHEPP_LOGAN) is None:
        pytest.skip(f"{SHEPP_LOGAN} is not installed")
    subprocess.run([SHEPP_LOGAN, *options, "-o", str(path)], check=True, capture_output=True)
    return path


def stored(path: Path, name: str) -> torch.Tensor:
    with h5py.File(path) as file:
        data = file[f"dataset/{name}"][0]
    return torch.from_numpy((data["real"] + 1j * data["imag"]).astype(np.complex64)).mT


def test_the_image_of_the_official_generator_is_what_it_says(tmp_path):
    path = generate(tmp_path / "x.h5", "-m", "32", "-c", "4", "-n", "0")
    scan = load(path)
    assert (scan.matrix, scan.coils, len(scan), scan.noise, scan.meta) == ((32, 32), 4, 1, None, {})
    assert scan.spacing == pytest.approx((300 / 32, 300 / 32, 6))
    assert scan.mask.shape == (1, 1, 32)
    assert close(ifft2c(scan.kspace[0]), stored(path, "csm") * stored(path, "phantom"))


def test_the_official_generator_accelerated_with_noise_and_calibration(tmp_path):
    path = generate(tmp_path / "x.h5", "-m", "64", "-c", "4", "-n", "0.02", "-a", "4", "-w", "24", "-C", "-r", "2")
    with open_source(path) as source:
        assert (source.format, source.slices, source.coils, source.matrix) == ("ISMRMRD", 8, 4, (64, 64))
        scan = source.read("2:4")
        covariance = source._covariance
    assert scan.noise == 1
    assert scan.meta["axes"] == {"repetition": 8}
    assert scan.meta["noise"].startswith("coils whitened with 128 noise samples")
    expected = torch.zeros(2, 64, dtype=torch.bool)
    expected[:, 20:44] = True  # the generator's calibration
    expected[0, 2::4] = expected[1, 3::4] = True
    assert torch.equal(scan.mask[:, 0], expected)
    factor = torch.linalg.cholesky(covariance).to(torch.complex64)
    coil_images = stored(path, "csm") * stored(path, "phantom")
    clean = fft2c(torch.linalg.solve_triangular(factor, coil_images.flatten(1), upper=False).reshape(4, 64, 64))
    noise = (scan.kspace[0] - clean)[:, :, expected[0]]
    assert noise.abs().square().mean().item() == pytest.approx(1, abs=0.1)
    rec = reconstruct(scan[0], "sense")
    phantom = stored(path, "phantom").abs()
    found = rec.image[0].abs()
    found = found * (found * phantom).sum() / found.square().sum()
    assert (found - phantom).norm() < 0.25 * phantom.norm()


# --- where readouts go ------------------------------------------------------------------------------------------------


def test_oversampling_is_cut_away(simple, truth):
    scan = load(simple)
    assert close(ifft2c(scan.kspace[0]), truth)
    assert scan.spacing == pytest.approx((12.5, 20, 5))
    assert scan.name == "x"


def test_a_readout_without_oversampling_is_not_touched(tmp_path, truth):
    kspace = measured(truth, SAMPLES // 2)
    scan = load(write(tmp_path / "x.h5", readouts(kspace), xml(samples=SAMPLES // 2, cut=1)))
    assert torch.equal(scan.kspace[0], torch.from_numpy(kspace).mT)


def test_the_patient_stays_out(simple):
    scan = load(simple)
    assert "Jane" not in repr(scan.meta)
    assert "4711" not in repr(scan.meta)


def test_frames_lie_along_the_slice_axis_slices_fastest_in_the_order_of_their_places(tmp_path):
    truths = image(2, 3, COILS, SAMPLES // 2, LINES)
    heights = {0: 4.0, 1: -1.0, 2: 1.5}  # of slices as they are counted
    found = [
        one
        for repetition in range(2)
        for number in (2, 0, 1)
        for one in readouts(
            measured(truths[repetition, number]),
            slice=number,
            repetition=repetition,
            position=(0.0, heights[number], 0.1),
        )
    ]
    path = write(tmp_path / "x.h5", found)
    scan = load(path)
    assert scan.meta["axes"] == {"repetition": 2, "slice": 3}
    assert close(ifft2c(scan.kspace), truths[:, [1, 2, 0]].flatten(0, 1))
    assert torch.equal(load(path, "1::2").kspace, scan.kspace[1::2])
    assert torch.equal(load(path, -1).kspace, scan.kspace[-1:])


def test_contrasts_phases_and_sets_are_frames_and_gaps_are_named(tmp_path, truth):
    kinds = [{"contrast": 1}, {"phase": 2}, {"set": 1, "contrast": 1}]
    scan = load(write(tmp_path / "x.h5", [one for kind in kinds for one in readouts(measured(truth), **kind)]))
    assert "axes" not in scan.meta
    assert scan.meta["frames"] == [
        {"phase": 0, "set": 0, "contrast": 1},
        {"phase": 0, "set": 1, "contrast": 1},
        {"phase": 2, "set": 0, "contrast": 0},
    ]


def test_a_series_with_a_frame_missing_is_reconstructed_over_time(tmp_path, truth):
    kept = [{"phase": 0}, {"phase": 1}, {"phase": 2}, {"phase": 0, "slice": 1}, {"phase": 2, "slice": 1}]
    path = write(tmp_path / "x.h5", [one for kind in kept for one in readouts(measured(truth), **kind)])
    scan = load(path)
    assert places(scan.meta, len(scan)) == [0, 1, 0, 0, 1]
    assert places(load(path, "1::3").meta, 2) == [0, 0]
    with open_source(path) as source:  # a slice alone names the frames of the whole file, too
        assert source.read(2).meta["frames"] == scan.meta["frames"]
        assert frames_of_places(source.read(2).meta, source.slices) == [[0, 2, 3], [1, 4]]


def test_averages_are_averaged(tmp_path, truth):
    kspace = measured(truth)
    noise = [readout(image(COILS, 500, seed=9).numpy(), flags=[19])]
    both = readouts(0.5 * kspace, average=0) + readouts(1.5 * kspace, average=1)
    scan = load(write(tmp_path / "x.h5", both))
    assert close(ifft2c(scan.kspace[0]), truth)
    assert scan.meta["averages"] == 2
    scan = load(write(tmp_path / "y.h5", noise + both))
    assert scan.noise == pytest.approx(2**-0.5)


def test_partial_fourier_lines_find_their_place_and_the_rest_is_unsampled(tmp_path, truth):
    kspace = measured(truth)
    found = [readout(kspace[:, line], line - 2) for line in range(2, LINES)]
    scan = load(write(tmp_path / "x.h5", found, xml(centre=LINES // 2 - 2)))
    assert scan.mask[0, 0].tolist() == [False] * 2 + [True] * 4
    assert close(scan.kspace[0, :, :, 2:], fft2c(truth)[:, :, 2:])


@pytest.mark.parametrize("cut", [1, 2])
def test_an_asymmetric_echo_is_a_part_of_whole_lines(tmp_path, cut):
    # Smooth along the readout, as what is cut away of k-space smears: 64 samples of which the first 14 are missing.
    size, missing = 64 // cut, 14
    truth = image(COILS, size, LINES)
    truth *= torch.hann_window(size)[:, None]
    kspace = measured(truth, 64)
    found = [readout(kspace[:, line, missing:], line, centre=32 - missing) for line in range(LINES)]
    scan = load(write(tmp_path / "x.h5", found, xml(samples=64, cut=cut)))
    assert scan.mask.shape == (1, 1, LINES)
    assert bool(scan.mask.all())
    gap = missing // cut
    assert scan.meta["partial echo"] == pytest.approx(1 - gap / size, abs=1e-4)
    assert not scan.kspace[0, :, :gap].any()
    expected = fft2c(truth)[:, gap:]
    assert close(scan.kspace[0, :, gap:], expected, 1e-5 if cut == 1 else 0.1)
    far = 8  # samples away from where the echo begins
    assert close(scan.kspace[0, :, gap + far :], expected[:, far:], 1e-5 if cut == 1 else 0.03)


def test_reverse_readouts_are_turned_and_samples_to_discard_left_out(tmp_path, truth):
    kspace = measured(truth)
    found = [
        readout(kspace[:, line, ::-1] if line % 2 else kspace[:, line], line, flags=[22] if line % 2 else [])
        for line in range(LINES)
    ]
    assert close(ifft2c(load(write(tmp_path / "x.h5", found)).kspace[0]), truth)
    spoilt = kspace.copy()
    spoilt[..., :3] = spoilt[..., -1:] = 7
    found = [
        readout(spoilt[:, line, ::-1] if line % 2 else spoilt[:, line], line, [22] if line % 2 else [], discard=edges)
        for line, edges in zip(range(LINES), [(3, 1), (1, 3)] * (LINES // 2), strict=True)
    ]
    scan = load(write(tmp_path / "y.h5", found, xml(cut=1)))
    expected = torch.from_numpy(kspace).mT.clone()
    expected[:, :3] = expected[:, -1:] = 0
    assert torch.equal(scan.kspace[0], expected)


def test_a_centre_of_zero_means_that_it_is_not_known(tmp_path, truth):
    found = readouts(measured(truth), centre=0)
    scan = load(write(tmp_path / "x.h5", found, xml(centre=0)))
    assert close(ifft2c(scan.kspace[0]), truth)


def test_calibration_lines_fill_gaps_and_yield_to_imaging(tmp_path, truth):
    kspace = measured(truth)
    imaging = [readout(kspace[:, line], line, [21] if line == 2 else []) for line in (0, 2, 4)]
    calibration = [readout(9 * kspace[:, line] if line == 2 else kspace[:, line], line, [20]) for line in (2, 3)]
    scan = load(write(tmp_path / "x.h5", imaging + calibration))
    assert scan.mask[0, 0].tolist() == [True, False, True, True, True, False]
    assert close(scan.kspace[0][:, :, scan.mask[0, 0]], fft2c(truth)[:, :, scan.mask[0, 0]])
    assert scan.maps is None
    short = [readout(kspace[:, line, 4:-4], line, [20]) for line in (2, 3)]
    scan = load(write(tmp_path / "y.h5", imaging + short))
    assert scan.mask[0, 0].tolist() == [True, False, True, False, True, False]
    assert (scan.maps, scan.meta["calibration"]) == (None, "acquired separately: for coil maps")


def test_calibration_of_another_acquisition_gives_maps_instead(tmp_path):
    coils = torch.stack([torch.linspace(0.2, 1, 16)[:, None].expand(16, 16), torch.linspace(1, 0.2, 16).expand(16, 16)])
    body = torch.zeros(16, 16)
    body[3:13, 3:13] = 1
    kspace = measured(coils.to(torch.complex64) * body, 16)
    imaging = [readout(kspace[:, line], line) for line in range(0, 16, 2)]
    calibration = [readout(5j * kspace[:, line], line, [20]) for line in range(4, 12)]
    mode = "<parallelImaging><calibrationMode>separate</calibrationMode></parallelImaging>"
    scan = load(write(tmp_path / "x.h5", calibration + imaging, xml(16, 16, cut=1, more=mode)))
    assert scan.mask[0, 0].tolist() == [True, False] * 8
    assert torch.equal(scan.kspace[0], torch.from_numpy(kspace).mT * scan.mask[0])
    assert scan.meta["calibration"] == "acquired separately: for coil maps"
    ratio = (scan.maps[0, 0].abs() / scan.maps[0, 1].abs())[5:11, 5:11]
    assert close(ratio, (coils[0] / coils[1])[5:11, 5:11], 0.1)


def test_what_is_not_the_image_is_left_out(tmp_path, truth):
    kspace = measured(truth)
    others = [readout(kspace[:, 0], 0, [flag]) for flag in (23, 24, 26, 27)] + [readout(kspace[:, 0], 0, space=1)]
    scan = load(write(tmp_path / "x.h5", others + readouts(kspace)))
    assert close(ifft2c(scan.kspace[0]), truth)
    kinds = {"navigation": 1, "phase correction": 1, "feedback": 1, "dummy": 1, "of another encoding": 1}
    assert scan.meta["left out"] == kinds


def test_two_phase_encodings_are_cut_along_the_readout(tmp_path):
    truth = image(2, SAMPLES // 2, LINES, 4)  # (coil, readout, line, partition)
    wide = torch.zeros(2, SAMPLES, LINES, 4, dtype=torch.complex64)
    wide[:, 4:12] = truth
    kspace = fft1c(fft2c(wide), 1).numpy()
    mask = np.ones((LINES, 4), bool)
    mask[0, 1:] = mask[5, 0] = False
    found = [
        readout(kspace[:, :, i, j], i, partition=j, repetition=repetition)
        for repetition in range(2)
        for i, j in np.argwhere(mask)
    ]
    path = write(tmp_path / "x.h5", found, xml(partitions=4))
    with open_source(path) as source:
        assert (source.slices, source.matrix) == (2 * 8, (LINES, 4))
        scan = source.read()
        assert torch.equal(source.read(5).kspace, scan.kspace[5:6])
        assert torch.equal(source.read("9::3").kspace, scan.kspace[9::3])
    with open_source(path) as source:
        source.max_bytes = 12 * source.slice_bytes  # so that positions are kept ready three by three
        assert torch.equal(torch.cat([source.read(i).kspace for i in range(16)]), scan.kspace)
    assert scan.meta["axes"] == {"repetition": 2, "readout": 8}
    assert scan.spacing == pytest.approx((20, 1.25, 12.5))
    assert torch.equal(scan.mask, torch.from_numpy(mask).expand(16, -1, -1))
    expected = fft2c(truth).transpose(0, 1) * torch.from_numpy(mask)
    assert close(scan.kspace[:8], expected)
    assert close(scan.kspace[8:], expected)


# --- where slices lie -------------------------------------------------------------------------------------------------

OBLIQUE = np.linalg.qr(np.array([[2.0, 1.0, -1.0], [0.5, -3.0, 1.0], [1.0, 1.0, 4.0]]))[0]  # read, phase, slice
CENTRE, GAPPED = np.array([12.0, -30.0, 45.5]), 7.5  # mm; slices are 5 thick
POINT = (3, -4, 2)  # voxels of (12.5, 5, 7.5) mm from the centre along OBLIQUE
WEAK = [(i, j) for i in range(-3, 3) for j in range(-9, 8, 2)]  # something to find coil maps from
VENDORS = {"": -2j, "SIEMENS": 2j}  # by what the signal turns


def system(vendor: str) -> str:
    return f"<acquisitionSystemInformation><systemVendor>{vendor}</systemVendor></acquisitionSystemInformation>"


def signal(points, turn, kz=0.0) -> np.ndarray:
    """K-space (coil, line, sample), the Fourier integral itself, of points (amplitude, mm along OBLIQUE)."""
    kx, ky = (np.arange(SAMPLES) - SAMPLES // 2) / 200, (np.arange(24) - 12) / 120
    kspace = np.zeros((24, SAMPLES), complex)
    for amplitude, x, y, z in points:
        kspace += amplitude * np.exp(np.pi * turn * (kx * x + ky[:, None] * y + kz * z))
    return np.stack([kspace, 0.5j * kspace])


def stack(path: Path, vendor="", order=(0, 1, 2, 3, 4), directions=OBLIQUE, repetitions=1, moved=(0, 0, 0)) -> Path:
    """Slices at ``order`` × GAPPED mm, numbered as they come, with a bright point in one."""
    found = []
    for repetition in range(repetitions):
        for number, height in enumerate(order):
            points = [(1.0, 12.5 * i, 5.0 * j, 0) for i, j in WEAK]
            points += [(20.0, 12.5 * POINT[0], 5.0 * POINT[1], 0)] * (height == POINT[2])
            position = CENTRE + height * GAPPED * OBLIQUE[2] + repetition * np.array(moved)
            options = {"slice": number, "repetition": repetition, "position": position, "directions": directions}
            found += readouts(signal(points, VENDORS[vendor]), **options)
    return write(path, found, xml(lines=24, head=system(vendor)))


def world(height: int) -> np.ndarray:
    """Where the bright point is, in DICOM's coordinates."""
    return CENTRE + np.array([12.5 * POINT[0], 5.0 * POINT[1], GAPPED * height]) @ OBLIQUE


def brightest(path: Path) -> np.ndarray:
    """Where a file says that its brightest voxel is, in DICOM's coordinates."""
    if path.suffix == ".dcm":
        images = [pydicom.dcmread(file) for file in sorted(path.iterdir())]
        one = max(images, key=lambda image: image.pixel_array.max())
        i, j = np.unravel_index(one.pixel_array.argmax(), one.pixel_array.shape)
        row, column = np.reshape(one.ImageOrientationPatient, (2, 3)).astype(float)
        between_rows, between_columns = map(float, one.PixelSpacing)
        return np.array(one.ImagePositionPatient, float) + j * between_columns * row + i * between_rows * column
    image = nibabel.load(path)
    index = np.unravel_index(np.argmax(image.get_fdata()), image.shape)
    return nibabel.affines.apply_affine(image.affine, index) * [-1, -1, 1]


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("suffix", [".nii", ".dcm"])
def test_a_point_is_found_where_it_is(tmp_path, vendor, suffix):
    turned = OBLIQUE * [[1], [1], [-1]]  # slices lie in the order of their places, wherever the normal leads
    for number, (order, directions) in enumerate([((0, 1, 2, 3, 4), OBLIQUE), ((4, 1, 3, 0, 2), turned)]):
        path = stack(tmp_path / f"{number}.h5", vendor, order, directions)
        for slices in (None, "1:3", "2:", "::2", "2"):
            rec = reconstruct(load(path, slices), "zero-filled")
            target = save(rec, tmp_path / f"x{suffix}", overwrite=True)
            np.testing.assert_allclose(brightest(target), world(POINT[2]), atol=1e-3)
            assert rec.spacing == pytest.approx((12.5, 5, 15 if slices == "::2" else 7.5))


@pytest.mark.parametrize("slices", ["::2", "1:3", "2", "0:"])
def test_a_point_is_found_where_it_is_slice_by_slice(tmp_path, monkeypatch, slices):
    path = stack(tmp_path / "x.h5", order=(4, 1, 3, 0, 2))
    for target in (tmp_path / "x.nii.gz", tmp_path / "x.dcm"):
        words = ["recon", str(path), "-m", "zero-filled", "--slices", slices, "-o", str(target), "-q"]
        monkeypatch.setattr("sys.argv", ["upmri", *words])
        with pytest.raises(SystemExit, match="0"):
            cli.main()
        np.testing.assert_allclose(brightest(target), world(POINT[2]), atol=1e-3)
    zooms = nibabel.load(tmp_path / "x.nii.gz").header.get_zooms()
    assert zooms == pytest.approx((12.5, 5, 15 if slices == "::2" else 7.5))


def test_every_part_of_a_stack_keeps_its_place(tmp_path):
    path = stack(tmp_path / "x.h5", order=(4, 1, 3, 0, 2))
    scan = load(path)
    kept = scan.save(tmp_path / "y.h5")
    for index in (3, slice(1, 4), slice(1, None, 2), slice(2, 5, 2), slice(0, 1, 2)):
        for found in (load(path, index), load(kept, index)):
            assert found.spacing == pytest.approx(scan[index].spacing)
            for key, vector in scan[index].meta["geometry"].items():
                assert found.meta["geometry"][key] == pytest.approx(vector, abs=1e-4)
    corner = CENTRE + np.array([-4 * 12.5, -12 * 5, 3 * GAPPED]) @ OBLIQUE
    assert scan[3].meta["geometry"]["position"] == pytest.approx(corner, abs=1e-4)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_point_is_found_where_it_is_in_a_volume(tmp_path, vendor):
    points = [(1.0, 12.5 * i, 5.0 * j, 0) for i, j in WEAK] + [(99.0, 12.5 * 3, 5.0 * -4, 1.25 * -1)]
    found = []
    for partition in range(4):
        kspace = signal(points, VENDORS[vendor], (partition - 2) / 5)
        found += readouts(kspace, partition=partition, position=CENTRE, directions=OBLIQUE)
    path = write(tmp_path / "x.h5", found, xml(lines=24, partitions=4, head=system(vendor)))
    with open_source(path) as source:
        assert source.matrix == (24, 4)
        at = 7 if vendor == "" else 1  # of the readout's 8
        for slices in (None, f"{at}", f"{at % 3}::3", f"{at}:"):
            scan = source.read(slices)
            assert scan.spacing == pytest.approx((5, 1.25, 37.5 if slices and slices.endswith("3") else 12.5))
            image = ifft2c(scan.kspace).abs()[:, 0]
            k, i, j = np.unravel_index(image.argmax().item(), image.shape)
            place = {name: np.array(vector) for name, vector in scan.meta["geometry"].items()}
            steps = zip((i, j, k), scan.spacing, ("readout", "phase", "slice"), strict=True)
            found = place["position"] + sum(n * step * place[name] for n, step, name in steps)
            expected = CENTRE + np.array([12.5 * 3, 5.0 * -4, -1.25]) @ OBLIQUE
            np.testing.assert_allclose(found, expected, atol=1e-3)


def test_slabs_lie_each_in_its_place(tmp_path):
    places = np.array([[0.0, 0, 0], [3, 0, 50]])
    found = []
    for number, place in enumerate(places):
        for partition in range(2):
            kspace = signal([(1.0, 12.5, 5, 0)], -2j, (partition - 1) / 5)
            found += readouts(kspace, partition=partition, slice=number, position=place, directions=OBLIQUE)
    with open_source(write(tmp_path / "x.h5", found, xml(lines=24, partitions=2))) as source:
        one, other = (np.array(source.read(slices).meta["geometry"]["position"]) for slices in ("2:8", "10:16"))
        np.testing.assert_allclose(other - one, places[1], atol=1e-4)
        assert "geometry" not in source.read("6:10").meta


def test_only_slices_of_one_frame_are_a_stack(tmp_path):
    with open_source(stack(tmp_path / "x.h5", repetitions=2, order=(2, 0, 1))) as source:
        first = source.read("0:3").meta["geometry"]
        assert source.read("3:6").meta["geometry"] == first
        assert source.read("4").meta["geometry"] == source.read("1").meta["geometry"] != first
        for slices in (None, "2:4", "1::3"):
            for scan in (source.read(slices), *source.each(slices)):
                assert "geometry" not in scan.meta
                assert scan.spacing == pytest.approx((12.5, 5, 7.5))
        for scan in source.each("3::2"):
            assert "geometry" in scan.meta
            assert scan.spacing == pytest.approx((12.5, 5, 15))


def test_frames_that_lack_slices_are_a_stack_where_they_are_even(tmp_path):
    path = stack(tmp_path / "x.h5", repetitions=2, order=(0, 1, 2, 3))

    def leave_out(elements):
        idx = elements["head"]["idx"]
        elements["head"]["flags"][(idx["repetition"] == 1) & (idx["slice"] == 1)] = 1 << 26  # dummies

    with open_source(alter(path, leave_out)) as source:
        assert source.slices == 7
        assert source.read("4::2").meta.keys() >= {"frames"}
        assert "geometry" not in source.read("4:").meta  # 0, 2, 3
        assert source.read("4:6").spacing == pytest.approx((12.5, 5, 15))
        assert source.read("5:").spacing == pytest.approx((12.5, 5, 7.5))
        assert source.read("5:").meta["geometry"] == source.read("2:4").meta["geometry"]


def test_one_slice_lies_along_its_normal(tmp_path):
    scan = load(stack(tmp_path / "x.h5", "SIEMENS", order=(0,)))
    assert scan.meta["geometry"]["slice"] == pytest.approx(OBLIQUE[2], abs=1e-6)
    assert scan.meta["geometry"]["phase"] == pytest.approx(-OBLIQUE[1], abs=1e-6)
    assert scan.spacing == pytest.approx((12.5, 5, 5))  # of one, only the thickness is known


@pytest.mark.parametrize(
    "options",
    [
        {"directions": np.zeros((3, 3))},
        {"directions": OBLIQUE * np.nan},
        {"directions": OBLIQUE * np.inf},
        {"directions": OBLIQUE * 1.01},
        {"directions": OBLIQUE[[0, 0, 2]]},
        {"directions": OBLIQUE[[0, 2, 1]]},  # slices lie beside each other
        {"directions": OBLIQUE + np.array([[0, 0, 0.01], [0, 0, 0], [0, 0, 0]])},
        {"order": (0, 1, 2, 4)},
        {"order": (0, 1, 2.02)},
        {"order": (1, 1, 1)},
        {"order": (2e5,)},
        {"order": (np.nan, 0)},
        {"order": (np.inf, 0)},
        {"repetitions": 2, "moved": (0, 0, 0.2)},
    ],
)
def test_what_is_no_stack_has_no_place(tmp_path, options):
    with np.errstate(invalid="ignore"):
        path = stack(tmp_path / "x.h5", **options)
    for scan in (load(path), load(path, 1 if "order" not in options else 0)):
        assert "geometry" not in scan.meta
        assert scan.spacing == pytest.approx((12.5, 5, 5))


def test_the_place_of_a_slice_is_known_only_if_all_its_readouts_agree(tmp_path):
    path = stack(tmp_path / "x.h5", order=(0,))
    assert "geometry" in load(path).meta

    def turn(elements):
        elements["head"]["read_dir"][elements["head"]["idx"]["kspace_encode_step_1"] == 5] *= -1

    assert "geometry" not in load(alter(path, turn)).meta


def test_without_a_field_of_view_there_is_no_place(tmp_path):
    found = readouts(signal([(1.0, 0, 0, 0)], -2j), position=CENTRE, directions=OBLIQUE)
    header = xml(lines=24)
    assert "geometry" in load(write(tmp_path / "x.h5", found, header)).meta
    for size in ("0", "1e308"):
        path = write(tmp_path / f"{size}.h5", found, header.replace("<y>120</y>", f"<y>{size}</y>"))
        assert "geometry" not in load(path).meta


# --- noise ------------------------------------------------------------------------------------------------------------


def correlated(count: int) -> np.ndarray:
    mix = torch.tensor([[3.0, 0], [2j, 0.1]], dtype=torch.complex64)
    return (mix @ image(2, count, seed=3) / 2**0.5).numpy()


@pytest.mark.parametrize(("dwell", "band"), [(5.0, 1.0), (2.5, 0.8)])
def test_coils_are_whitened_in_the_bandwidth_of_imaging(tmp_path, dwell, band):
    noise = [readout(correlated(4000), flags=[19], dwell=dwell)]
    lines = correlated(400 * LINES).reshape(2, LINES, 400)
    # Shorter dwell time, more noise; what the receiver's filter takes away at the edges is not missing in the middle.
    lines = lines * (dwell / 5.0 / band) ** 0.5
    system = f"<relativeReceiverNoiseBandwidth>{band}</relativeReceiverNoiseBandwidth>"
    system = f"<acquisitionSystemInformation>{system}</acquisitionSystemInformation>"
    scan = load(write(tmp_path / "x.h5", noise + readouts(lines), xml(400, cut=1, head=system)))
    found = scan.kspace[0].flatten(1)
    covariance = found @ found.mH / found.shape[1]
    assert scan.noise == 1
    assert (covariance - torch.eye(2)).abs().max() < 0.1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_noise_samples_that_are_not_finite_are_left_out(tmp_path, value):
    good, wrong = correlated(4000), correlated(50)
    lines, header = readouts(correlated(400 * LINES).reshape(2, LINES, 400)), xml(400, cut=1)
    finite = np.delete(np.hstack([good, wrong]), 4007, 1)
    expected = load(write(tmp_path / "good.h5", [readout(finite, flags=[19]), *lines], header))
    wrong[1, 7] = value
    noise = [readout(part, flags=[19]) for part in (good, wrong)]
    with pytest.warns(UserWarning, match="1 of 4050 noise samples are not finite and are left out"):
        scan = load(write(tmp_path / "x.h5", noise + lines, header))
    assert torch.equal(scan.kspace, expected.kspace)


@pytest.mark.filterwarnings("ignore:64 of 64 noise samples")
@pytest.mark.parametrize("noise", [np.zeros((2, 64)), np.ones((2, 3)), np.ones((2, 64)), np.full((2, 64), np.nan)])
def test_noise_that_tells_nothing_is_not_used(tmp_path, truth, noise):
    scan = load(write(tmp_path / "x.h5", [readout(noise, flags=[19]), *readouts(measured(truth))]))
    assert close(ifft2c(scan.kspace[0]), truth)
    assert scan.noise is None
    assert scan.meta["noise"].endswith("not used")


# --- echo-planar ------------------------------------------------------------------------------------------------------


def planar(kspace: np.ndarray, theta: np.ndarray, navigators: int = 3, **options) -> list:
    """Reference readouts and lines (coil, line, sample) of which odd ones run backwards and have a phase θ(x)."""
    wrong = fft1c(ifft1c(torch.from_numpy(kspace[:, 1::2])) * torch.exp(1j * torch.from_numpy(theta))).numpy()
    ghosted = kspace.copy()
    ghosted[:, 1::2] = wrong
    middle = kspace.shape[1] // 2 - kspace.shape[1] // 2 % 2  # forwards
    made = []
    for number in range(navigators):
        line = middle + number % 2
        data = kspace[:, middle] if number % 2 == 0 else None
        if data is None:
            data = fft1c(ifft1c(torch.from_numpy(kspace[:, middle])) * torch.exp(1j * torch.from_numpy(theta))).numpy()
        made.append(
            readout(data[:, ::-1] if number % 2 else data, line, [24, *([22] if number % 2 else [])], **options)
        )
    for line in range(kspace.shape[1]):
        part = ghosted[:, line]
        made.append(readout(part[:, ::-1] if line % 2 else part, line, [22] if line % 2 else [], **options))
    return made


@pytest.mark.parametrize("navigators", [2, 3])
@pytest.mark.parametrize("trajectory", ["cartesian", "epi"])
def test_ghosts_of_echo_planar_readouts_are_corrected_with_reference_readouts(tmp_path, navigators, trajectory):
    truth = image(COILS, SAMPLES // 2, LINES)
    theta = 0.7 - 0.3 * (np.arange(SAMPLES) - SAMPLES // 2)
    path = write(tmp_path / "x.h5", planar(measured(truth), theta, navigators), xml(trajectory=trajectory))
    scan = load(path)
    half = torch.exp(0.5j * torch.from_numpy(theta).to(torch.complex128))[SAMPLES // 4 : -SAMPLES // 4]
    found = ifft2c(scan.kspace[0])
    expected = truth * half[:, None].to(truth.dtype)  # half of the phase stays, in both directions
    assert close(found, expected, 1e-4)
    assert scan.meta["echo-planar"] == f"ghosts corrected with {navigators} reference readouts"
    assert "left out" not in scan.meta


def test_reference_readouts_of_the_same_slice_serve_other_repetitions(tmp_path):
    kspace, theta = measured(image(COILS, SAMPLES // 2, LINES)), np.full(SAMPLES, 1.0)
    first = planar(kspace, theta)
    again = planar(kspace, theta, 0, repetition=1)
    scan = load(write(tmp_path / "x.h5", first + again))
    assert torch.equal(scan.kspace[0], scan.kspace[1])


def test_echo_planar_readouts_without_reference_readouts_are_named(tmp_path, truth):
    path = write(tmp_path / "x.h5", planar(measured(truth), np.zeros(SAMPLES), 0))
    scan = load(path)
    assert scan.meta["echo-planar"] == "ghosts not corrected"
    assert close(ifft2c(scan.kspace[0]), truth)


RAMP = """<trajectoryDescription><identifier>ConventionalEPI</identifier>
  <userParameterLong><name>rampUpTime</name><value>120</value></userParameterLong>
  <userParameterLong><name>flatTopTime</name><value>200</value></userParameterLong>
  <userParameterLong><name>rampDownTime</name><value>120</value></userParameterLong>
  <userParameterLong><name>acqDelayTime</name><value>20</value></userParameterLong>
  <userParameterLong><name>numSamples</name><value>20</value></userParameterLong>
  <userParameterDouble><name>dwellTime</name><value>20</value></userParameterDouble></trajectoryDescription>"""


def test_samples_on_the_ramps_are_regridded(tmp_path, truth):
    """Samples are those of a discrete Fourier transform at the places of the gradient's area."""
    places = SAMPLES * Ramp(120, 200, 120, 20, 20, 20).positions
    x = torch.arange(SAMPLES // 2, dtype=torch.float64) - SAMPLES // 4
    encode = torch.exp(-2j * torch.pi * places[:, None] * x / SAMPLES) / SAMPLES**0.5
    hybrid = fft1c(truth.to(torch.complex128), -1)  # (coil, readout, line)
    kspace = (encode @ hybrid).mT.numpy()
    lines = [readout(kspace[:, n][:, :: -1 if n % 2 else 1], n, [22] if n % 2 else []) for n in range(LINES)]
    scan = load(write(tmp_path / "x.h5", lines, xml(trajectory="epi", more=RAMP)))
    assert close(ifft2c(scan.kspace[0]), truth, 1e-4)
    assert scan.meta["echo-planar"] == "ghosts not corrected, ramp samples regridded"


def test_ramp_samples_of_another_number_are_refused(tmp_path, truth, refuse):
    lines = planar(measured(truth), np.zeros(SAMPLES), 0)
    path = write(tmp_path / "x.h5", lines, xml(trajectory="epi", more=RAMP))
    refuse(path, "20 samples", field="data")


# --- what is wrong with a file ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "field", "word"),
    [
        (xml(trajectory="spiral"), "trajectory", "spiral"),
        (xml(samples=8), "data", "grid of 8"),
        (xml(samples=10**30), "samples", "65535"),
        (xml(lines=0), "lines", "65535"),
        (xml(lines=4), "lines", "grid of 4"),
        (xml(centre=5), "lines", "grid of 6"),
        (xml(samples=60000, lines=60000, centre=3), "1 of 1 slices", "8 GiB"),
        (xml().replace("<x>16</x>", ""), "xml", "encodedSpace/matrixSize"),
        (xml().replace("<x>16</x>", "<x>nan</x>"), "xml", "encodedSpace/matrixSize"),
        ("<html/>", "xml", "<html>"),
        ("<ismrmrdHeader/>", "xml", "number 0"),
        ("no xml", "xml", "syntax"),
        ("", "xml", "no element"),
        ("<a>" * 100000, "xml", "no element"),
        ("<a>" * 300000 + "</a>" * 300000, "xml", "<a>"),
        (b"\xff\xfe<a/>", "xml", "UTF-8"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "xml", "DOCTYPE"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "xml", "DOCTYPE"),
        (" " * 2**22 + xml(), "dataset/xml", "limit"),
    ],
)
def test_headers_that_do_not_fit_are_refused(tmp_path, truth, header, field, word, refuse):
    refuse(write(tmp_path / "x.h5", readouts(measured(truth)), header), word, field=field, max_bytes=8 * 2**30)


def test_readouts_that_do_not_fit_are_refused(tmp_path, truth, refuse):
    kspace = measured(truth)
    refuse(write(tmp_path / "a.h5", [readout(kspace[:, 0], flags=[19])]), "there are none", field="data")
    mixed = [readout(kspace[:1, 0]), readout(kspace[:, 1], 1)]
    refuse(write(tmp_path / "b.h5", mixed), "1 to 2", field="data")
    refuse(write(tmp_path / "c.h5", readouts(kspace, discard=(9, 9))), "grid of 16", field="data")
    kspace[0, 0, 0] = np.nan
    refuse(write(tmp_path / "e.h5", readouts(kspace)), "finite", field="kspace")
    mode = "<parallelImaging><calibrationMode>separate</calibrationMode></parallelImaging>"
    only = readouts(measured(truth), flags=[20])
    refuse(write(tmp_path / "f.h5", only, xml(more=mode)), "calibration", field="data")


def alter(path: Path, change) -> Path:
    """Change the raw elements: those of ``data`` lie in the file one by one."""
    with h5py.File(path) as file:
        chunks: list = []
        file["dataset/data"].id.chunk_iter(chunks.append)
        dtype = mrd.heap.stored_type("data", file["dataset/data"].dtype)
    raw = bytearray(path.read_bytes())
    for chunk in chunks:
        size = chunk.size // dtype.itemsize
        elements = np.frombuffer(raw, dtype, size, chunk.byte_offset).copy()
        change(elements)
        raw[chunk.byte_offset : chunk.byte_offset + chunk.size] = elements.tobytes()
    path.write_bytes(raw)
    return path


def put(*names: str, value):
    def change(elements):
        for name in names[:-1]:
            elements = elements[name]
        elements[names[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "field", "word"),
    [
        (put("head", "number_of_samples", value=65535), "data", "65535 samples"),
        (put("head", "number_of_samples", value=0), "data", "of 0 samples"),
        (put("head", "number_of_samples", value=15), "variable-length data", "60 values"),
        (put("head", "active_channels", value=65535), "variable-length data", "2097120 values"),
        (put("head", "active_channels", value=0), "coils", "got 0"),
        (put("head", "idx", "kspace_encode_step_1", value=65535), "lines", "65535 to 65535"),
        (put("head", "encoding_space_ref", value=65535), "xml", "number 65535"),
        (put("head", "flags", value=2**64 - 1), "data", "there are none"),
        (put("data", "length", value=2**32 - 1), "variable-length data", "4294967295"),
        (put("data", "address", value=2**64 - 1), "variable-length data", "beyond"),
        (put("data", "address", value=0), "variable-length data", "to 0,"),
        (put("data", "index", value=60000), "variable-length data", "object 60000"),
    ],
)
def test_lying_headers_and_references_are_refused(simple, change, field, word, refuse):
    refuse(alter(simple, change), word, field=field)


def test_a_damaged_slice_harms_no_other(tmp_path, truth, refuse):
    found = [one for number in range(3) for one in readouts(measured(truth), slice=number)]
    path = write(tmp_path / "x.h5", found)

    def spoil(elements):
        elements["data"]["address"][elements["head"]["idx"]["slice"] == 1] = 8

    alter(path, spoil)
    assert close(ifft2c(load(path, 2).kspace[0]), truth)
    refuse(path, "to 8,", field="variable-length data")
    refuse(path, "to 8,", field="variable-length data", slices=1)


def replaced(path: Path, name: str, make) -> Path:
    with h5py.File(path, "r+") as file:
        group = file["dataset"]
        old = group[name][:]
        del group[name]
        make(group, old)
    return path


def headless(elements, kind):
    bare = np.zeros(len(elements), [("head", "<f4"), ("data", kind)])
    bare["data"] = elements["data"]
    return bare


@pytest.mark.parametrize(
    ("name", "make", "field", "word"),
    [
        (
            "data",
            lambda g, _: g.__setitem__("data", h5py.ExternalLink("other.h5", "/data")),
            "dataset/data",
            "another file",
        ),
        (
            "xml",
            lambda g, _: g.__setitem__("xml", h5py.ExternalLink("other.h5", "/xml")),
            "dataset/xml",
            "another file",
        ),
        ("data", lambda g, _: g.__setitem__("data", h5py.SoftLink("/dataset/data")), "dataset/data", "circles"),
        ("data", lambda g, _: g.create_group("data"), "dataset/data", "group"),
        ("xml", lambda g, _: g.create_group("xml"), "dataset/xml", "group"),
        ("data", lambda g, o: g.create_dataset("data", (2, 2), o.dtype), "dataset/data", "one axis"),
        ("data", lambda g, _: g.create_dataset("data", data=np.ones(5)), "dataset/data", "acquisitions"),
        ("data", lambda g, o: g.create_dataset("data", data=o["head"]), "dataset/data", "acquisitions"),
        ("data", lambda g, o: g.create_dataset("data", (6,), o.dtype), "dataset/data", "none was written"),
        (
            "data",
            lambda g, o: g.create_dataset("data", (6,), o.dtype, chunks=(1,)),
            "dataset/data",
            "not all were written",
        ),
        ("data", lambda g, o: g.create_dataset("data", (10**15,), o.dtype, chunks=(1,)), "dataset/data", "limit"),
        ("data", lambda g, o: g.create_dataset("data", (10**6,), o.dtype, chunks=(1,)), "dataset/data", "1000000"),
        (
            "data",
            lambda g, o: g.create_dataset("data", (0,), o.dtype, maxshape=(None,)),
            "data",
            "there are none",
        ),
        ("data", lambda g, o: g.create_dataset("data", data=o, compression="gzip"), "dataset/data", "compression"),
        ("xml", lambda g, o: g.create_dataset("xml", (3,), o.dtype), "dataset/xml", "one XML text"),
        ("xml", lambda g, o: g.create_dataset("xml", (1,), o.dtype), "dataset/xml", "written"),
        ("xml", lambda g, _: g.create_dataset("xml", data=np.arange(1)), "xml", "header"),
        (
            "data",
            lambda g, o: g.create_dataset("data", data=headless(o, o.dtype["data"])),
            "data",
            "integer",
        ),
        (
            "data",
            lambda g, o: g.create_dataset(
                "data", (6,), np.dtype([("head", o.dtype["head"]), ("data", h5py.vlen_dtype(np.float64))])
            ),
            "dataset/data",
            "float32",
        ),
        (
            "data",
            lambda g, _: g.create_dataset("data", (6,), "f4", external=[("other.bin", 0, h5py.h5f.UNLIMITED)]),
            "dataset/data",
            "lies in",
        ),
    ],
)
def test_what_is_not_stored_as_it_should_be_is_refused(simple, name, make, field, word, refuse):
    refuse(replaced(simple, name, make), word, field=field)


def test_text_of_fixed_length_and_data_in_one_piece_are_read_as_well(simple, truth):
    replaced(simple, "xml", lambda g, o: g.create_dataset("xml", data=np.array([o[0]], "S")))
    replaced(simple, "data", lambda g, o: g.create_dataset("data", data=o))
    assert close(ifft2c(load(simple).kspace[0]), truth)


def test_of_several_groups_the_usual_one_is_read(tmp_path, truth):
    path = write(tmp_path / "x.h5", readouts(2 * measured(truth)), group="a")
    assert close(ifft2c(load(path).kspace[0]), 2 * truth)
    write(path, readouts(measured(truth)))
    write(path, readouts(3 * measured(truth)), group="z")
    scan = load(path)
    assert close(ifft2c(scan.kspace[0]), truth)
    assert scan.meta["group"] == "dataset, one of 3"


def test_files_cut_short_are_refused_wherever_they_end(simple, refuse):
    whole = simple.read_bytes()
    for length in (1, 64, 800, len(whole) // 2, len(whole) - 1):
        simple.write_bytes(whole[:length])
        refuse(simple)


def test_files_with_bytes_overwritten_are_read_or_refused(simple):
    whole, rng = simple.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for at in rng.integers(len(whole), size=6):
            damaged[at : at + 4] = rng.bytes(4) if rng.integers(2) else b"\xff" * 4
        simple.write_bytes(damaged[: len(whole)])
        with contextlib.suppress(InputError):
            load(simple)


def test_the_image_of_a_cut_readout_is_the_middle_of_the_whole(truth):
    lines = torch.from_numpy(measured(truth))
    whole = ifft1c(lines)
    assert close(whole[..., 4:12], ifft1c(fft2c(truth).mT))
