"""The choice of a way to coil maps, and those of reference scans and averages."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.physics import maps as module
from upmri.physics.fourier import fft2c, middle
from upmri.physics.maps import copy_removed, estimate_maps, found_maps


@pytest.fixture(scope="module")
def full():
    return upmri.simulate(upmri.demo.brain()[:1], coils=6, acceleration=1, acs=0, noise=0.003)


def undersampled(full, mask=None, **more):
    mask = torch.arange(full.matrix[1]) % 2 == 0 if mask is None else mask
    return upmri.Scan(kspace=full.kspace * mask, **more)


def agree(found, true, image):
    bright = image.abs() > 0.1
    return (found.conj() * true).sum(1).abs()[bright].median() > 0.99


def test_a_reference_scan_of_another_matrix(full):
    reference = upmri.Scan(kspace=middle(full.kspace, 48, 24))
    mapped = estimate_maps(undersampled(full), reference)
    assert mapped.meta["maps_from"] == "reference scan"
    assert agree(mapped.maps, full.maps, full.reference)
    same = estimate_maps(upmri.Scan(kspace=full.kspace), reference)
    assert torch.equal(mapped.maps, same.maps)  # the scan's own lines are not used


def test_a_reference_scan_with_a_larger_field_of_view(full):
    """Twice the field of view along the readout, by the spacing: maps lie where the object does."""
    wide = torch.zeros(1, 6, 192, 96, dtype=torch.complex64)
    wide[:, :, 48:144] = full.maps * full.reference[:, None]
    low = middle(fft2c(wide), 96, 48)
    reference = upmri.Scan(kspace=low, spacing=(2, 2, 5))  # 192 mm and 96 mm
    scan = undersampled(full, spacing=(1, 1, 5))
    assert agree(estimate_maps(scan, reference).maps, full.maps, full.reference)
    small = replace(reference, spacing=(0.9, 2, 5))  # 86 mm
    with pytest.raises(InputError, match="expected a field of view of 96 mm or more, as the scan has, got 86.4 mm"):
        estimate_maps(scan, small)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda kspace: kspace[:, :3], "expected 6 coils"),
        (lambda kspace: torch.cat([kspace] * 3), "expected 1 slice or 2"),
        (lambda kspace: kspace * (torch.arange(96) % 2), "fully sampled lines"),
    ],
)
def test_reference_scans_that_do_not_suit(full, reference, message):
    scan = upmri.Scan(kspace=torch.cat([full.kspace] * 2))
    with pytest.raises(InputError, match=message) as error:
        estimate_maps(scan, upmri.Scan(kspace=reference(full.kspace)))
    assert error.value.field == "reference"


def test_one_slice_of_reference_serves_all(full):
    scan = upmri.Scan(kspace=torch.cat([full.kspace, full.kspace]))
    found = estimate_maps(scan, upmri.Scan(kspace=full.kspace)).maps
    assert torch.equal(found[0], found[1])


def frames(full, step=4, **axes):
    """Frames of one slice, each with every ``step``-th line, from another line on."""
    masks = [torch.arange(full.matrix[1]) % step == i for i in range(step)]
    kspace = torch.cat([full.kspace * mask for mask in masks])
    return upmri.Scan(kspace=kspace, meta={"axes": axes or {"time": step}})


def test_the_average_over_time(full):
    scan = frames(full)
    mapped = estimate_maps(scan)
    assert mapped.meta["maps_from"] == "average over time"
    whole = estimate_maps(upmri.Scan(kspace=full.kspace))
    assert whole.meta["maps_from"] == "calibration lines"
    for one in mapped.maps:
        assert torch.equal(one, whole.maps[0])
    rec = upmri.reconstruct(scan, "sense", device="cpu")
    assert rec.settings["maps_from"] == "average over time"
    assert rec.settings["maps_quality"] == "good"


@pytest.fixture
def joint(monkeypatch):
    """Number of slices whose maps were estimated jointly."""
    calls = []

    def stand_in(kspace, mask):
        calls.append(len(kspace))
        return torch.full_like(kspace, kspace.shape[1] ** -0.5), torch.full((len(kspace),), 0.25)

    monkeypatch.setattr(module, "joint_estimate", stand_in)
    return calls


def test_slices_that_are_no_frames_are_not_averaged(full, joint):
    assert estimate_maps(frames(full, slice=4)).meta["maps_from"] == "joint estimation"
    assert joint == [4]


def test_an_average_without_calibration_lines_is_not_used(full, joint):
    scan = frames(full)
    gap = replace(scan, kspace=scan.kspace * (torch.arange(96) != 48), mask=None)
    assert estimate_maps(gap).meta["maps_from"] == "joint estimation"
    assert joint == [4]


def test_each_slice_gets_the_way_it_offers(full, joint):
    mask = torch.arange(96) % 2 == 0
    few = mask.clone()
    few[46:51] = True
    kspace = torch.cat([full.kspace * mask, full.kspace * few, 0 * full.kspace])
    scan = upmri.Scan(kspace=kspace)
    found = found_maps(scan.kspace, scan.mask)
    assert found.ways == ["joint estimation", "calibration lines", "calibration lines"]
    assert joint == [1]
    assert torch.equal(found.maps[1], estimate_maps(scan[1]).maps[0])
    assert not found.maps[2].any()
    assert found.copies == [0.25, 0, 0]
    assert estimate_maps(scan).meta["maps_from"] == "joint estimation, calibration lines"


def test_the_share_of_the_copy_goes_with_the_maps(full, joint):
    scan = undersampled(full)
    mapped = estimate_maps(scan)
    assert mapped.meta["maps_copy"] == copy_removed(mapped.meta) == 0.25
    for one in (scan, mapped):
        assert upmri.Problem.from_scan(one).maps_copies == (0.25,)
    again = estimate_maps(mapped, full)
    assert "maps_copy" not in again.meta
    assert upmri.Problem.from_scan(again).maps_copies == (0,)
    replaced = replace(mapped, maps=full.maps, meta=mapped.meta | {"maps_from": "reference scan"})
    assert copy_removed(replaced.meta) == 0


@pytest.mark.parametrize("estimate", [lambda scan: scan, estimate_maps])
def test_maps_with_a_large_share_of_the_copy_are_poor(full, monkeypatch, estimate):
    """True maps explain the data, which does not show that they are right."""
    monkeypatch.setattr(module, "joint_estimate", lambda *_: (full.maps, torch.tensor([0.25])))
    scan = estimate(undersampled(full, noise=0.003))
    with pytest.warns(UserWarning, match=r"maps \(joint estimation\): 25.0% of the image were a copy of the object"):
        settings = upmri.reconstruct(scan, "sense", device="cpu").settings
    assert (settings["maps_quality"], settings["maps_copy"]) == ("poor", 0.25)
    assert settings["maps_unexplained"] < 0.01


def test_problems_say_where_maps_are_from(full, joint):
    scan = undersampled(full)
    assert upmri.Problem.from_scan(scan).maps_from == ("joint estimation",)
    assert upmri.Problem.from_scan(upmri.Scan(kspace=full.kspace)).maps_from == ("calibration lines",)
    assert upmri.Problem.from_scan(replace(scan, maps=full.maps)).maps_from == ("given",)
    assert upmri.Problem.from_scan(estimate_maps(scan, full)).maps_from == ("reference scan",)


@pytest.mark.parametrize(
    "setting",
    [{"calibration": 3}, {"calibration": 24.5}, {"kernel": 0}, {"kernel": "6"}, {"threshold": -1}, {"crop": 2}],
)
def test_settings_of_espirit_that_are_refused(full, setting):
    """Also where another way to maps does not use them."""
    for scan in (full, undersampled(full)):
        with pytest.raises(InputError) as error:
            upmri.estimate_maps(scan, **setting)
        assert error.value.field == next(iter(setting))


def test_phantom_without_calibration_lines(data):
    """Real: every second line, and a reference scan of 24 lines."""
    scan = upmri.load(data / "scans" / "phantom_16ch_r2_kspace.npy")
    mapped = estimate_maps(scan, upmri.load(data / "scans" / "phantom_16ch_r2_reference.npy"))
    one, other = (upmri.reconstruct(which, "sense", device="cpu") for which in (scan, mapped))
    assert (one.settings["maps_from"], other.settings["maps_from"]) == ("joint estimation", "reference scan")
    inside = (mapped.maps != 0).any(1)
    x, x0 = (rec.image.abs() * inside for rec in (one, other))
    assert (x - x0).norm() < 0.05 * x0.norm()
