"""Bad data are found; good data, real and simulated, are left alone."""

import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.physics.coils import compress
from upmri.physics.masks import equispaced, poisson_disc, random_lines
from upmri.physics.quality import bad_coils, check_maps, leave_out_coils

REAL = (
    "brain_16ch_64_kspace.npy",
    "brain_8ch_poisson_kspace.npy",
    "invivo_brain_16ch_kspace.npy",
    "invivo_brain_7ch_kspace.npy",
    "phantom_16ch_r2_kspace.npy",
    "phantom_16ch_r2_reference.npy",
)


def brain(coils=8, acceleration=4, noise=0.005, seed=0):
    return upmri.simulate(upmri.demo.brain()[:1], coils=coils, acceleration=acceleration, noise=noise, seed=seed)


@pytest.fixture(scope="module")
def scan():
    return brain()


# Coils.


def dead(kspace, unit):
    kspace[:] = 0


def weak(kspace, unit):
    kspace *= 1e-4


def without_signal(kspace, unit):
    kspace[:] = 0.005 * unit * (kspace != 0)


def noisy(kspace, unit):
    kspace += 0.05 * unit * (kspace != 0)


def very_noisy(kspace, unit):
    kspace += 10 * unit * (kspace != 0)


def spiking(kspace, unit):
    at = int((kspace[12] != 0).nonzero()[1])
    kspace[12, at] = kspace.abs().max().item()


def burst(kspace, unit):
    at = int((kspace[12] != 0).nonzero()[1])
    kspace[12:15, at] = 1000 * kspace.abs().max().item()


FAULTS = {dead: "dead", weak: "dead", without_signal: "dead", noisy: "noisy", very_noisy: "noisy", spiking: "spiking"}
FAULTS |= {burst: "spiking"}


@pytest.mark.parametrize("coils", [4, 16, 32])
@pytest.mark.parametrize("acceleration", [1, 4, 8])
@pytest.mark.parametrize("spoil", FAULTS)
def test_a_bad_coil_is_found(rng, coils, acceleration, spoil):
    kspace = brain(coils, acceleration).kspace[0]
    spoil(kspace[2], rng(96, 96, dtype=torch.complex64))
    assert bad_coils(kspace) == {2: FAULTS[spoil]}


@pytest.mark.parametrize("spoil", [dead, very_noisy, spiking])
def test_a_bad_coil_is_found_in_a_real_scan(data, rng, spoil):
    kspace = upmri.load(data / "scans" / "invivo_brain_16ch_kspace.npy").kspace[0]
    spoil(kspace[5], rng(128, 128, dtype=torch.complex64) * kspace.abs().max())
    assert bad_coils(kspace) == {5: FAULTS[spoil]}


def test_several_bad_coils_are_found(rng):
    kspace = brain(16).kspace[0]
    for coil, spoil in enumerate([dead, noisy, spiking, burst]):
        spoil(kspace[3 * coil], rng(96, 96, dtype=torch.complex64))
    assert bad_coils(kspace) == {0: "dead", 3: "noisy", 6: "spiking", 9: "spiking"}


def test_most_of_the_coils_cannot_be_bad(rng):
    """What is usual is not known then; except where there is nothing but zeros."""
    kspace = brain(8).kspace[0]
    for coil in range(5):
        spiking(kspace[coil], None)
    assert bad_coils(kspace) == {}
    kspace[:6] = 0
    assert bad_coils(kspace) == dict.fromkeys(range(6), "dead")


@pytest.mark.parametrize("noise", [0, 0.001, 0.02, 0.05])
@pytest.mark.parametrize("coils", [1, 2, 4, 16, 32])
def test_good_coils_of_simulated_scans_stay(coils, noise):
    for acceleration in (1, 2, 4, 8):
        for seed in range(2):
            scan = brain(coils, acceleration, noise, seed)
            assert bad_coils(scan.kspace[0]) == {}
            assert leave_out_coils(scan) == (scan, {})


@pytest.mark.parametrize("name", REAL)
def test_good_coils_of_real_scans_stay(data, name):
    scan = upmri.load(data / "scans" / name)
    assert bad_coils(scan.kspace[0]) == {}


@pytest.mark.parametrize("acceleration", [2, 4, 8])
def test_good_coils_of_undersampled_real_scans_stay(data, acceleration):
    for name in REAL[2:4]:
        kspace = upmri.load(data / "scans" / name).kspace[0]
        _, height, width = kspace.shape
        masks = [random_lines(width, acceleration, seed=seed) for seed in range(3)]
        masks += [equispaced(width, acceleration), poisson_disc((height, width), acceleration, (12, 12))]
        assert [bad_coils(kspace * mask) for mask in masks] == [{}] * 5


@pytest.mark.parametrize("noise", [0, 0.005, 0.05])
def test_virtual_coils_stay(noise):
    """Their signal fades from one to the next, and the centre of k-space is mostly in the first."""
    for image in (upmri.demo.brain()[:1], upmri.demo.brain()[:1, ::3, ::3]):
        for acceleration in (1, 8):
            scan = upmri.simulate(image, coils=16, acceleration=acceleration, noise=noise)
            assert [bad_coils(compress(scan, count).kspace[0]) for count in (16, 8)] == [{}, {}]


def test_coils_of_different_gain_stay(scan):
    gain = torch.tensor([1, 1, 1, 1, 1, 1, 20, 0.05])
    assert bad_coils(scan.kspace[0] * gain[:, None, None]) == {}


def test_bad_coils_are_left_out_with_their_maps_and_stray_samples(scan):
    kspace = scan.kspace.clone()
    gap = int((~scan.mask[0, 0]).nonzero()[0])
    kspace[0, 3, 12, gap] = 1000  # in a line that was not sampled
    spoiled = upmri.Scan(kspace=kspace, maps=scan.maps, noise=scan.noise)
    kept, faults = leave_out_coils(spoiled)
    assert faults == {3: "spiking"}
    others = [0, 1, 2, 4, 5, 6, 7]
    assert torch.equal(kept.kspace, scan.kspace[:, others])
    assert torch.equal(kept.maps, scan.maps[:, others])
    assert torch.equal(kept.mask.expand(1, 96, 96), scan.mask.expand(1, 96, 96))
    assert kept.noise == scan.noise


# Maps.


def test_right_maps_stay(scan):
    assert check_maps(scan) == (scan, None)
    estimated = upmri.estimate_maps(upmri.Scan(kspace=scan.kspace))
    assert check_maps(estimated) == (estimated, None)
    bare = upmri.Scan(kspace=scan.kspace)
    assert check_maps(bare) == (bare, None)


@pytest.mark.parametrize("factor", [1e-20, 0.5, 3, 1e30])
def test_maps_of_any_length_are_normalised(scan, factor):
    shading = torch.linspace(1, 2, 96)
    wrong = upmri.Scan(kspace=scan.kspace, mask=scan.mask, maps=scan.maps * factor * shading)
    found, message = check_maps(wrong)
    assert torch.allclose(found.maps, scan.maps, atol=1e-6)
    assert "in the object, found" in message


def test_maps_of_0_are_refused(scan):
    with pytest.raises(InputError) as error:
        check_maps(upmri.Scan(kspace=scan.kspace, maps=0 * scan.maps))
    assert error.value.field == "maps"
    with pytest.raises(InputError) as error:
        upmri.Scan(kspace=scan.kspace, maps=scan.maps * torch.nan)
    assert error.value.field == "maps"
