"""Ghosts of echo-planar readouts, against the phase they were made with, and ramp samples against a dense DFT."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.physics import phantom
from upmri.physics.epi import GhostPhase, Ramp, alternates, correct_ghosts, ghost_phase, lines_alternate
from upmri.physics.fourier import fft1c, ifft1c, ifft2c


def train(rng, count=8, theta=(0.9, -0.4), drift=0.2, size=32):
    """Readouts without phase encoding, (readout, coil, sample), whose phase drifts; and their directions."""
    profile = rng(1, 3, size) * torch.hann_window(size, dtype=torch.float64)
    x = torch.arange(size) - size // 2
    number = torch.arange(count)[:, None, None]
    phase = drift * number + (number % 2) * (theta[0] + theta[1] * x)
    return fft1c(profile * torch.exp(1j * phase)), torch.arange(count) % 2 == 1


@pytest.mark.parametrize("theta", [(0.9, -0.4), (-2.9, 1.1), (3.0, 2.5), (0.0, 0.0)])
@pytest.mark.parametrize("count", [3, 8])
def test_the_phase_of_reference_readouts_is_found(rng, theta, count):
    found = ghost_phase(*train(rng, count, theta))
    assert (found.constant, found.slope) == pytest.approx(theta, abs=1e-6)


def test_two_readouts_are_enough_without_drift(rng):
    found = ghost_phase(*train(rng, 2, drift=0))
    assert (found.constant, found.slope) == pytest.approx((0.9, -0.4), abs=1e-6)


def test_noise_changes_little(rng):
    readouts, reverse = train(rng, 16)
    noisy = readouts + 0.05 * readouts.abs().mean() * rng(*readouts.shape)
    found = ghost_phase(noisy, reverse)
    assert (found.constant, found.slope) == pytest.approx((0.9, -0.4), abs=0.02)


def test_correction_is_unitary_and_divides_the_phase_between_both_directions(rng):
    readouts, reverse = train(rng, drift=0)
    fixed = GhostPhase(0.9, -0.4).correct(readouts.transpose(0, 1), reverse).transpose(0, 1)
    torch.testing.assert_close(fixed[0], fixed[1])
    torch.testing.assert_close(fixed.norm(), readouts.norm())
    x = torch.arange(32) - 16
    half = torch.exp(0.5j * (0.9 - 0.4 * x.double()))
    torch.testing.assert_close(ifft1c(fixed[0]), ifft1c(readouts[0]) * half)


def test_readouts_of_one_direction_are_refused(rng):
    with pytest.raises(InputError) as error:
        ghost_phase(train(rng)[0], torch.zeros(8, dtype=torch.bool))
    assert error.value.field == "navigators"


def echo_planar(theta=(0.5, 0.35), *, marked=False):
    """A phantom beside the centre, its ghosts, and reference readouts; backward lines run backwards unless marked."""
    image = torch.roll(phantom.image((48, 32)), 4, 0)
    image = image * (torch.arange(32) - 16).abs().lt(8)  # of half the field of view: ghosts lie beside it
    maps = (
        torch.polar(torch.ones(2, 48, 1), torch.tensor([0.0, 1.0])[:, None, None]) * torch.linspace(0.5, 1, 48)[:, None]
    )
    truth = (maps * image).to(torch.complex128)
    x = torch.arange(48) - 24
    wrong = torch.exp(1j * (theta[0] + theta[1] * x.double()))[:, None]
    odd = torch.arange(32) % 2 == 1

    def acquired(hybrid):
        lines = fft1c(torch.where(odd, hybrid * wrong, hybrid), -2)
        return lines if marked else torch.where(odd, lines.flip(-2), lines)

    scan, reference = (
        upmri.Scan(kspace=acquired(part)[None].to(torch.complex64), name=name)
        for name, part in (("epi", fft1c(truth)), ("none", truth.sum(-1, keepdim=True).expand_as(truth) / 32**0.5))
    )
    return scan, reference, truth


@pytest.mark.parametrize("marked", [False, True])
def test_ghosts_are_removed_with_a_scan_without_phase_encoding(marked):
    scan, reference, truth = echo_planar(marked=marked)
    fixed = correct_ghosts(scan, reference)
    outside = (truth.abs().sum((0, 1)) == 0)[None, None]
    before, after = (float((ifft2c(one.kspace[0]) * outside).norm() / truth.norm()) for one in (scan, fixed))
    assert before > 0.3
    assert after < 1e-4
    found = ifft2c(fixed.kspace[0]).abs().numpy()
    assert np.allclose(found, truth.abs().numpy(), atol=1e-4 * truth.abs().max().item())
    assert fixed.meta["echo-planar"] == "ghosts corrected with 32 reference readouts of none"


def test_a_slice_without_samples_stays_0():
    scan, reference, _ = echo_planar()
    kspace = torch.cat([0 * scan.kspace, scan.kspace])
    fixed = correct_ghosts(kspace, reference)
    assert not fixed.kspace[0].any()
    assert torch.equal(fixed.kspace[1:], correct_ghosts(scan, reference).kspace)
    with pytest.raises(InputError) as error:
        correct_ghosts(kspace, torch.cat([reference.kspace, 0 * reference.kspace]))
    assert error.value.field == "navigators"


def test_arrays_are_scans_too():
    scan, reference, _ = echo_planar()
    fixed = correct_ghosts(scan.kspace.numpy(), reference.kspace)
    assert torch.equal(fixed.kspace, correct_ghosts(scan, reference).kspace)
    with pytest.raises(InputError, match="got str; upmri.load reads a file"):
        correct_ghosts(scan, "epi_nophase.dat")


def test_lines_that_run_backwards_unmarked_are_recognised():
    scan, reference, _ = echo_planar()
    assert lines_alternate(scan)
    assert "not marked" in upmri.info(scan)["recognised"][2]
    assert not lines_alternate(echo_planar(marked=True)[0])
    whole = upmri.simulate(upmri.demo.brain()[:1], coils=4, acceleration=2)
    assert not lines_alternate(whole)
    assert not alternates(torch.zeros(2, 1, 8, dtype=torch.complex64))


def test_reference_readouts_that_do_not_fit_are_refused():
    scan, reference, _ = echo_planar()
    twice = replace(reference, **{name: torch.cat(2 * [getattr(reference, name)]) for name in ("kspace", "mask")})
    other = upmri.Scan(kspace=reference.kspace[:, :1])
    for wrong in (twice, other):
        with pytest.raises(InputError) as error:
            correct_ghosts(scan, wrong)
        assert error.value.field == "navigators"


@pytest.mark.parametrize("shape", ["trapezoid", "sine"])
def test_places_of_samples_are_the_area_of_the_gradient(shape):
    ramp = Ramp(120, 200, 80, 15, 2.5, 150, shape)
    times = np.linspace(0, 400, 400001)
    rise, fall = times / 120, (400 - times) / 80
    gradient = np.minimum(1, np.minimum(rise, fall))
    if shape == "sine":
        gradient = np.sin(np.pi / 2 * np.clip(gradient, 0, 1))
    area = np.concatenate([[0], np.cumsum((gradient[1:] + gradient[:-1]) / 2 * np.diff(times))])

    def at(t):
        return np.interp(t, times, area)

    centres = 15 + 2.5 * (np.arange(150) + 0.5)
    expected = (at(centres) - at(15 + 2.5 * 75)) / (at(15 + 375) - at(15))
    assert np.allclose(ramp.positions, expected, atol=1e-6)


def test_regridding_is_exact_for_an_object_in_the_field_of_view(rng):
    ramp, length, field = Ramp(100, 200, 100, 0, 400 / 64, 64), 64, 32
    image = torch.zeros(length, dtype=torch.complex128)
    image[16:48] = rng(field)
    x = torch.arange(length) - length // 2
    samples = torch.exp(-2j * torch.pi * ramp.positions[:, None] * x) @ image / length**0.5
    found = ramp.regridding(length, field).to(torch.complex128) @ samples
    torch.testing.assert_close(found, fft1c(image), rtol=1e-4, atol=1e-4)
    plain = (samples - fft1c(image)).norm() / image.norm()
    assert plain > 0.3  # without it


def test_impossible_gradients_are_refused():
    for values in ((-1, 200, 100, 0, 4, 64), (100, 200, 100, 0, 0, 64), (100, 200, 100, 0, 40, 64)):
        with pytest.raises(InputError) as error:
            Ramp(*values)
        assert error.value.field == "ramp"
    assert Ramp(100, 300, 100, 100, 3, 100).regular
    assert not Ramp(100, 300, 100, 90, 3, 100).regular


def test_the_phantom_of_a_scanner(data):
    scan, reference = (upmri.load(data / "scans" / f"phantom_4ch_{name}.dat") for name in ("epi", "epi_nophase"))
    fixed = correct_ghosts(scan, reference)
    before, after = (ifft2c(one.kspace[0]).abs().square().sum(0) for one in (scan, fixed))
    # The object fills the middle half of the field of view along phase; its ghost is above and below.
    assert after[40:110, :30].sum() < 0.02 * before[40:110, :30].sum()
