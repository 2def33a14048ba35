"""Siemens' protocol: sizes, fields of view, and what cannot be read."""

from __future__ import annotations

import pytest

from upmri.formats.siemens_protocol import SiemensProtocol

SETTINGS = {
    "sKSpace.lBaseResolution": "128",
    "sKSpace.lPhaseEncodingLines": "96",
    "sKSpace.lPartitions": "1",
    "sSliceArray.asSlice[0].dReadoutFOV": "256.0",
    "sSliceArray.asSlice[0].dPhaseFOV": "192",
    "sSliceArray.asSlice[0].dThickness": "5",
}


def protocol(oversampling: str = "2.0", **changes: str) -> SiemensProtocol:
    settings = SETTINGS | {name.replace("__", "."): value for name, value in changes.items()}
    text = f'<ParamDouble."flReadoutOSFactor"> {{ <Precision> 6 {oversampling} }}\n'
    return SiemensProtocol((text + "".join(f"{name}\t=\t{value}\n" for name, value in settings.items())).encode())


def test_sizes_are_read():
    found = protocol()
    assert (found.oversampling, found.base, found.lines, found.partitions) == (2.0, 128, 96, 1)
    assert found.spacing(256, 96, 1) == (2.0, 2.0, 5.0)
    assert not found.siemens_sequence
    found.check()


def test_oversampled_lines_cover_more():
    found = protocol(sKSpace__dPhaseOversamplingForDialog="0.5")
    assert found.spacing(256, 144, 1) == (2.0, 2.0, 5.0)


@pytest.mark.parametrize(("mode", "separate"), [("0x2", False), ("0x4", True), ("8", True), ("x", False)])
def test_separate_calibration_is_a_mode(mode, separate):
    assert protocol(sPat__ucRefScanMode=mode).separate_calibration == separate


@pytest.mark.parametrize("text", ["0", "99", "nan", "1e999", "wide"])
def test_an_impossible_oversampling_is_none(text):
    assert protocol(text).oversampling == 1.0


def test_an_empty_protocol_is_all_zeros():
    found = SiemensProtocol(b"")
    assert (found.base, found.lines, found.partitions, found.spacing(1, 1, 1)) == (0, 0, 0, None)
    assert SiemensProtocol(b'tSequenceFileName = "%SiemensSeq%\\gre"').siemens_sequence


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"sKSpace__ucTrajectory": "0x2"}, "radial"),
        ({"sKSpace__ucTrajectory": "4"}, "spiral"),
        ({"sKSpace__ucTrajectory": "8"}, "PROPELLER"),
        ({"sKSpace__ucTrajectory": "16"}, "another"),
    ],
)
def test_only_cartesian_protocols_pass(change, kind, refused):
    with refused(kind, field="trajectory"):
        protocol(**change).check()


REGRID = b"""<ParamLong."alRegridMode">
{ 2 2 }
<ParamLong."alRegridRampupTime"> { 100 100 }
<ParamLong."alRegridFlattopTime"> { 300 300 }
<ParamLong."alRegridRampdownTime"> { 100 100 }
<ParamLong."alRegridDelaySamplesTime"> { 50 50 }
<ParamDouble."aflRegridADCDuration">
{ <Precision> 16 400.0 400.0 }
"""


def test_the_readout_gradient_of_an_echo_planar_protocol():
    ramp = SiemensProtocol(REGRID).ramp(100)
    assert (ramp.rise, ramp.flat, ramp.fall, ramp.delay, ramp.dwell, ramp.shape) == (100, 300, 100, 50, 4, "trapezoid")
    assert SiemensProtocol(REGRID.replace(b"2 2", b"4 4")).ramp(100).shape == "sine"
    assert SiemensProtocol(REGRID.replace(b"2 2", b"1 1")).ramp(100) is None
    assert SiemensProtocol(b"").ramp(100) is None


def test_scanner_and_times():
    text = b"""<ParamString."tPatientName">  { "Miller"  }
<ParamString."ManufacturersModelName">  { "Prisma_fit"  }
sProtConsistencyInfo.flNominalB0\t=\t2.89362001419
lContrasts\t=\t2
alTR[0]\t=\t2300000
alTE[0]\t=\t2980
alTE[1]\t=\t5440
alTE[2]\t=\t9999
"""
    assert SiemensProtocol(text).scanner == {
        "vendor": "SIEMENS", "model": "Prisma_fit", "field_strength": 2.89362, "echo_time": [2.98, 5.44],
        "repetition_time": 2300.0,
    }  # fmt: skip
    assert SiemensProtocol(b"").scanner == {}
