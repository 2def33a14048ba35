"""Cine series as OCMR stores them: ISMRMRD with the conventions that its own readers (MRIOSU/OCMR) follow.

Frames are cardiac phases, slices and averages have counters of their own, the readout is oversampled and its echo may
be asymmetric, undersampled series have no calibration lines, and with a pilot tone four samples of each readout are
spoilt.
"""

from __future__ import annotations

from pathlib import Path

import ismrmrd
import numpy as np
import pytest
import torch

import upmri
from upmri import load
from upmri.physics.fourier import fft2c, ifft2c

SAMPLES, LINES, COILS, PHASES, SLICES = 48, 16, 3, 3, 2
READOUT = SAMPLES // 2


def header(pilot_tone: int = 0, samples: int = SAMPLES) -> str:
    limits = "".join(
        f"<{name}><minimum>0</minimum><maximum>{count - 1}</maximum><center>{centre}</center></{name}>"
        for name, count, centre in (
            ("kspace_encoding_step_1", LINES, LINES // 2),
            ("slice", SLICES, 0),
            ("phase", PHASES, 0),
            ("average", 2, 0),
        )
    )
    return f"""<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
    <acquisitionSystemInformation><systemVendor>SIEMENS</systemVendor><receiverChannels>{COILS}</receiverChannels>
    </acquisitionSystemInformation>
    <encoding><encodedSpace><matrixSize><x>{samples}</x><y>{LINES}</y><z>1</z></matrixSize>
      <fieldOfView_mm><x>600</x><y>250</y><z>8</z></fieldOfView_mm></encodedSpace>
    <reconSpace><matrixSize><x>{samples // 2}</x><y>{LINES}</y><z>1</z></matrixSize>
      <fieldOfView_mm><x>300</x><y>250</y><z>8</z></fieldOfView_mm></reconSpace>
    <encodingLimits>{limits}</encodingLimits><trajectory>cartesian</trajectory></encoding>
    <sequenceParameters><TR>38.4</TR></sequenceParameters>
    <userParameters><userParameterLong><name>x</name><value>1</value></userParameterLong>
      <userParameterLong><name>PilotTone</name><value>{pilot_tone}</value></userParameterLong></userParameters>
    </ismrmrdHeader>"""


def objects() -> torch.Tensor:
    """Coil images (slice, phase, coil, readout, line) of an object whose size changes over the heart beat."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, READOUT), torch.linspace(-1, 1, LINES), indexing="ij")
    sensitivity = torch.stack([torch.exp(-((y - a) ** 2 + (x - b) ** 2)) for a, b in ((-1, 0), (1, 1), (1, -1))])
    images = [
        [
            torch.exp(-(((y / (0.25 + 0.02 * phase)) ** 2 + (x / 0.4) ** 2) ** 2)) * (1 + number)
            for phase in range(PHASES)
        ]
        for number in range(SLICES)
    ]
    return torch.stack([torch.stack(one) for one in images])[:, :, None] * sensitivity.to(torch.complex64)


def measured() -> np.ndarray:
    """Oversampled k-space, (slice, phase, coil, sample, line)."""
    wide = torch.zeros(SLICES, PHASES, COILS, SAMPLES, LINES, dtype=torch.complex64)
    wide[..., SAMPLES // 4 : SAMPLES // 4 + READOUT, :] = objects()
    return fft2c(wide).numpy()


def write(path: Path, lines, cut: int = 0, average: int = 0, pilot_tone: int = 0) -> Path:
    """Write the lines ``lines(phase)`` of every phase and slice, without the first ``cut`` samples of each."""
    kspace = measured()
    with ismrmrd.Dataset(str(path), "dataset", mode="a") as file:
        file.write_xml_header(header(pilot_tone))
        for number in range(SLICES):
            for phase in range(PHASES):
                for line in lines(phase):
                    data = np.ascontiguousarray(kspace[number, phase, :, cut:, line])
                    if pilot_tone:
                        data[:, [0, 1, 2, -1]] += 1e3
                    one = ismrmrd.Acquisition.from_array(data)
                    one.center_sample = SAMPLES // 2 - cut
                    one.position[2] = 8.0 * number
                    one.idx.kspace_encode_step_1, one.idx.phase, one.idx.slice = line, phase, number
                    one.idx.average = average
                    file.append_acquisition(one)
    return path


def interleaved(phase: int) -> range:
    return range(phase % 2, LINES, 2)


def test_a_complete_series_comes_back_phase_by_phase(tmp_path):
    scan = load(write(tmp_path / "fs_0001_1_5T.h5", lambda _: range(LINES)))
    assert scan.meta["axes"] == {"phase": PHASES, "slice": SLICES}
    expected = objects().transpose(0, 1).flatten(0, 1)  # slices fastest
    assert (ifft2c(scan.kspace) - expected).norm() < 1e-5 * expected.norm()
    assert scan.acceleration == 1


def test_an_undersampled_series_has_masks_of_its_own_and_maps_of_its_average(tmp_path):
    path = write(tmp_path / "us_0001_1_5T.h5", interleaved)
    scan = load(path)
    for number, mask in enumerate(scan.mask):
        assert mask[0].nonzero().flatten().tolist() == list(interleaved(number // SLICES))
    assert upmri.info(path)["format"] == "ISMRMRD"
    rec = upmri.reconstruct(scan, "sense", damping=1e-4)
    assert rec.settings["maps_from"] == "average over time"
    full = objects().transpose(0, 1).flatten(0, 1).abs().square().sum(1).sqrt()
    assert (rec.image.abs() - full).norm() < 0.2 * full.norm()


def test_an_asymmetric_echo_leaves_the_first_samples_unsampled(tmp_path):
    scan = load(write(tmp_path / "x.h5", lambda _: range(LINES), cut=12))
    whole = load(write(tmp_path / "y.h5", lambda _: range(LINES)))
    assert scan.matrix == (READOUT, LINES)
    assert scan.meta["partial echo"] == pytest.approx(0.75)
    assert not scan.kspace[:, :, :6].any()
    far = slice(10, None)  # samples away from where the echo begins
    assert (scan.kspace - whole.kspace)[:, :, far].norm() < 0.05 * whole.kspace[:, :, far].norm()


def test_averages_are_averaged(tmp_path):
    path = write(tmp_path / "x.h5", lambda _: range(LINES))
    write(path, lambda _: range(LINES), average=1)
    scan = load(path)
    assert (scan.meta["averages"], len(scan)) == (2, PHASES * SLICES)


def test_samples_that_a_pilot_tone_spoils_are_left_out(tmp_path):
    spoilt = load(write(tmp_path / "x.h5", lambda _: range(LINES), pilot_tone=1))
    whole = load(write(tmp_path / "y.h5", lambda _: range(LINES)))
    assert spoilt.meta["pilot tone"] == "samples left out of each readout: first 3, last 1"
    assert "pilot tone" not in whole.meta
    assert (spoilt.kspace - whole.kspace).norm() < 0.01 * whole.kspace.norm()


def test_a_readout_of_other_coils_is_refused(tmp_path, refuse):
    path = write(tmp_path / "x.h5", interleaved)
    with ismrmrd.Dataset(str(path), "dataset", mode="a") as file:
        one = ismrmrd.Acquisition.from_array(np.ones((COILS + 1, SAMPLES), np.complex64))
        file.append_acquisition(one)
    refuse(path, "same coils", field="data")
