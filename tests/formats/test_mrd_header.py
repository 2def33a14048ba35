"""The XML header of ISMRMRD."""

from __future__ import annotations

import ismrmrd.xsd
import pytest

from upmri import InputError
from upmri.formats.mrd_header import MrdHeader

SPACE = """<matrixSize><x>{x}</x><y>6</y><z>{z}</z></matrixSize>
    <fieldOfView_mm><x>{fov}</x><y>120</y><z>5</z></fieldOfView_mm>"""


def xml(encoding: str = "", head: str = "", trajectory: str = "cartesian", z: int = 1) -> str:
    return f"""<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">{head}
        <encoding><encodedSpace>{SPACE.format(x=16, z=z, fov=200)}</encodedSpace>
        <reconSpace>{SPACE.format(x=8, z=z, fov=100)}</reconSpace>
        <encodingLimits><kspace_encoding_step_1><minimum>1</minimum><maximum>4</maximum><center>3</center>
        </kspace_encoding_step_1></encodingLimits><trajectory>{trajectory}</trajectory>{encoding}</encoding>
        </ismrmrdHeader>"""


def only(text: str):
    return MrdHeader(text, "xml").encoding(0)


def test_sizes_are_those_that_ismrmrd_reads():
    text = xml().replace("<encoding>", "<experimentalConditions><H1resonanceFrequency_Hz>1</H1resonanceFrequency_Hz>"
                         "</experimentalConditions><encoding>", 1)  # fmt: skip
    theirs, ours = ismrmrd.xsd.CreateFromDocument(text).encoding[0], only(text)
    for name in ("encodedSpace", "reconSpace"):
        space = getattr(theirs, name)
        assert ours.matrix(name) == (space.matrixSize.x, space.matrixSize.y, space.matrixSize.z)
        fov = space.fieldOfView_mm
        assert ours.field_of_view(name) == (fov.x, fov.y, fov.z)
    limit = theirs.encodingLimits.kspace_encoding_step_1
    assert ours.centre(1) == limit.center
    assert ours.length("kspace_encoding_step_1", 9) == limit.maximum - limit.minimum + 1


def test_the_grid_is_without_oversampling_and_with_voxels():
    grid = only(xml()).grid(volume=False)
    assert (grid.samples, grid.readout, grid.lines, grid.partitions) == (16, 8, 6, 1)
    assert grid.spacing == (12.5, 20.0, 5.0)
    assert only(xml(z=4)).grid(volume=True).partitions == 4
    assert (only(xml(z=4)).volume, only(xml()).volume) == (True, False)


def test_what_is_not_there_has_a_default():
    encoding = only(xml())
    assert (encoding.centre(2), encoding.length("average", 7), encoding.number("nothing")) == (None, 7, None)
    assert (encoding.text("nothing"), encoding.separate_calibration) == ("", False)
    header = MrdHeader(xml(), "xml")
    assert (header.siemens, header.noise_bandwidth, header.user_parameter("a")) == (False, None, None)


@pytest.mark.parametrize("mode", ["separate", "external"])
def test_what_the_system_and_user_say(mode):
    calibration = f"<parallelImaging><calibrationMode>{mode}</calibrationMode></parallelImaging>"
    system = """<acquisitionSystemInformation><systemVendor>SIEMENS</systemVendor>
        <relativeReceiverNoiseBandwidth>0.8</relativeReceiverNoiseBandwidth></acquisitionSystemInformation>
        <userParameters><userParameterDouble><name>a</name><value>0.5</value></userParameterDouble>
        <userParameterDouble><name>b</name><value>-1</value></userParameterDouble></userParameters>"""
    header = MrdHeader(xml(calibration, system).encode() + b"\0", "xml")
    assert (header.siemens, header.noise_bandwidth) == (True, 0.8)
    assert (header.user_parameter("a"), header.user_parameter("b")) == (0.5, None)
    assert header.encoding(0).separate_calibration


def test_only_cartesian_and_echo_planar_encodings_pass(refused):
    only(xml()).check_cartesian()
    only(xml(trajectory="epi")).check_cartesian()
    with refused("spiral", field="trajectory"):
        only(xml(trajectory="spiral")).check_cartesian()


def test_the_ramps_of_an_echo_planar_readout(refused):
    def described(**values):
        kinds = {"dwellTime": "Double"}
        return (
            "<trajectoryDescription><identifier>ConventionalEPI</identifier>"
            + "".join(
                f"<userParameter{kinds.get(name, 'Long')}><name>{name}</name><value>{value}</value>"
                f"</userParameter{kinds.get(name, 'Long')}>"
                for name, value in values.items()
            )
            + "</trajectoryDescription>"
        )

    times = {"rampUpTime": 100, "flatTopTime": 300, "rampDownTime": 100, "acqDelayTime": 50}
    ramp = only(xml(described(**times, dwellTime=4.0, numSamples=100))).ramp
    assert (ramp.rise, ramp.flat, ramp.fall, ramp.delay, ramp.dwell, ramp.samples) == (100, 300, 100, 50, 4, 100)
    assert only(xml(described(**times, dwellTime=2.0, numSamples=100))).ramp is not None
    assert only(xml(described(**times | {"acqDelayTime": 100}, dwellTime=3.0, numSamples=100))).ramp is None  # flat top
    assert only(xml(described(**times))).ramp is None
    assert only(xml()).ramp is None
    with refused("after the gradient", field="ramp"):
        _ = only(xml(described(**times, dwellTime=40.0, numSamples=100))).ramp


@pytest.mark.parametrize(
    "text", ["", "no xml", "<html/>", b"\xff\xfe<a/>", "<!DOCTYPE a><ismrmrdHeader/>", '<!ENTITY b "c">', "<a>" * 10**5]
)
def test_what_is_no_header_is_named(text):
    with pytest.raises(InputError) as error:
        MrdHeader(text, "name")
    assert error.value.field == "name"


def test_comments_and_text_are_welcome():
    assert MrdHeader(xml("<!-- a --><![CDATA[b]]>"), "xml").encodings


def test_what_is_missing_in_an_encoding_is_named():
    with pytest.raises(InputError) as error:
        MrdHeader("<ismrmrdHeader/>", "xml").encoding(0)
    assert error.value.field == "xml"
    with pytest.raises(InputError) as error:
        only(xml().replace("<x>16</x>", "<x>-1</x>")).matrix("encodedSpace")
    assert error.value.field == "xml.encodedSpace/matrixSize/x"
    with pytest.raises(InputError) as error:
        only(xml().replace("<x>16</x>", "<x>a</x>")).grid(volume=False)
    assert error.value.field == "xml"


def test_scanner_and_times_without_names_of_people_and_places():
    head = """<subjectInformation><patientName>Miller</patientName></subjectInformation>
        <acquisitionSystemInformation><systemVendor> GE </systemVendor><systemModel>MR750</systemModel>
        <systemFieldStrength_T>3.0</systemFieldStrength_T><institutionName>Here</institutionName>
        </acquisitionSystemInformation><sequenceParameters><TR>500</TR><TE>4.92</TE><TE>7.38</TE></sequenceParameters>"""
    assert MrdHeader(xml(head=head), "xml").scanner == {
        "vendor": "GE", "model": "MR750", "field_strength": 3.0, "echo_time": [4.92, 7.38], "repetition_time": 500.0,
    }  # fmt: skip
    assert MrdHeader(xml(), "xml").scanner == {}
