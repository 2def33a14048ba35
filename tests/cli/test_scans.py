"""`upmri info` and `upmri simulate`."""

import json
import re
from dataclasses import replace

import nibabel
import numpy as np
import pytest

import upmri
from upmri.evaluation.info import info


def test_info_prints_the_dictionary_of_the_function(run, scan):
    facts = json.loads(run("info", "scan.h5", "--json").stdout)
    assert facts == info("scan.h5")
    assert facts["matrix"] == [96, 96]
    assert (facts["slices"], facts["coils"], facts["acceleration"]) == (3, 4, 2.0)
    assert facts["calibration"][1] >= 12
    assert facts["noise"] == 0.01
    shown = run("info", "scan.h5").stdout
    assert [line.split()[0] for line in shown.splitlines() if not line.startswith("meta ")] == [
        key for key in facts if key not in ("noise_from", "maps_unexplained", "meta", "notes", "series")
    ]
    for key, value in {"matrix": "96 × 96", "acceleration": "2.00×", "noise": "0.01 (from the scan)"}.items():
        assert re.search(rf"^{key} +{re.escape(value)}", shown, re.M)


def test_frames_that_are_listed_are_counted(run, scan, tmp_path):
    frames = [{"phase": 0, "slice": 0}, {"phase": 1, "slice": 0}, {"phase": 1, "slice": 1}]
    replace(scan, meta={"frames": frames}).save(tmp_path / "beat.h5")
    shown = " ".join(run("info", "beat.h5").stdout.split())
    assert "series 2 frames of 2 places" in shown
    assert "meta frames 3, listed one by one in --json" in shown
    assert "2 frames of each of 2 places, of which 1 is not in the file" in shown


def test_info_prints_the_meta_data_of_the_file_as_text(run, scan, tmp_path):
    assert re.search("^geometry +no *$", run("info", "scan.h5").stdout, re.M)
    meta = {"axes": {"slice": 3}, "nominal_acceleration": 8, "[bold]x": "\x1b[31mred"}
    place = {"position": [0, 0, 5], "readout": [0, 1, 0], "phase": [1, 0, 0], "slice": [0, 0, 1]}
    replace(scan, meta=meta | {"geometry": place}, spacing=(1, 1, 2)).save(tmp_path / "more.h5")
    shown = run("info", "more.h5").stdout
    assert re.search("^note .*8× acceleration", shown, re.M)
    for key, value in {"meta axes": "slice 3", "meta [bold]x": "�[31mred", "geometry": "yes"}.items():
        assert re.search(rf"^{re.escape(key)} +{re.escape(value)} *$", shown, re.M)
    found = json.loads(run("info", "more.h5", "--json").stdout)["meta"]
    assert found == meta | {"geometry": place | {"position": [0, 0, 7]}}  # of the middle slice


def test_simulate(run, tmp_path):
    np.save(tmp_path / "image.npy", upmri.demo.brain())
    words = "simulate image.npy made.h5 --coils 5 --accel 3 --acs 10 --noise 0.02 --seed 7"
    run(*words.split())
    made, expected = upmri.load(tmp_path / "made.h5"), upmri.simulate(upmri.demo.brain(), 5, 3, 10, 0.02, 7)
    assert made.kspace.equal(expected.kspace)
    assert made.noise == 0.02


def test_simulate_keeps_the_size_of_voxels(run, tmp_path):
    voxels = np.moveaxis(upmri.demo.brain(), 0, 2)[:, ::2]
    nifti = nibabel.Nifti1Image(voxels, np.diag([-0.9, 1.8, 5, 1]))
    nibabel.save(nifti, tmp_path / "image.nii.gz")
    run("simulate", "image.nii.gz", "made.h5", "--coils", 4, "--accel", 2)
    assert upmri.load(tmp_path / "made.h5").spacing == (0.9, 1.8, 5)
    run("recon", "made.h5", "-m", "sense", "-o", "made.nii.gz")
    made = nibabel.load(tmp_path / "made.nii.gz")
    assert made.shape == voxels.shape
    np.testing.assert_allclose(made.header.get_zooms(), (0.9, 1.8, 5))


@pytest.mark.parametrize(("gib", "field"), [(1e-5, "image"), (1e-3, "scan")])
def test_simulate_takes_no_more_memory_than_allowed(run, tmp_path, gib, field):
    """Neither for the images nor for the scan of all coils."""
    np.save(tmp_path / "image.npy", upmri.demo.brain())
    done = run("simulate", "image.npy", "made.h5", "--max-gib", gib, code=2)
    assert f"image.npy: {field}: " in done.stderr
    assert not (tmp_path / "made.h5").exists()
    run("simulate", "image.npy", "made.h5", "--max-gib", 1)


def test_simulate_never_overwrites_its_image(run, tmp_path, one_line):
    np.save(tmp_path / "image.npy", upmri.demo.brain())
    before = (tmp_path / "image.npy").read_bytes()
    (tmp_path / "link.h5").hardlink_to(tmp_path / "image.npy")
    one_line(run("simulate", "image.npy", "link.h5", "--overwrite", code=2), "link.h5: is an input")
    assert (tmp_path / "link.h5").read_bytes() == before
    one_line(run("simulate", "image.npy", f"{'x' * 300}.h5", code=2), "name too long")


def test_lines_have_no_corners_to_leave_out(run, tmp_path, one_line):
    np.save(tmp_path / "image.npy", upmri.demo.brain())
    one_line(run("simulate", "image.npy", "x.h5", "--elliptic", code=2), "elliptic: ", "2-D pattern")
    assert not (tmp_path / "x.h5").exists()


def test_simulate_makes_a_volume_with_two_phase_encodings(run, tmp_path):
    np.save(tmp_path / "image.npy", upmri.demo.brain())
    options = ["--coils", "4", "--accel", "4", "--pattern", "caipi", "--elliptic"]
    run("simulate", tmp_path / "image.npy", tmp_path / "volume.h5", *options)
    made = upmri.load(tmp_path / "volume.h5")
    assert made.mask.shape[1:] == made.matrix
    said = run("info", tmp_path / "volume.h5").stdout
    assert "3-D with two phase encodings, cut along its readout" in said
    assert "2×2 CAIPI lattice, shift 1, elliptic shutter" in said
    error = run("simulate", tmp_path / "image.npy", tmp_path / "x.h5", "--pattern", "spiral", code=2).stderr
    assert "pattern" in error
