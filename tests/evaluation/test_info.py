"""The description of a scan, from a file, a Scan, an array and a tensor."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.evaluation.info import info


@pytest.fixture
def scan():
    return upmri.simulate(upmri.demo.brain(), coils=4, acceleration=2, acs=12)


def test_a_scan_and_its_file_give_the_same(scan, tmp_path):
    scan = replace(scan, spacing=(1, 2, 3), name="apple")
    scan.save(tmp_path / "scan.h5")
    facts = info(scan)
    assert json.loads(json.dumps(facts)) == facts
    assert facts | {"file": str(tmp_path / "scan.h5"), "format": "UPMRI HDF5"} == info(tmp_path / "scan.h5")
    assert (facts["name"], facts["file"], facts["format"]) == ("apple", None, "Scan")
    assert (facts["slices"], facts["coils"], facts["matrix"], facts["spacing"]) == (3, 4, [96, 96], [1, 2, 3])
    assert (facts["mask"], facts["acceleration"]) == ("lines", 2.0)
    assert facts["calibration"][0] == 96
    assert facts["calibration"][1] >= 12
    assert (facts["noise"], facts["noise_from"]) == (0.01, "scan")
    assert (facts["maps"], facts["reference"], facts["geometry"]) == (True, True, False)
    assert facts["notes"] == []


@pytest.mark.parametrize("kind", ["NumPy array", "tensor"])
def test_k_space_alone(scan, kind):
    facts = info(scan.kspace if kind == "tensor" else scan.kspace.numpy())
    assert facts["format"] == kind
    assert (facts["slices"], facts["coils"], facts["acceleration"]) == (3, 4, 2.0)
    assert facts["noise"] == pytest.approx(0.01, rel=0.2)
    assert facts["noise_from"] == "calibration lines of the middle slice"
    assert not facts["maps"]


def test_what_differs_between_slices_is_that_of_the_middle_one(rng):
    mask = torch.zeros(3, 1, 96, dtype=torch.bool)
    mask[::2, :, ::2] = True
    mask[1, :, 40:56] = True
    facts = info(upmri.Scan(kspace=rng(3, 4, 96, 96) * mask[:, None], mask=mask))
    assert facts["calibration"] == [96, 16]
    assert facts["acceleration"] == 6.0


def test_where_the_middle_slice_has_no_samples_the_nearest_is_described(scan, tmp_path):
    kspace = scan.kspace.clone()
    kspace[1] = 0
    np.save(tmp_path / "x.npy", kspace.numpy())
    for one in (kspace, tmp_path / "x.npy"):
        facts = info(one)
        assert (facts["slices"], facts["acceleration"]) == (3, 2.0)
        assert facts["noise_from"] == "calibration lines of slice 0"
        assert facts["notes"][0] == "Nothing was sampled in the middle slice: slice 0 is described."


def test_a_scan_without_samples_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 4, 32, 32), np.complex64))
    with pytest.raises(InputError, match="nothing was sampled") as error:
        info(tmp_path / "x.npy")
    assert error.value.path == str(tmp_path / "x.npy")


def test_a_mask_of_points():
    mask = upmri.physics.masks.poisson_disc((32, 32), 4, (8, 8))
    kspace = torch.ones(2, 32, 32, dtype=torch.complex64) * mask
    facts = info(upmri.Scan(kspace=kspace, mask=mask, noise=1.0))
    assert (facts["mask"], facts["acceleration"]) == ("2-D", 4.0)
    assert min(facts["calibration"]) >= 8


def test_an_array_that_looks_like_a_3d_scan_gets_a_hint(tmp_path):
    planes = upmri.simulate(upmri.demo.brain(), coils=4, acceleration=4, pattern="poisson")
    np.save(tmp_path / "x.npy", planes.kspace.swapaxes(0, 1).numpy())  # (coil, readout, phase, partition)
    hint = "read as 4 slices of 3 coils"
    assert any(hint in note for note in info(tmp_path / "x.npy")["notes"])
    named = info(tmp_path / "x.npy", axes="coil,readout,phase,partition")
    assert not any("--axes" in note for note in [*named["notes"], *info(planes)["notes"]])


def test_notes():
    sampled, coil = info(np.ones((1, 24, 24), np.complex64))["notes"]
    assert "sampled" in sampled
    assert "one coil" in coil
    hollow = np.ones((2, 24, 24), np.complex64)
    hollow[..., 8:16] = 0
    facts = info(hollow)
    assert (facts["calibration"], facts["noise_from"]) == ([0, 0], "lines of the middle slice")
    assert (facts["maps_from"], facts["maps_quality"]) == (None, None)
    assert "No coil maps: there are no calibration lines" in facts["notes"][0]
    few = np.zeros((2, 24, 24), np.complex64)
    few[..., 12:14] = 1
    facts = info(upmri.Scan(kspace=few, noise=0.1, meta={"nominal_acceleration": 8}))
    assert "8×" in facts["notes"][0]
    assert "No coil maps" in facts["notes"][1]  # a signal that does not fall off along the readout is none
    assert facts["meta"] == {"nominal_acceleration": 8}


def test_bad_input(tmp_path):
    with pytest.raises(InputError) as error:
        info(tmp_path / "missing.npy")
    assert str(tmp_path / "missing.npy") in str(error.value)
    with pytest.raises(InputError) as error:
        info(np.ones((2, 3)))
    assert str(error.value).startswith("kspace: ")


def test_where_maps_are_from_and_how_good_they_are():
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=6, acceleration=2, acs=16, noise=0.003)
    bare = upmri.Scan(kspace=scan.kspace)
    for one, way in ((scan, "given"), (bare, "calibration lines")):
        facts = info(one)
        assert (facts["maps_from"], facts["maps_quality"]) == (way, "good")
        assert 0 < facts["maps_unexplained"] < 0.02
    wrong = info(upmri.Scan(kspace=scan.kspace, maps=scan.maps.roll(1, 1)))
    assert wrong["maps_quality"] == "poor"
    assert any("maps are poor" in note for note in wrong["notes"])
    copied = info(replace(scan, meta={"maps_from": "joint estimation", "maps_copy": 0.05}))
    assert copied["maps_quality"] == "doubtful"
    assert any("maps are doubtful: 5.0% of the image were a copy of the object" in note for note in copied["notes"])
