"""Faulty coils are found; good coils of real scans and of simulated ones of many kinds are left alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf

import upmri
from upmri.physics.coils import compress, estimate_noise, whiten
from upmri.physics.faulty_coils import faulty_coils
from upmri.physics.masks import equispaced, poisson_disc, random_lines

REAL = (
    "brain_16ch_64_kspace.npy",
    "brain_8ch_poisson_kspace.npy",
    "invivo_brain_16ch_kspace.npy",
    "invivo_brain_16ch_siemens.dat",
    "invivo_brain_7ch_kspace.npy",
    "phantom_16ch_r2_kspace.npy",
    "phantom_16ch_r2_reference.npy",
    "phantom_4ch_epi.dat",
    "phantom_4ch_epi_nophase.dat",
)
FULL = ("brain_16ch_64_kspace.npy", "invivo_brain_16ch_kspace.npy", "invivo_brain_7ch_kspace.npy")


def brain(coils=8, acceleration=4, noise=0.005, seed=0):
    return upmri.simulate(upmri.demo.brain()[:1], coils=coils, acceleration=acceleration, noise=noise, seed=seed)


# Faults of one coil (readout, phase); `unit` is noise of variance 1 at its samples, `energy` that of all coils.


def dead(kspace, unit, energy):
    kspace[:] = 0


def weak(kspace, unit, energy):
    kspace *= 1e-5


def noisy(kspace, unit, energy):
    kspace += 0.3 * (kspace.abs().square().mean()).sqrt() * unit + 0.1 * unit


def only_noise(kspace, unit, energy):
    kspace[:] = 1000 * unit


def spiking(kspace, unit, energy):
    kspace[12, _line(kspace)] = (0.02 * energy) ** 0.5


def burst(kspace, unit, energy):
    kspace[12:15, _line(kspace)] = (100 * energy) ** 0.5


def _line(kspace):
    return int((kspace[12] != 0).nonzero()[1])


FAULTS = {dead: "dead", weak: "dead", noisy: "noisy", only_noise: "noisy", spiking: "spiking", burst: "spiking"}


def spoilt(kspace, coil, spoil, rng):
    """A copy of (coil, readout, phase) with the fault in one coil."""
    kspace = kspace.clone()
    unit = rng(*kspace.shape[1:], dtype=torch.complex64) * (kspace[coil] != 0)
    spoil(kspace[coil], unit, kspace.abs().square().sum().item())
    return kspace


@pytest.mark.parametrize("coils", [4, 16, 32])
@pytest.mark.parametrize("acceleration", [1, 4, 8])
@pytest.mark.parametrize("spoil", FAULTS)
def test_a_faulty_coil_is_found(rng, coils, acceleration, spoil):
    scan = brain(coils, acceleration)
    kspace = spoilt(scan.kspace[0], 2, spoil, rng)
    for scale in (1, 1e-25, 1e25):
        assert faulty_coils(scale * kspace) == {2: FAULTS[spoil]}
    assert faulty_coils(kspace, mask=scan.mask[0]) == {2: FAULTS[spoil]}


@pytest.mark.parametrize("spoil", FAULTS)
def test_a_faulty_coil_is_found_without_noise(rng, spoil):
    kspace = spoilt(brain(8, 4, noise=0).kspace[0], 2, spoil, rng)
    assert faulty_coils(kspace) == {2: FAULTS[spoil]}


@pytest.mark.parametrize("factor", [32, 1000])
@pytest.mark.parametrize("name", FULL)
def test_every_noisy_coil_of_a_real_scan_is_found(data, rng, name, factor):
    kspace = upmri.load(data / "scans" / name).kspace[0]
    mask = random_lines(kspace.shape[2], 4)
    kspace = kspace * mask
    added = factor * estimate_noise(upmri.Scan(kspace=kspace)).item() * rng(*kspace.shape[1:]).to(kspace) * mask
    for coil in range(len(kspace)):
        with_noise = kspace.clone()
        with_noise[coil] += added
        assert faulty_coils(with_noise) == {coil: "noisy"}


@pytest.mark.parametrize("spoil", [dead, weak, spiking, burst])
@pytest.mark.parametrize("name", FULL)
def test_every_dead_or_spiking_coil_of_a_real_scan_is_found(data, rng, name, spoil):
    kspace = upmri.load(data / "scans" / name).kspace[0]
    kspace = kspace * random_lines(kspace.shape[2], 4)
    for coil in range(len(kspace)):
        assert faulty_coils(spoilt(kspace, coil, spoil, rng)) == {coil: FAULTS[spoil]}


def test_several_faulty_coils_are_found(rng):
    kspace = brain(16).kspace[0]
    for coil, spoil in enumerate([dead, noisy, spiking, only_noise, weak]):
        kspace = spoilt(kspace, 3 * coil, spoil, rng)
    assert faulty_coils(kspace) == {0: "dead", 3: "noisy", 6: "spiking", 9: "noisy", 12: "dead"}


def test_most_of_the_coils_cannot_be_faulty(rng):
    """What is usual is not known then; except where there is nothing but zeros."""
    kspace = brain(8).kspace[0]
    for coil in range(5):
        kspace = spoilt(kspace, coil, spiking, rng)
    assert faulty_coils(kspace) == {}
    kspace[:6] = 0
    assert faulty_coils(kspace) == dict.fromkeys(range(6), "dead")


def test_a_coil_without_the_signal_that_its_map_promises(rng):
    """Without maps it does no harm: its estimated map is 0, too."""
    scan = brain()
    kspace = scan.kspace[0].clone()
    kspace[3] = 0.005 * rng(96, 96).to(kspace) * scan.mask[0]
    assert faulty_coils(kspace, scan.maps[0]) == {3: "dead"}
    assert faulty_coils(kspace) == {}
    assert faulty_coils(scan.kspace[0], scan.maps[0]) == {}


@pytest.mark.parametrize("spoil", FAULTS)
def test_a_faulty_coil_is_found_with_maps(rng, spoil):
    scan = brain()
    assert faulty_coils(spoilt(scan.kspace[0], 2, spoil, rng), scan.maps[0]) == {2: FAULTS[spoil]}


def test_a_high_gain_is_no_fault():
    """It amplifies signal and noise alike."""
    scan = brain(24, 4, noise=0.03)
    for coil in range(24):
        gain = torch.ones(24)
        gain[coil] = 100
        assert faulty_coils(scan.kspace[0] * gain[:, None, None]) == {}


@pytest.mark.parametrize("name", REAL)
def test_good_coils_of_real_scans_stay(data, name):
    scan = upmri.load(data / "scans" / name)
    assert [faulty_coils(kspace) for kspace in scan.kspace] == [{}] * len(scan)


@pytest.mark.parametrize("acceleration", [2, 4, 8])
@pytest.mark.parametrize("name", FULL)
def test_good_coils_of_undersampled_and_compressed_real_scans_stay(data, name, acceleration):
    kspace = upmri.load(data / "scans" / name).kspace[0]
    coils, height, width = kspace.shape
    masks = [random_lines(width, acceleration, seed=seed) for seed in range(3)]
    masks += [equispaced(width, acceleration), poisson_disc((height, width), acceleration, (12, 12))]
    for mask in masks:
        scan = upmri.Scan(kspace=kspace * mask)
        assert faulty_coils(scan.kspace[0]) == {}
        assert [faulty_coils(compress(scan, count).kspace[0]) for count in (coils, coils // 2)] == [{}, {}]


# Good scans of many kinds.


KINDS = ("brain", "heart", "constant", "box", "points", "grating", "spots", "texture", "half")
MADE = ("plain", "gains", "one gain", "compressed", "compressed", "whitened", "partial echo")


def image(kind, rng, slices):
    """Images of an object, (slice, H, W); they are small, so that many are tried."""
    h, w = rng.choice([32, 40, 48, 64, 80], 2).tolist()
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    disc = ((y - h / 2) / h) ** 2 + ((x - w / 2) / w) ** 2 < 0.16
    values = torch.from_numpy(rng.random((slices, h, w), np.float32))
    blank = torch.zeros(slices, h, w)
    if kind == "brain":
        brains = torch.as_tensor(upmri.demo.brain()).abs().float()
        return nnf.interpolate(brains[rng.integers(len(brains), size=slices), None], (h, w), mode="bilinear")[:, 0]
    if kind == "heart":  # bright, between dark lungs
        ring = (((y - h / 2) / h) ** 2 + ((x - w / 2) / w) ** 2 < 0.02).float()
        return disc * (0.2 + 0.1 * values + ring)
    if kind == "constant":
        return blank + 1
    if kind == "box":
        blank[:, h // 4 : -h // 4, w // 4 : -w // 4] = 1
        return blank
    if kind == "points":
        for one in blank:
            one.view(-1)[rng.choice(h * w, h * w // 900 + rng.integers(2, 10), replace=False)] = 1
        return blank
    if kind == "grating":
        pattern = ((y // rng.integers(2, 5) + x // rng.integers(2, 5)) % 2).float() + 0.1
        return (pattern * disc if rng.random() < 0.5 else pattern).repeat(slices, 1, 1)
    if kind == "spots":
        return nnf.avg_pool2d(values[:, None] ** 6, 5, 1, 2)[:, 0]
    return values if kind == "texture" else values * ((x > w / 8) & (x < w / 3))


def good_scan(seed):
    """A scan of any kind of object, array, noise, mask and preparation, and its description."""
    rng = np.random.default_rng(seed)
    kind, made = KINDS[seed % len(KINDS)], rng.choice(MADE)
    coils = int(rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32, 48, 64]))
    noise = float(rng.choice([0, 0, 1e-4, 0.001, 0.003, 0.01, 0.03, 0.1]))
    factor, pattern = float(rng.choice([1, 1.5, 2, 3, 4, 6, 8, 12])), rng.choice(["random", "regular", "points"])
    picture, anatomy = image(kind, rng, int(rng.choice([1, 1, 1, 3]))), rng.choice(["head", "torso"])
    full = upmri.simulate(picture, coils=coils, acceleration=1, noise=noise, seed=seed, anatomy=str(anatomy))
    (h, w), kspace = full.matrix, full.kspace
    acs, block = max(4, round(0.32 * w / factor)), min(12, h // 4, w // 4)
    if pattern == "random":
        mask = random_lines(w, min(factor, w / (acs + 3)), acs, seed=seed)
    elif pattern == "regular":
        mask = equispaced(w, int(factor), acs)
    else:
        mask = poisson_disc((h, w), min(factor, h * w / (block**2 + 20)), (block, block), seed=seed)
    gains = torch.ones(coils)
    if made == "gains":
        gains = torch.from_numpy(10 ** rng.uniform(-1, 1, coils)).float()
    elif made == "one gain":
        gains[rng.integers(coils)] = float(rng.choice([100, 0.01]))
    elif made == "whitened":
        mixing = torch.from_numpy(rng.normal(size=(coils, coils)) + 1j * rng.normal(size=(coils, coils)))
        mixing = mixing + 3 * torch.eye(coils)
        kspace = whiten(kspace, mixing @ mixing.mH)
    kspace = kspace * gains[:, None, None] * mask
    if made == "partial echo":
        kspace[:, :, : int(rng.uniform(0.1, 0.3) * h)] = 0
    scan = upmri.Scan(kspace=kspace, maps=full.maps if made in ("plain", "compressed", "partial echo") else None)
    scan = compress(scan, int(rng.integers(1, coils + 1))) if made == "compressed" else scan
    return scan, f"{seed}: {kind}, {coils} coils, {scan.coils} kept, noise {noise}, {factor}×, {pattern}, {made}"


@pytest.mark.parametrize("seeds", [range(72), pytest.param(range(100, 2600), marks=pytest.mark.soak)], ids=len)
def test_good_coils_of_scans_of_many_kinds_stay(seeds):
    wrong = {}
    for seed in seeds:
        scan, what = good_scan(seed)
        for i, kspace in enumerate(scan.kspace):
            energy = kspace.abs().square().sum((1, 2))
            # Compression of an exact low rank leaves coils of rounding errors alone: these are dead.
            blank = energy < 1e-10 * energy.max()
            faults = faulty_coils(kspace, None if scan.maps is None else scan.maps[i], scan.mask[i])
            if any(fault != "dead" or not blank[coil] for coil, fault in faults.items()):
                wrong[what] = faults
    assert wrong == {}
