"""What a page draws, against the arrays it was made of."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.core.scan import Reconstruction
from upmri.evaluation import psnr
from upmri.evaluation.report import write_report
from upmri.evaluation.report.encode import unpack


def test_all_that_a_result_holds_is_in_the_page(tmp_path, results, scan_of, study_of, values_of):
    recs, scan = results(), scan_of()
    page = write_report(recs, tmp_path / "report.html", scan=scan).read_text("utf-8")
    study = study_of(page)
    assert [source["name"] for source in study["sources"]] == ["reference", "sense", "upmri"]
    reference, _, last = (source["has"] for source in study["sources"])

    peak = recs[1].image.abs().max().item()
    for has, image in ((reference, recs[0].reference), (last, recs[1].image)):
        np.testing.assert_allclose(values_of(page, has["magnitude"]), image.abs(), atol=peak / 65535)
        turn = np.exp(1j * values_of(page, has["phase"])) * np.exp(-1j * np.angle(image.numpy()))
        assert np.abs(np.angle(turn)).max() < np.pi / 254 + 1e-4
    np.testing.assert_allclose(values_of(page, last["std"]), recs[1].std, atol=recs[1].std.max().item() / 65535)
    for array, sample in zip(last["samples"], recs[1].samples, strict=True):
        made = values_of(page, last["magnitude"]) + values_of(page, array)
        np.testing.assert_allclose(made, sample.abs(), atol=peak / 1023)

    sampled = scan.kspace.abs().square().sum(1).sqrt()
    decades = values_of(page, study["measured"]["kspace"])
    mask = values_of(page, study["measured"]["mask"]).astype(bool)
    np.testing.assert_array_equal(mask, scan.mask.expand(3, 24, 40))
    np.testing.assert_allclose(10 ** decades[mask] * sampled.max().item(), sampled[torch.from_numpy(mask)], rtol=1e-3)
    assert dict(study["facts"])["acceleration"] == "2×"

    scores = study["sources"][1]["scores"]
    np.testing.assert_allclose(scores["psnr"], psnr(recs[0].image, recs[0].reference), rtol=1e-5)
    assert len(scores["ssim"]) == len(scores["nmse"]) == 3
    details = dict(study["sources"][2]["details"])
    assert details["weights' SHA-256"] == "ab" * 32
    assert details["weights"] == "brain.safetensors"
    assert "somebody" not in page
    assert details["made with"] == "upmri 0.0.1, torch 2.0"
    assert dict(study["sources"][1]["details"])["made with"] == "unknown"
    assert f'content="UPMRI {upmri.__version__}"' in page


def test_slices_of_a_scan(tmp_path, results, scan_of, study_of):
    recs = results(slices=2)
    scan_of((5, 24, 40)).save(tmp_path / "scan.h5")
    for source in (scan_of((5, 24, 40)), tmp_path / "scan.h5"):
        page = write_report(recs, tmp_path / "r.html", scan=source, slices="1:3", overwrite=True).read_text("utf-8")
        assert study_of(page)["measured"]
    with pytest.raises(InputError) as error:
        write_report(recs, tmp_path / "r.html", scan=tmp_path / "scan.h5", overwrite=True)
    assert (error.value.field, error.value.path) == ("scan", str(tmp_path / "scan.h5"))
    assert "5 × 24 × 40" in error.value.message


def test_scores_that_are_not_defined_are_none(tmp_path, results, study_of):
    rec = results()[0]
    blank = rec.reference.clone()
    blank[1] = 0
    same = replace(rec, reference=blank, image=blank)
    scores = study_of(write_report(same, tmp_path / "r.html").read_text("utf-8"))["sources"][1]["scores"]
    assert scores["psnr"] == [None, None, None]  # infinite, not defined, infinite
    assert scores["ssim"] == [1.0, None, 1.0]
    tiny = Reconstruction(image=torch.ones(1, 4, 4), reference=torch.ones(1, 4, 4))
    assert study_of(write_report(tiny, tmp_path / "s.html").read_text("utf-8"))["sources"][1]["scores"]["ssim"] == [
        None
    ]


def test_images_of_nothing_can_be_shown(tmp_path, study_of):
    nothing = Reconstruction(image=torch.zeros(1, 8, 8), samples=torch.zeros(2, 1, 8, 8), std=torch.zeros(1, 8, 8))
    study = study_of(write_report(nothing, tmp_path / "r.html").read_text("utf-8"))
    assert study["white"] > 0
    assert study["deviation"] > 0
    assert "phase" not in study["sources"][0]["has"]


@pytest.mark.parametrize("scale", [2e38, 1e-37])
def test_units_may_be_anything(tmp_path, scale, results, scan_of, study_of, values_of):
    rec = results()[1]
    peak = max(rec.image.abs().max(), rec.samples.abs().max(), rec.reference.abs().max()).item()
    big = {name: (getattr(rec, name).to(torch.complex128) * scale / peak) for name in ("image", "samples", "reference")}
    page = write_report(replace(rec, std=None, **big), tmp_path / "r.html", scan=scan_of()).read_text("utf-8")
    study = study_of(page)
    image = values_of(page, study["sources"][1]["has"]["magnitude"])
    np.testing.assert_allclose(image, big["image"].abs(), atol=scale / 65535)
    assert study["sources"][1]["scores"]["psnr"][0] > 20


def test_coils_of_a_few_slices(tmp_path, results, scan_of, study_of):
    """Low-resolution coil images and maps, against transforms of the scan; only slices near those that are shown."""
    recs, scan = results(slices=9, height=160, width=130), scan_of((9, 160, 130))
    maps = torch.zeros_like(scan.kspace)
    maps[:, 0], maps[:, 1] = 0.6, 0.8j
    page = write_report(recs, tmp_path / "r.html", scan=replace(scan, maps=maps)).read_text("utf-8")
    study = study_of(page)
    assert len(study["coils"]) == 2
    first = study["arrays"][study["coils"][0]["coil"]]
    assert first["slices"] == [2, 4, 6]
    assert first["shape"] == [128, 128]
    middle = scan.kspace[4, 1, 16:144, 1:129]
    expected = torch.fft.fftshift(torch.fft.ifft2(torch.fft.ifftshift(middle), norm="ortho")).abs()
    np.testing.assert_allclose(_plane(page, study, study["coils"][1]["coil"], 4), expected, atol=first["step"])
    magnitude, phase = study["coils"][1]["map"]
    np.testing.assert_allclose(_plane(page, study, magnitude, 6), 0.8, atol=1e-6)
    np.testing.assert_allclose(_plane(page, study, phase, 6), np.pi / 2, atol=0.02)
    assert study["mapsFrom"] == "in the scan's file"


def test_maps_that_cannot_be_estimated_are_left_out(tmp_path, results, scan_of, study_of):
    study = study_of(write_report(results(), tmp_path / "r.html", scan=scan_of()).read_text("utf-8"))
    assert [set(coil) for coil in study["coils"]] == [{"coil"}] * 2  # every second line: no calibration lines


def test_maps_are_estimated_from_calibration_lines(tmp_path, study_of):
    image = np.zeros((48, 48))
    image[8:40, 12:36] = 1
    scan = upmri.simulate(image, coils=4, acceleration=2)
    rec = upmri.reconstruct(scan, method="sense")
    bare = upmri.Scan(kspace=scan.kspace, mask=scan.mask)
    page = write_report(rec, tmp_path / "r.html", scan=bare).read_text("utf-8")
    study = study_of(page)
    assert study["mapsFrom"] == "estimated from calibration lines; not shown: given, which results used"
    mapped = replace(rec, settings=rec.settings | {"maps_from": "calibration lines"})
    other = study_of(write_report(mapped, tmp_path / "s.html", scan=bare).read_text("utf-8"))
    assert other["mapsFrom"] == "estimated from calibration lines"
    own = study_of(write_report(rec, tmp_path / "t.html", scan=scan).read_text("utf-8"))
    assert own["mapsFrom"] == "in the scan's file"
    found = sum(_plane(page, study, coil["map"][0], 0) ** 2 for coil in study["coils"])
    assert found[20:28, 20:28].min() > 0.95


def test_magnitudes_are_coarser_where_they_would_fill_the_page(tmp_path, results, study_of, values_of):
    rec = results(height=96, width=96)[0]
    with pytest.warns(UserWarning, match="left out"):
        page = write_report(rec, tmp_path / "r.html", max_megabytes=0.24).read_text("utf-8")
    study = study_of(page)
    assert study["bits"] == 12
    shown = values_of(page, study["sources"][1]["has"]["magnitude"])
    np.testing.assert_allclose(shown, rec.image.abs(), atol=rec.image.abs().max().item() / 4095)


def _plane(page, study, array, index):
    facts = study["arrays"][array]
    text = re.search(rf'id="{array}/{index}">(.*?)</script>', page)[1]
    return facts["offset"] + facts["step"] * unpack(text, tuple(facts["shape"]), facts["bits"]).astype(float)
