"""Bounds of the default method, from the call to the files."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pydicom
import pytest
import torch

import upmri
from upmri import InputError
from upmri.core.bounds import NOT_COVERED
from upmri.evaluation.report.study import gather_study
from upmri.formats import load_reconstruction
from upmri.inference.joining import join_reconstructions
from upmri.learning.held_out_bounds import Calibration
from upmri.learning.line_errors import NAMES
from upmri.learning.line_model import LineModel
from upmri.methods.upmri_objective import UpmriObjective
from upmri.weights.catalogue import read_card
from upmri.weights.files import load_prior, save_weights, update_card

OBJECTIVE = UpmriObjective(cascades=1, width=4)
KEYS = ("0.8", "0.9", "0.95")
LEVELS = {key: 1.0 + index for index, key in enumerate(KEYS)}
CALIBRATION = Calibration(
    model=LineModel((-6.0, -1.0, *(0.0,) * (len(NAMES) - 2)), 1.0, 0.1, 0.3),
    level=(0.0, 5.0, 40),
    unknowns=(0.5, 20.0),
    noise=(0.001, 0.2),
    lines=LEVELS,
    psnr={"coefficients": [0.0, 0.0, 0.0, 1.0, 0.0], "quantiles": LEVELS},
    ssim={"coefficients": [0.0, 0.0, 0.0, 1.0, 0.0], "quantiles": LEVELS},
    pixels=LEVELS,
    slices=(40, 40),
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "bare.safetensors"
    card = {"name": "bare", "spread": {"radius": [5.0, 40.0], "gain": [1.0, 1.0], "exponent": [0.0, 0.0]}}
    return save_weights(path, OBJECTIVE.network().state_dict(), "upmri", OBJECTIVE, card)


@pytest.fixture(scope="module")
def model(bare):
    return update_card(bare, bare.with_name("bounded.safetensors"), bounds=CALIBRATION.card())


@pytest.fixture(scope="module")
def rec(scan, model):
    return upmri.reconstruct(scan, "upmri", model=model, device="cpu", bounds=True)


def test_the_card_is_the_only_thing_that_changes(bare, model):
    before, after = read_card(bare), read_card(model)
    assert after.pop("bounds") == json.loads(json.dumps(CALIBRATION.card()))
    assert after == before
    first, second = (load_prior(path).network.state_dict() for path in (bare, model))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_bounds_come_when_asked_for(scan, model, rec):
    plain = upmri.reconstruct(scan, "upmri", model=model, device="cpu")
    assert plain.bounds is None
    assert torch.equal(plain.image, rec.image)  # the image is the same
    assert len(rec.bounds) == 2
    assert rec.bounds.reasons == ("", "")
    assert rec.bounds.deviations is None
    assert rec.settings["bounds"] is True
    assert torch.equal(rec.bounds.lines == 0, scan.mask[:, 0])


def test_more_confidence_is_a_lower_bound(scan, model, rec):
    surer = upmri.reconstruct(scan, "upmri", model=model, device="cpu", bounds=True, confidence=0.95).bounds
    assert surer.psnr == pytest.approx([value - 1 for value in rec.bounds.psnr], abs=1e-4)
    assert all(low < high for low, high in zip(surer.ssim, rec.bounds.ssim, strict=True))
    assert bool((surer.lines >= rec.bounds.lines).all())


def test_bounds_of_lines_are_in_the_units_of_the_scan(scan, model, rec):
    larger = replace(scan, kspace=1000 * scan.kspace, noise=1000 * scan.noise, reference=None)
    found = upmri.reconstruct(larger, "upmri", model=model, device="cpu", bounds=True).bounds
    torch.testing.assert_close(found.lines, 1000 * rec.bounds.lines, rtol=1e-3, atol=0)
    assert found.psnr == pytest.approx(rec.bounds.psnr, abs=0.01)


def test_a_slice_alone_has_the_bounds_it_has_in_the_volume(scan, model, rec):
    alone = upmri.reconstruct(scan[1], "upmri", model=model, device="cpu", bounds=True)
    assert alone.bounds.psnr[0] == pytest.approx(rec.bounds.psnr[1], abs=1e-4)
    first = upmri.reconstruct(scan[0], "upmri", model=model, device="cpu", bounds=True)
    assert join_reconstructions([first, alone]).bounds.psnr == pytest.approx(rec.bounds.psnr, abs=1e-4)


def test_a_slice_without_samples_has_a_reason(scan, model):
    gap = replace(scan, kspace=scan.kspace * torch.tensor([0.0, 1.0])[:, None, None, None], mask=None, reference=None)
    with pytest.warns(UserWarning, match="sampled"):
        found = upmri.reconstruct(gap, "upmri", model=model, device="cpu", bounds=True).bounds
    assert found.reasons == ("nothing was sampled", "")
    assert found.psnr[0] is None
    assert found.psnr[1] is not None


def test_pixels_have_intervals_with_samples_of_the_bootstrap_alone(scan, model):
    settings = {"model": model, "device": "cpu", "samples": 2, "bounds": True}
    rec = upmri.reconstruct(scan, "upmri", **settings)
    assert rec.bounds.deviations == LEVELS["0.9"]
    low, high = rec.bounds.interval(rec.image, rec.std)
    torch.testing.assert_close(high, rec.image.abs() + 2 * rec.std)
    assert bool((low >= 0).all())
    assert upmri.reconstruct(scan, "upmri", steps=2, **settings).bounds.deviations is None


def test_weights_without_a_calibration_say_what_to_do(scan, bare):
    with pytest.raises(InputError, match=r"calibrate_bounds\.py") as caught:
        upmri.reconstruct(scan, "upmri", model=bare, device="cpu", bounds=True)
    assert caught.value.field == "bounds"


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"adapt": True}, "bounds"), ({"mirrors": True}, "bounds"), ({"refine_maps": True}, "bounds"),
     ({"confidence": 0.5}, "confidence")],
)  # fmt: skip
def test_settings_that_were_not_calibrated_are_refused(scan, model, settings, field):
    with pytest.raises(InputError) as caught:
        upmri.reconstruct(scan, "upmri", model=model, device="cpu", bounds=True, **settings)
    assert caught.value.field == field


def test_points_have_no_bounds_and_a_reason(scan, model):
    mask = scan.mask.expand(-1, scan.matrix[0], -1).clone()
    mask[:, 0] = False
    points = replace(scan, kspace=scan.kspace * mask[:, None], mask=mask)
    found = upmri.reconstruct(points, "upmri", model=model, device="cpu", bounds=True).bounds
    assert "whole lines" in found.sentence


def test_a_file_gives_back_the_bounds(tmp_path, rec):
    again = load_reconstruction(rec.save(tmp_path / "a.h5"))
    assert again.bounds.header == rec.bounds.header
    assert torch.equal(again.bounds.lines, rec.bounds.lines)
    plain = load_reconstruction(replace(rec, bounds=None).save(tmp_path / "b.h5"))
    assert plain.bounds is None


def test_a_file_with_half_of_the_bounds_is_refused(tmp_path, rec):
    path = rec.save(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        del file["bounds_lines"]
    with pytest.raises(InputError) as caught:
        load_reconstruction(path)
    assert caught.value.field == "bounds"


def test_dicom_and_the_report_say_it_with_what_is_not_covered(tmp_path, rec):
    folder = rec.save(tmp_path / "a.dcm")
    comment = pydicom.dcmread(sorted(folder.iterdir())[0]).ImageComments
    said = dict(gather_study(rec).pictures[-1].statements)
    for text in (comment, said["bound on PSNR"]):
        assert rec.bounds.sentence in text
        assert NOT_COVERED in text


def test_training_calibrates_where_there_are_enough_scans(scan):
    """Ten problems of two slices, that can be gone through twice."""
    network = OBJECTIVE.network()
    problems = [upmri.physics.Problem.from_scan(scan, seed=seed) for seed in range(10)]
    with torch.no_grad():
        card = OBJECTIVE.calibrate(network, problems)
        assert set(OBJECTIVE.calibrate(network, problems[:2])) == {"spread"}
    assert set(card) == {"spread", "bounds"}
    found = Calibration.from_card(card, "new weights")
    assert found.slices == (10, 10)
    assert np.isfinite(found.psnr["coefficients"]).all()
