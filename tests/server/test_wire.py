from __future__ import annotations

import io
import struct

import ismrmrd
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ismrmrd.serialization import ConfigFile, ConfigText, ProtocolDeserializer, ProtocolSerializer

from upmri.server import wire
from upmri.server.limits import Limits, RefusedError
from upmri.server.wire import EndedError, Incoming, Kind


def incoming(raw: bytes, step: int = 2**20, **limits) -> Incoming:
    stream = io.BytesIO(raw)
    return Incoming(lambda count: stream.read(min(step, count)), Limits(**limits))


def everything(raw: bytes, step: int = 2**20) -> list[wire.Message]:
    source, found = incoming(raw, step), []
    while not found or found[-1].kind != Kind.CLOSE:
        found.append(source.message())
    return found


def whole(make_head) -> bytes:
    data = np.arange(2 * 16).reshape(2, 16) * (1 + 2j)
    head = ismrmrd.ImageHeader()
    head.image_series_index = 7
    return b"".join(
        [
            wire.config_file_message("sense"),
            wire.config_text_message('{"method": "sense"}'),
            wire.header_message(b"<x/>"),
            wire.text_message("ümlaut"),
            wire.acquisition_message(make_head(3, 2, 16), data.astype("<c8").tobytes()),
            wire.image_message(head, "<a/>", np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)),
            wire.close_message(),
        ]
    )


@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_what_is_written_is_read_however_it_arrives(make_head, step):
    file, text, header, words, line, image, end = everything(whole(make_head), step)
    assert (file.kind, file.text) == (Kind.CONFIG_FILE, "sense")
    assert (text.kind, text.text) == (Kind.CONFIG_TEXT, '{"method": "sense"}')
    assert (header.kind, header.body) == (Kind.HEADER, b"<x/>\0")
    assert words.text == "ümlaut"
    assert line.head.idx.kspace_encode_step_1 == 3
    assert np.frombuffer(line.body, "<c8")[5] == 5 + 10j
    assert (image.text, image.head.image_series_index, list(image.head.matrix_size)) == ("<a/>", 7, [3, 2, 1])
    assert np.frombuffer(image.body, "<f4").tolist() == [0, 1, 2, 3, 4, 5]
    assert end.kind == Kind.CLOSE


def test_the_package_reads_what_is_sent(make_head):
    head = ismrmrd.ImageHeader()
    pixels = np.random.default_rng(0).standard_normal((1, 1, 4, 6)).astype(np.float32)
    sent = wire.text_message("hello") + wire.image_message(head, "<ismrmrdMeta></ismrmrdMeta>", pixels)
    sent += wire.acquisition_message(make_head(2, 2, 16), bytes(8 * 32)) + wire.close_message()
    text, image, line = ProtocolDeserializer(io.BytesIO(sent)).deserialize()
    assert text.rstrip("\0") == "hello"
    assert np.array_equal(image.data, pixels)
    assert line.idx.kspace_encode_step_1 == 2


def test_what_the_package_sends_is_read():
    file = io.BytesIO()
    wave = ismrmrd.Waveform.from_array(np.arange(12, dtype=np.uint32).reshape(2, 6))
    line = ismrmrd.Acquisition.from_array(np.ones((3, 8), np.complex64), np.zeros((8, 2), np.float32))
    writer = ProtocolSerializer(file)
    for one in (ConfigFile("sense"), ConfigText("{}"), "words", wave, line):
        writer.serialize(one)
    writer.close()
    found = everything(file.getvalue())
    assert [one.kind for one in found] == [1, 2, 5, 1026, 1008, 4]
    assert [one.text for one in found[:3]] == ["sense", "{}", "words"]
    assert len(found[4].body) == 8 * 3 * 8  # without the trajectory


def test_texts_with_and_without_a_nul():
    for raw in (b"abc", b"abc\0", b"abc\0\0"):
        found = incoming(struct.pack("<HI", Kind.TEXT, len(raw)) + raw).message()
        assert found.text == "abc"


def test_ends(make_head):
    raw = whole(make_head)
    source = incoming(b"")
    with pytest.raises(EndedError) as caught:
        source.message()
    assert caught.value.whole
    for end in (1, 3, 1025):
        with pytest.raises(EndedError) as caught:
            incoming(raw[:end]).message()
        assert not caught.value.whole


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\xff\xff", "protocol"),
        (struct.pack("<HI", Kind.TEXT, 2**32 - 1), "limit:text_bytes"),
        (struct.pack("<HI", Kind.HEADER, 2**32 - 1), "limit:xml_bytes"),
        (struct.pack("<HI", Kind.TEXT, 2) + b"\xff\xff", "protocol"),
        (struct.pack("<H", Kind.IMAGE) + bytes(198) + struct.pack("<Q", 2**64 - 1), "limit:text_bytes"),
        (struct.pack("<H", Kind.IMAGE) + bytes(206), "protocol"),
        (struct.pack("<H", Kind.ACQUISITION) + bytes(340), "data"),
    ],
)
def test_lengths_are_refused_before_they_are_waited_for(raw, code):
    """The stream ends after the length: who believed it would wait, and find the end."""
    with pytest.raises(RefusedError) as caught:
        incoming(raw).message()
    assert caught.value.code == code


def test_the_stream_as_a_whole_has_a_limit():
    source = incoming(wire.text_message("x" * 100) * 100, step=64, stream_bytes=1000)
    with pytest.raises(RefusedError) as caught:
        for _ in range(100):
            source.message()
    assert caught.value.code == "limit:stream_bytes"


@given(st.binary(max_size=600))
def test_noise_is_refused_or_ends(raw):
    source = incoming(raw, step=13)
    with pytest.raises((RefusedError, EndedError)):
        for _ in range(700):
            source.message()
