import math

import pytest
import torch

import upmri
from upmri.physics.map_quality import Quality, assess, severity, worst


@pytest.fixture(scope="module", params=["calibration lines", "every second line"])
def scan(request):
    made = upmri.simulate(upmri.demo.brain()[:1], coils=8, acceleration=2, acs=20, noise=0.003)
    if request.param == "calibration lines":
        return made
    full = upmri.physics.fourier.fft2c(made.maps * made.reference[:, None])
    mask = torch.arange(96) % 2 == 0
    return upmri.Scan(kspace=full * mask, maps=made.maps)


def share(scan, maps):
    return assess(scan.kspace, scan.mask, maps)[0]


def test_right_maps_are_good(scan):
    assert share(scan, scan.maps).verdict == "good"
    assert share(scan, scan.maps).unexplained < 0.01


def test_a_phase_or_another_scale_of_the_data_changes_nothing(scan):
    turned = scan.maps * torch.polar(torch.ones(96, 96), 6 * torch.rand(96, 96))
    assert share(scan, turned).verdict == "good" or scan.mask[0, 0, ::2].all()  # a phase per pixel hides no energy
    scaled = assess(1e5 * scan.kspace, scan.mask, scan.maps)[0]
    assert math.isclose(scaled.unexplained, share(scan, scan.maps).unexplained, rel_tol=1e-3)


@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [
        (lambda maps: maps.roll(6, -1), "doubtful"),
        (lambda maps: maps.roll(20, -1), "poor"),
        (lambda maps: maps.roll(1, 1), "poor"),  # coils in another order
        (lambda maps: maps.conj(), "poor"),
        (lambda maps: maps * (torch.arange(96) < 48), "poor"),  # half of the object
    ],
)
def test_wrong_maps_are_found(scan, wrong, verdict):
    found = share(scan, wrong(scan.maps))
    assert found.verdict in (verdict, "poor")


def test_the_share_is_that_of_the_projection():
    """Two coils with constant maps, and data of which a known share is perpendicular to them."""
    maps = torch.full((1, 2, 32, 32), math.sqrt(0.5), dtype=torch.complex64)
    image = torch.randn(32, 32, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    coils = torch.stack([image * (1 + 0.5), image * (1 - 0.5)])[None]  # along (1, 1) 1, along (1, −1) 0.5
    found = assess(upmri.physics.fourier.fft2c(coils), torch.ones(1, 1, 32, dtype=torch.bool), maps)
    assert math.isclose(found[0].unexplained, 0.25 / 1.25, rel_tol=1e-5)


def test_slices_without_samples_have_no_quality(scan):
    kspace = torch.cat([scan.kspace, 0 * scan.kspace])
    mask = torch.cat([scan.mask, scan.mask & False])
    found = assess(kspace, mask, torch.cat([scan.maps, scan.maps]))
    assert found[1] is None
    assert worst(found) == found[0]
    assert worst([None]) is None
    assert worst([Quality(0.1, "poor"), Quality(0.01, "good")]).verdict == "poor"
    # A good share of the one may be larger than a doubtful one of the other.
    assert worst([Quality(0.019, "good"), Quality(0.001, "poor", copy=0.2)]).copy == 0.2


@pytest.mark.parametrize(("copy", "verdict"), [(0.0, "good"), (0.03, "good"), (0.04, "doubtful"), (0.1, "poor")])
def test_a_copy_that_was_removed_is_judged_besides(scan, copy, verdict):
    """The data are explained in any case."""
    (found,) = assess(scan.kspace, scan.mask, scan.maps, [copy])
    assert (found.verdict, found.copy) == (verdict, copy)
    assert found.unexplained == share(scan, scan.maps).unexplained
    assert found.copied == (verdict != "good")
    assert ("copy of the object" in found.reason) == found.copied
    (wrong,) = assess(scan.kspace, scan.mask, scan.maps.roll(1, 1), [0.05])
    assert (wrong.verdict, wrong.copied) == ("poor", False)
    assert wrong.reason == f"{wrong.unexplained:.1%} of the data unexplained"


def test_verdicts_have_an_order():
    assert [severity(word) for word in ("good", "doubtful", "poor", "")] == [0, 1, 2, 0]
