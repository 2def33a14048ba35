"""Scans are repaired: maps get length 1, faulty coils become 0, and all of it is noted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.physics.quality import Notes, repair


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(upmri.demo.brain()[:2], coils=8, acceleration=4, noise=0.005)


def test_a_good_scan_is_not_changed(scan):
    assert repair(scan) == (scan, Notes())
    bare = replace(scan, maps=None)
    assert repair(bare) == (bare, Notes())


@pytest.mark.parametrize("factor", [1e-30, 0.9, 3.0, 1e30])
def test_maps_of_another_length_are_normalised(scan, factor):
    fixed, notes = repair(replace(scan, maps=factor * scan.maps))
    assert torch.allclose(fixed.maps, scan.maps, atol=1e-6)
    assert notes.normalised.keys() == {0, 1}
    assert notes.normalised[0] == pytest.approx((factor, factor), rel=1e-4)


def test_maps_of_uneven_length_are_normalised(scan):
    slope = torch.linspace(0.5, 4, 96)
    fixed, notes = repair(replace(scan, maps=scan.maps * slope))
    assert torch.allclose(fixed.maps, scan.maps, atol=1e-6)
    low, high = notes.normalised[1]
    assert 0.5 <= low < 1 < 3 < high <= 4


def test_only_the_slices_with_wrong_maps_are_changed(scan):
    maps = scan.maps.clone()
    maps[1] *= 2
    fixed, notes = repair(replace(scan, maps=maps))
    assert torch.equal(fixed.maps[0], scan.maps[0])
    assert notes.normalised.keys() == {1}


def test_a_soft_edge_of_the_maps_is_right(scan):
    maps = scan.maps.clone()
    maps[:, :, 46:48] *= 0.5  # two of 96 rows
    assert repair(replace(scan, maps=maps))[1] == Notes()


@pytest.mark.parametrize("wrong", [0, 1])
def test_maps_of_0_are_refused(scan, wrong):
    maps = scan.maps.clone()
    maps[wrong] = 0
    with pytest.raises(InputError, match=f"slice {wrong}") as error:
        repair(replace(scan, maps=maps))
    assert error.value.field == "maps"


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_maps_that_are_not_finite_are_refused(scan, value):
    with pytest.raises(InputError) as error:
        replace(scan, maps=value * scan.maps)
    assert error.value.field == "maps"


def test_a_faulty_coil_is_0_in_the_slices_where_it_is_faulty(scan, rng):
    kspace = scan.kspace.clone()
    kspace[1, 3] += rng(96, 96).to(kspace) * scan.mask[1]
    fixed, notes = repair(replace(scan, kspace=kspace))
    assert notes.left_out == {1: {3: "noisy"}}
    assert not fixed.kspace[1, 3].any()
    assert not fixed.maps[1, 3].any()
    others = [0, 1, 2, 4, 5, 6, 7]
    for name in ("kspace", "maps"):
        assert torch.equal(getattr(fixed, name)[0], getattr(scan, name)[0])
        assert torch.equal(getattr(fixed, name)[1, others], getattr(scan, name)[1, others])


def test_a_spike_where_nothing_was_sampled_is_no_sample(scan):
    """It makes a mask of points out of one of lines."""
    kspace = scan.kspace.clone()
    kspace[0, 3, 12, int((~scan.mask[0, 0]).nonzero()[0])] = 1000
    spiking = upmri.Scan(kspace=kspace, maps=scan.maps, noise=scan.noise)
    assert spiking.mask.shape == (2, 96, 96)
    fixed, notes = repair(spiking)
    assert notes.left_out == {0: {3: "spiking"}}
    assert torch.equal(fixed.mask, scan.mask)


def test_empty_slices_are_noted(scan):
    kspace, maps = scan.kspace.clone(), scan.maps.clone()
    kspace[0] = maps[0] = 0
    fixed, notes = repair(upmri.Scan(kspace=kspace, maps=maps))
    assert notes == Notes(empty=[0])
    assert torch.equal(fixed.kspace, kspace)
