"""Messages of images, as a client reads them."""

from __future__ import annotations

import json

import ismrmrd
import numpy as np
import pytest

from upmri.core.bounds import NOT_COVERED
from upmri.server.assemble import Frame
from upmri.server.limits import Limits
from upmri.server.series import NOTICE, Series
from upmri.server.wire import Incoming, Message

PLACE = {"position": [1.0, 2.0, 3.0], "readout": [0.0, 1.0, 0.0], "phase": [0.0, 0.0, 1.0], "slice": [1.0, 0.0, 0.0]}
SHAPE = (6, 4)  # readout, phase


def answer(place=None, volume=False, index=0) -> dict:
    return {
        "index": index, "settings": {"damping": 0.5, "sha256": "ab"}, "found": {}, "place": place,
        "spacing": (2.0, 3.0, 5.0), "volume": volume, "readouts": 10, "shape": list(SHAPE), "seconds": 0.1,
        "last": True,
    }  # fmt: skip


def read(raw: bytes) -> Message:
    parts = iter((raw, b""))
    return Incoming(lambda _: next(parts), Limits()).message()


@pytest.fixture
def frame(make_head):
    made = Frame((1, 2, 3, 4, 5), 0)
    head = make_head(position=(7.0, 8.0, 9.0), measurement_uid=77, acquisition_time_stamp=99)
    made.rows.add(head, bytes(8 * 2 * 16))
    return made


@pytest.fixture
def pixels():
    draw = np.random.default_rng(0)
    return (draw.standard_normal(SHAPE) + 1j * draw.standard_normal(SHAPE)).astype(np.complex64)


def test_three_series(frame, pixels):
    deviation = np.abs(pixels) / 10
    made = Series("sense", keep_phase=True)
    for count in (1, 2):
        several = [read(raw) for raw in made.messages(frame, answer(), [pixels.data, deviation.data])]
        assert [one.head.image_series_index for one in several] == [1, 2, 3]
        assert {one.head.image_index for one in several} == {count}
        for one, expected in zip(several, (np.abs(pixels), deviation, pixels), strict=True):
            assert list(one.head.matrix_size) == [6, 4, 1]
            assert np.array_equal(np.frombuffer(one.body, expected.dtype).reshape(4, 6).T, expected)
    assert made.count == 2


def test_counters_and_sizes(frame, pixels):
    [raw] = Series("sense", keep_phase=False).messages(frame, answer(), [pixels.data])
    head = read(raw).head
    assert (head.repetition, head.phase, head.set, head.contrast, head.slice) == (1, 2, 3, 4, 5)
    assert (head.measurement_uid, head.acquisition_time_stamp) == (77, 99)
    assert list(head.field_of_view) == [12, 12, 5]
    assert list(head.position) == [7, 8, 9]  # of the readout, where the geometry is not known


def test_the_position_is_that_of_the_centre(frame, pixels):
    [raw] = Series("sense", keep_phase=False).messages(frame, answer(PLACE), [pixels.data])
    found = read(raw)
    assert list(found.head.position) == [1, 2 + 3 * 2, 3 + 2 * 3]
    assert list(found.head.read_dir) == PLACE["readout"]
    assert list(found.head.phase_dir) == PLACE["phase"]
    assert list(found.head.slice_dir) == PLACE["slice"]
    assert [float(x) for x in ismrmrd.Meta.deserialize(found.text)["ImageRowDir"]] == PLACE["readout"]


def test_slices_of_a_volume_are_positions_of_the_readout(frame, pixels):
    [raw] = Series("sense", keep_phase=False).messages(frame, answer(volume=True, index=7), [pixels.data])
    found = read(raw)
    assert found.head.slice == 5 * 10 + 7
    assert ismrmrd.Meta.deserialize(found.text)["UPMRI_slices"] == "readout"


def test_attributes(frame, pixels):
    made = Series("sense", keep_phase=False)
    first, second = (
        ismrmrd.Meta.deserialize(read(made.messages(frame, answer(), [scaled.data])[0]).text)
        for scaled in (pixels, 100 * pixels)
    )
    assert first["UPMRI_notice"] == NOTICE
    assert first["UPMRI_weights_sha256"] == "ab"
    assert json.loads(first["UPMRI"])["damping"] == 0.5
    assert float(first["WindowWidth"]) == pytest.approx(np.quantile(np.abs(pixels), 0.999), rel=1e-5)
    assert second["WindowWidth"] == first["WindowWidth"]  # so that slices can be compared


def test_each_image_says_what_was_wrong_with_its_own_frame(frame, pixels):
    made = Series("sense", keep_phase=False)
    wrong, good = (
        json.loads(ismrmrd.Meta.deserialize(read(made.messages(frame, one, [pixels.data])[0]).text)["UPMRI"])
        for one in (answer() | {"found": {"left_out_coils": [3]}}, answer())
    )
    assert wrong["left_out_coils"] == [3]
    assert "left_out_coils" not in good


def test_bounds_are_in_the_attributes_with_what_they_do_not_cover(frame, pixels):
    made = Series("upmri", keep_phase=False)
    bounds = {"confidence": 0.9, "psnr": [31.2], "sentence": "at least 31.2 dB with 90 % confidence"}
    found = answer() | {"found": {"bounds": bounds}}
    meta = ismrmrd.Meta.deserialize(read(made.messages(frame, found, [pixels.data])[0]).text)
    assert meta["UPMRI_bounds"] == f"{bounds['sentence']}. {NOT_COVERED}"
    assert json.loads(meta["UPMRI"])["bounds"] == bounds


def test_a_single_frame_for_a_method_over_time_is_said_once():
    made = Series("cine", keep_phase=False)
    found = answer() | {"found": {"one_frame": "cine needs several frames"}}
    texts = [[read(raw).text for raw in made.warnings(found, where)] for where in ("slice 2", "slice 3")]
    assert texts == [["warning: slice 2: cine needs several frames"], []]


def test_a_coil_that_is_left_out_is_named_once():
    made = Series("sense", keep_phase=False)
    found = [answer() | {"found": {"left_out_coils": coils}} for coils in ([3], [], [3, 5])]
    texts = [[read(raw).text for raw in made.warnings(one, "slice 2")] for one in found]
    what = "would spoil the image and is left out"
    assert texts == [[f"warning: slice 2: coil 3 {what}"], [], [f"warning: slice 2: coil 5 {what}"]]
