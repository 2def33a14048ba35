"""Maps for the slices of a file: given ones, those of a reference scan, and of the average over time."""

import warnings

import numpy as np
import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.formats import open_source
from upmri.inference.joining import join_reconstructions
from upmri.inference.mapped import MappedSlices
from upmri.physics.frames import places


@pytest.fixture(scope="module")
def full():
    return upmri.simulate(upmri.demo.brain()[:2, ::2, ::2], coils=4, acceleration=1, acs=0, noise=0.003)


@pytest.fixture
def dynamic(full, tmp_path):
    """Four frames of two slices, each with every fourth line, slices fastest."""
    masks = torch.stack([torch.arange(48) % 4 == i for i in range(4)])
    kspace = torch.cat([full.kspace * mask for mask in masks])
    upmri.Scan(kspace=kspace, meta={"axes": {"frame": 4, "slice": 2}}).save(tmp_path / "scan.h5")
    return tmp_path / "scan.h5"


def ways(scans):
    return [scan.meta.get("maps_from") for scan in scans]


def test_the_average_over_time_of_a_file(full, dynamic):
    whole = upmri.estimate_maps(upmri.Scan(kspace=full.kspace)).maps
    with open_source(dynamic) as source:
        scans = list(MappedSlices(source))
        some = list(MappedSlices(source, "3"))  # all frames are averaged, also for one of them
        alone = MappedSlices(source, "2:8:2").read(1)
    assert ways(scans) == ["average over time"] * 8
    for i, scan in enumerate(scans):
        assert torch.allclose(scan.maps[0], whole[i % 2], atol=1e-5)
    assert torch.equal(some[0].maps, scans[3].maps)
    assert torch.equal(alone.kspace, scans[4].kspace)
    assert torch.equal(alone.maps, scans[4].maps)


def test_frames_with_calibration_lines_stay_as_they_are(full, tmp_path):
    upmri.Scan(kspace=full.kspace, meta={"axes": {"frame": 2}}).save(tmp_path / "scan.h5")
    with open_source(tmp_path / "scan.h5") as source:
        assert [scan.maps for scan in MappedSlices(source)] == [None, None]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_given_maps_of_one_slice_of_all_places_or_of_all_slices(dynamic, count):
    maps = torch.full((count, 4, 48, 48), 0.5 + 0j) * torch.arange(1, count + 1)[:, None, None, None]
    with open_source(dynamic) as source:
        scans = list(MappedSlices(source, "2:6", maps=maps))
    first = {1: [1, 1, 1, 1], 2: [1, 2, 1, 2], 8: [3, 4, 5, 6]}[count]
    assert [round(2 * scan.maps[0, 0, 0, 0].real.item()) for scan in scans] == first
    assert ways(scans) == ["given"] * 4


def test_a_reference_scan(full, dynamic):
    reference = upmri.Scan(kspace=full.kspace[..., 12:36, 12:36].contiguous())
    with open_source(dynamic) as source:
        scans = list(MappedSlices(source, reference=reference))
    assert ways(scans) == ["reference scan"] * 8
    assert torch.equal(scans[1].maps, scans[3].maps)
    assert not torch.equal(scans[0].maps, scans[1].maps)


@pytest.mark.parametrize(("shape", "message"), [((1, 3, 48, 48), "like the scan"), ((5, 4, 48, 48), "1 slice or 8")])
def test_maps_that_do_not_suit(dynamic, shape, message):
    with open_source(dynamic) as source, pytest.raises(InputError, match=message) as error:
        list(MappedSlices(source, maps=torch.ones(shape, dtype=torch.complex64)))
    assert error.value.field == "maps"


def test_npy_has_no_frames(full, tmp_path):
    np.save(tmp_path / "scan.npy", full.kspace.numpy())
    with open_source(tmp_path / "scan.npy") as source:
        assert [scan.maps for scan in MappedSlices(source)] == [None, None]


def test_some_slices_of_a_dynamic_file_name_their_frames(dynamic):
    with open_source(dynamic) as source:
        some = MappedSlices(source, "1::2").read(2)
        assert places(some.meta, 4) == [0, 0, 0, 0]
        assert list(MappedSlices(source))[3].meta["axes"] == {"frame": 4, "slice": 2}


def test_slices_of_a_loaded_scan_have_the_maps_of_loaded_slices(dynamic):
    """All frames of one place, whose average alone has calibration lines."""
    cut, loaded = upmri.load(dynamic)[1::2], upmri.load(dynamic, slices="1::2")
    assert cut.meta == loaded.meta
    made = [upmri.reconstruct(scan, "sense", device="cpu") for scan in (cut, loaded)]
    assert [rec.settings["maps_from"] for rec in made] == ["average over time"] * 2
    assert torch.equal(made[0].image, made[1].image)


def test_parts_of_a_dynamic_file_join_to_its_frames(full, dynamic):
    with open_source(dynamic) as source:
        parts = [
            upmri.Reconstruction(image=scan.kspace[:, 0], meta=scan.meta)
            for scan in (upmri.load(dynamic, "0:3"), upmri.load(dynamic, "3:8"))
        ]
        assert places(join_reconstructions(parts).meta, 8) == places(source.read(0).meta, 8)


def test_backward_lines_that_nothing_marks_are_a_warning(full, tmp_path):
    odd = torch.arange(48) % 2 == 1
    np.save(tmp_path / "epi.npy", torch.where(odd, full.kspace.flip(-2), full.kspace).numpy())
    with open_source(tmp_path / "epi.npy") as source:
        with pytest.warns(UserWarning, match="--navigators"):
            MappedSlices(source).read(0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            MappedSlices(source, navigators=upmri.load(tmp_path / "epi.npy")).read(0)
