"""What the XML of a stream lets expect."""

import pytest

from upmri.formats.mrd_header import MrdHeader
from upmri.server.image_encoding import ImageEncoding
from upmri.server.limits import Limits, RefusedError


def read(xml: bytes, **limits) -> ImageEncoding:
    return ImageEncoding.read(MrdHeader(xml, "header").encodings[0], 0, 3, Limits(**limits))


def limits(**lengths: int) -> str:
    return "".join(f"<{name}><minimum>0</minimum><maximum>{n - 1}</maximum></{name}>" for name, n in lengths.items())


def test_readouts_and_frames(make_xml):
    image = read(make_xml(16, 8, limits=limits(average=2, phase=5, repetition=3, slice=7)))
    assert (image.samples, image.volume, image.averages, image.lines) == (16, False, 2, 16)
    assert image.frames == 15  # of each slice
    assert image.slice_bytes == 8 * 4 * 16 * 8
    assert read(make_xml()).frames == 1


def test_the_slice_of_a_volume(make_xml):
    image = read(make_xml(4, 8, 32))
    assert (image.volume, image.lines) == (True, 8 * 32)
    assert image.slice_bytes == 8 * 4 * 8 * 32


@pytest.mark.parametrize(("name", "value"), [("matrix", 15), ("held_bytes", 8 * 3 * 16 * 8 - 1)])
def test_what_is_too_large(make_xml, name, value):
    with pytest.raises(RefusedError) as caught:
        read(make_xml(16, 8), **{name: value})
    assert caught.value.code == f"limit:{name}"
