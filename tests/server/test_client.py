"""The client: addresses, errors of a server, and images put together."""

from __future__ import annotations

import json
import socket
import struct
import threading
from contextlib import suppress

import ismrmrd
import numpy as np
import pytest

from upmri import InputError
from upmri.server import client, series, wire
from upmri.server.limits import Limits
from upmri.server.wire import ERROR, Incoming, Message

GUARD = 240  # seconds after which a failing test stops to wait
CONFIG = {"method": "sense"}


def test_addresses():
    assert client.address("host:1") == ("host", 1)
    assert client.address("host") == ("host", 9002)
    assert client.address("[::1]:90") == ("::1", 90)
    assert client.address("[::1]") == ("::1", 9002)
    for wrong in ("", ":5", "host:", "host:0", "host:x", "host:70000"):
        with pytest.raises(InputError) as error:
            client.address(wrong)
        assert error.value.field == "--to"


# --- a server that answers with given bytes ---------------------------------------------------------------------------


def exchange_with(answer: bytes | None, **more) -> list[Message]:
    """Exchange messages with a server that reads everything and sends ``answer``; None if it resets the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            sock, _ = listening.accept()
            with sock, suppress(ConnectionError):  # the client may end first
                sock.settimeout(GUARD)
                if answer is None:
                    sock.recv(1)  # a reset before that could be an error of the connection's begin
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                sock.sendall(answer)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(2**16):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return client.exchange(
                listening.getsockname(), CONFIG, [wire.header_message(b"<x/>")], seconds=GUARD, **more
            )
        finally:
            thread.join()


def test_texts_and_images_are_reported_as_they_come():
    head = ismrmrd.ImageHeader()
    head.image_series_index = series.MAGNITUDE
    image = wire.image_message(head, "", np.ones((1, 1, 2, 2), np.float32))
    texts, images = [], []
    found = exchange_with(
        wire.text_message("hello") + image + wire.close_message(),
        on_text=texts.append,
        on_image=lambda: images.append(1),
    )
    assert (texts, len(images), len(found)) == (["hello"], 1, 1)


def test_an_error_of_the_server_is_raised_with_its_address():
    with pytest.raises(InputError) as error:
        exchange_with(wire.text_message(f"{ERROR}method: unknown") + wire.close_message())
    assert error.value.message == "method: unknown"
    assert error.value.path.startswith("127.0.0.1:")


@pytest.mark.parametrize("answer", [None, b"", wire.text_message("x")[:-1]])
def test_a_connection_that_ends_early(answer):
    """After a reset the system reports an error to the thread that sends or to the one that receives, not to both."""
    with pytest.raises(InputError, match="connection ended") as error:
        exchange_with(answer)
    assert error.value.path.startswith("127.0.0.1:")


def test_no_answer_and_no_server(small):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        to = silent.getsockname()
        with pytest.raises(InputError, match="0.2 s") as error:
            client.stream(small, to, CONFIG, max_bytes=2**30, seconds=0.2)
        assert error.value.path == f"{to[0]}:{to[1]}"
    with pytest.raises(InputError) as error:
        client.stream(small, to, CONFIG, max_bytes=2**30)
    assert (error.value.field, error.value.path) == ("--to", None)


def test_an_error_of_a_real_server(server, small):
    with pytest.raises(InputError, match="'sesne'") as error:
        client.stream(small, server.to, {"method": "sesne"}, max_bytes=2**30)
    assert error.value.path == f"127.0.0.1:{server.port}"


# --- images -----------------------------------------------------------------------------------------------------------


def image(number: int, attributes: str = "", shape=(1, 1, 3, 4), kind: int = series.MAGNITUDE) -> Message:
    """An axial image of slice ``number``, 2 × 1 mm, 5 mm apart, filled with its number."""
    head = ismrmrd.ImageHeader()
    head.image_series_index, head.slice = kind, number
    head.field_of_view[:] = (8, 3, 5)
    head.position[:] = (0, 0, 5 * number)
    head.read_dir[:], head.phase_dir[:], head.slice_dir[:] = (1, 0, 0), (0, 1, 0), (0, 0, 1)
    pixels = np.full(shape, number, np.complex64 if kind == series.COMPLEX else np.float32)
    raw = wire.image_message(head, attributes, pixels)
    parts = iter((raw, b""))
    return Incoming(lambda _: next(parts), Limits()).message()


def test_images_are_sorted_and_have_a_geometry():
    about = ismrmrd.Meta({"UPMRI": json.dumps({"method": "sense", "version": "1.2", "damping": 0.5})}).serialize()
    rec = client.combine_images([image(2, about), image(0), image(1)], "scan", 1.5)
    assert rec.image.shape == (3, 4, 3)
    assert rec.image[:, 0, 0].real.tolist() == [0, 1, 2]
    assert rec.spacing == pytest.approx((2, 1, 5))
    assert rec.meta["axes"] == {"slice": 3}
    assert rec.meta["geometry"]["position"] == pytest.approx([-4, -1, 0])
    assert (rec.method, rec.settings, rec.versions) == ("sense", {"damping": 0.5}, {"upmri": "1.2"})
    assert (rec.name, rec.seconds) == ("scan", 1.5)


def test_bounds_are_those_of_all_slices():
    def about(psnr):
        header = {"confidence": 0.9, "psnr": [psnr], "ssim": [0.9], "deviations": None, "reasons": [""]}
        return ismrmrd.Meta({"UPMRI": json.dumps({"bounds": {**header, "sentence": "…"}})}).serialize()

    rec = client.combine_images([image(1, about(31.0)), image(0, about(30.0))], "scan", 0.0)
    assert rec.bounds.psnr == (30.0, 31.0)
    assert bool(rec.bounds.lines.isnan().all())
    assert rec.settings == {"bounds": True}
    assert client.combine_images([image(0, about(30.0)), image(1)], "scan", 0.0).bounds is None


def test_complex_images_and_deviations():
    several = [image(n, kind=kind) for kind in (series.MAGNITUDE, series.COMPLEX, series.DEVIATION) for n in (0, 1)]
    rec = client.combine_images(several, "scan", 0.0)
    assert rec.image.is_complex()
    assert rec.std[:, 0, 0].tolist() == [0, 1]


@pytest.mark.parametrize("text", ["", "<x", "no XML", ismrmrd.Meta({"UPMRI": "[1"}).serialize()])
def test_attributes_that_cannot_be_read_are_left_out(text):
    rec = client.combine_images([image(0, text)], "scan", 0.0)
    assert (rec.method, rec.settings) == ("", {})


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (list, "no image"),
        (lambda: [image(0, kind=series.COMPLEX)], "no image"),
        (lambda: [image(0), image(1, shape=(1, 1, 5, 4))], "sizes"),
        (lambda: [image(0, shape=(2, 1, 3, 4))], "2-D"),
        (lambda: [image(0, '<!DOCTYPE x [<!ENTITY a "b">]><x/>')], "DOCTYPE"),
    ],
)
def test_images_that_are_no_reconstruction(found, word):
    with pytest.raises(InputError, match=word):
        client.combine_images(found(), "scan", 0.0)
