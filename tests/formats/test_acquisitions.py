"""The headers of acquisitions: which of their fields are used, and what they must be."""

from __future__ import annotations

import ismrmrd
import numpy as np
import pytest

from upmri import InputError
from upmri.formats.acquisitions import AcquisitionSource, header_columns
from upmri.formats.mrd_header import MrdHeader

HEAD = np.dtype(ismrmrd.AcquisitionHeader)
SPACE = """<matrixSize><x>4</x><y>3</y><z>1</z></matrixSize>
    <fieldOfView_mm><x>40</x><y>30</y><z>5</z></fieldOfView_mm>"""
XML = f"""<ismrmrdHeader><encoding><encodedSpace>{SPACE}</encodedSpace><reconSpace>{SPACE}</reconSpace>
    <trajectory>cartesian</trajectory></encoding></ismrmrdHeader>"""


class Memory(AcquisitionSource):
    """Acquisitions whose samples are the numbers of their rows."""

    format = "memory"

    def __init__(self, path, heads, xml=XML) -> None:
        super().__init__(path, 2**20)
        self._sort(MrdHeader(xml, "xml"), header_columns(heads))

    def _gather(self, rows, samples):
        return np.broadcast_to((rows + 1)[:, None, None], (len(rows), self.coils, samples)).astype(np.complex64)


def heads(count: int = 3, **fields):
    made = np.zeros(count, HEAD)
    made["active_channels"], made["number_of_samples"], made["center_sample"] = 2, 4, 2
    made["idx"]["kspace_encode_step_1"] = np.arange(count)
    for name, value in fields.items():
        made[name] = value
    return made


def test_columns_are_those_of_the_headers():
    columns = header_columns(heads(flags=2**40, sample_time_us=3.0, position=(1, 2, 3)))
    assert columns["kspace_encode_step_1"].tolist() == [0, 1, 2]
    assert (columns["flags"].dtype, columns["flags"][0]) == (np.uint64, 2**40)
    assert columns["position"].tolist() == [[1, 2, 3]] * 3


@pytest.mark.parametrize("name", ["flags", "idx", "number_of_samples"])
def test_headers_without_a_field_are_refused(name):
    kept = [field for field in HEAD.names if field != name]
    with pytest.raises(InputError) as error:
        header_columns(heads()[kept])
    assert error.value.field == "data"


def test_headers_without_positions_have_none():
    kept = [field for field in HEAD.names if field not in ("position", "read_dir", "sample_time_us")]
    columns = header_columns(heads()[kept])
    assert not columns["position"].any()
    assert not columns["read_dir"].any()
    assert columns["sample_time_us"].tolist() == [0, 0, 0]


def test_what_is_left_out_is_counted(tmp_path):
    flags = [0, 0, 0, 1 << 22, 1 << 22, 1 << 26, 1 << 18]  # navigation, navigation, dummy, noise
    made = heads(7, flags=flags)
    made["idx"]["kspace_encode_step_1"] = [0, 1, 2, 0, 0, 0, 0]
    made["encoding_space_ref"] = [0, 0, 0, 0, 0, 0, 0]
    source = Memory(tmp_path / "x", made)
    scan = source.read()
    assert scan.meta["left out"] == {"navigation": 2, "dummy": 1}
    assert scan.kspace.shape == (1, 2, 4, 3)
    assert source._noise.tolist() == [6]


def test_the_encoding_with_most_readouts_is_the_image(tmp_path):
    made = heads(4, encoding_space_ref=[1, 0, 0, 0])
    made["idx"]["kspace_encode_step_1"] = [0, 0, 1, 2]
    scan = Memory(tmp_path / "x", made).read()
    assert scan.meta["left out"] == {"of another encoding": 1}
    assert scan.kspace[0, 0, 0].real.tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("dwell", "band", "scale"), [((10, 5), "", 2.0), ((10, 5), "0.5", 4.0), ((0, 5), "", 1.0), ((10, 5), "7", 2.0)]
)
def test_noise_is_scaled_to_the_bandwidth_of_imaging(tmp_path, dwell, band, scale):
    made = heads(4, flags=[1 << 18, 0, 0, 0], sample_time_us=[dwell[0], *[dwell[1]] * 3])
    made["idx"]["kspace_encode_step_1"] = [0, 0, 1, 2]
    system = f"<acquisitionSystemInformation><relativeReceiverNoiseBandwidth>{band}</relativeReceiverNoiseBandwidth>"
    xml = XML.replace("<encoding>", f"{system}</acquisitionSystemInformation><encoding>", 1)
    assert Memory(tmp_path / "x", made, xml)._noise_scale == scale
