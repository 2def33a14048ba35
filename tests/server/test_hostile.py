"""Clients that attack: each gets an error that names the reason, and other clients are not affected."""

from __future__ import annotations

import re
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

import ismrmrd
import numpy as np
import pytest

from upmri.server import wire
from upmri.server.wire import Kind

LIMITS = {
    "clients": 6, "per_address": 6, "coils": 32, "matrix": 256, "message_bytes": 2**22, "stream_bytes": 2**25,
    "held_bytes": 2**24, "readouts": 3000, "frames": 50, "linger_seconds": 1,
}  # fmt: skip
TIMES = {"begin_seconds": 1.5, "idle_seconds": 1.5, "total_seconds": 5, "linger_seconds": 1}
GUARD = 240  # seconds after which a failing test stops to wait
GO = wire.config_file_message("sense")
BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(b'<!ENTITY %c "%s">' % (c, b"&%c;" % (c - 1) * 10) for c in range(ord("b"), ord("j")))
    + b"]><ismrmrdHeader>&i;</ismrmrdHeader>"
)
OUTSIDE = (
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><ismrmrdHeader>&a;</ismrmrdHeader>'
)


def options(limits: dict) -> list[str]:
    return [word for name, value in limits.items() for word in ("--limit", f"{name}={value}")]


@pytest.fixture(scope="module")
def strict(tmp_path_factory, open_server):
    """A server with low limits of sizes and counts."""
    with open_server(tmp_path_factory.mktemp("strict"), *options(LIMITS)) as running:
        yield running


@pytest.fixture(scope="module")
def impatient(tmp_path_factory, open_server):
    """A server with low limits of times."""
    with open_server(tmp_path_factory.mktemp("impatient"), *options(TIMES)) as running:
        yield running


@pytest.fixture
def line(make_head):
    """``line(…)``: a readout, of noise unless there is a value."""

    def make(number=0, coils=2, samples=16, value=None, head=None, **more):
        shape = (coils, samples)
        data = np.random.default_rng(number).standard_normal(shape) + 0j if value is None else np.full(shape, value)
        return wire.acquisition_message(head or make_head(number, coils, samples, **more), data.astype("<c8").tobytes())

    return make


def text(kind: Kind, raw: bytes, length: int | None = None) -> bytes:
    return struct.pack("<HI", kind, len(raw) if length is None else length) + raw


def image(attributes: int = 0, size: int = 4) -> bytes:
    head = ismrmrd.ImageHeader()
    head.data_type, head.channels, head.matrix_size[:] = 5, size, (size, size, 1)
    pixels = bytes(min(4 * size**3, 1000))
    return struct.pack("<H", Kind.IMAGE) + bytes(head) + struct.pack("<Q", attributes) + pixels


def waveform(channels: int, samples: int) -> bytes:
    head = ismrmrd.WaveformHeader()
    head.channels, head.number_of_samples = channels, samples
    return struct.pack("<H", Kind.WAVEFORM) + bytes(head)


class Kit:
    """Functions that crafted streams use."""

    def __init__(self, line, head, xml) -> None:
        self.line, self.head, self.xml = line, head, xml

    @property
    def begin(self) -> bytes:
        return self.with_xml(self.xml())

    def with_xml(self, xml: bytes, *more: bytes) -> bytes:
        return GO + wire.header_message(xml) + b"".join(more)


# A name, the bytes that are sent, and an expression that the error must match.
CRAFTED = [
    ("all 0xFF", b"\xff" * 4096, "message 65535"),
    ("all zeros", bytes(4096), "message 0"),
    ("a web browser", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "another protocol"),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), "another protocol"),
    ("a long configuration", text(Kind.CONFIG_TEXT, b"", 2**32 - 1), "text_bytes"),
    ("a long text", GO + text(Kind.TEXT, b"x" * 100, 2**31), "text_bytes"),
    ("a long header", GO + text(Kind.HEADER, b"<", 2**32 - 1), "xml_bytes"),
    ("not UTF-8", text(Kind.CONFIG_TEXT, b"\xff\xfe\xfa"), "UTF-8"),
    ("a name without end", struct.pack("<H", 1) + b"A" * 1024, "not one of"),
    ("a module", wire.config_file_message("os.system"), "'os.system' is not one of"),
    ("a path", wire.config_file_message("../../etc/passwd"), "not one of"),
    ("a Gadgetron configuration", wire.config_text_message("<gadgetronStreamConfiguration/>"), "not one of"),
    (
        "a setting that names a module",
        wire.config_text_message('{"method": "sense", "module": "os"}'),
        "module: Extra inputs",
    ),
    ("an object for a name", wire.config_text_message('{"method": {"__class__": "os"}}'), "expected a name"),
    ("parameters that are none", wire.config_text_message('{"parameters": 5}'), "parameters: Extra inputs"),
    ("JSON without end", wire.config_text_message('{"a":' * 10000), "expected the name of a method, or JSON"),
    (
        "a number without end",
        wire.config_text_message('{"method": "upmri", "seed": ' + "9" * 5000 + "}"),
        "JSON|seed",
    ),
    (
        "weights by a path",
        wire.config_text_message('{"method": "upmri", "model": "/etc/passwd"}'),
        "model: '/etc/passwd' is not",
    ),
    (
        "a million samples",
        wire.config_text_message('{"method": "upmri", "samples": 1000000}'),
        "samples: 1e.06 is more than this server",
    ),
    ("infinite damping", wire.config_text_message('{"method": "sense", "damping": 1e999}'), "damping"),
    (
        "a setting of another method",
        wire.config_text_message('{"method": "sense", "steps": 3}'),
        "steps: not a setting of sense",
    ),
    ("no configuration", lambda k: wire.header_message(k.xml()), "header came before a configuration"),
    ("a readout first", lambda k: GO + k.line(), "before the XML header"),
    ("CLOSE at once", wire.close_message(), "CLOSE came before the XML header"),
    ("two headers", lambda k: k.begin + wire.header_message(k.xml()), "a second header"),
    ("a configuration too late", lambda k: k.begin + k.line() + GO, "after readouts"),
    ("an XML bomb", lambda k: k.with_xml(BOMB), "without DOCTYPE"),
    ("an external entity", lambda k: k.with_xml(OUTSIDE), "without DOCTYPE"),
    ("no XML", lambda k: k.with_xml(b"\x00\x01\x02"), "in XML"),
    ("XML that is not UTF-8", lambda k: k.with_xml(b"<\xff\xff>"), "header: .*(?i:utf-8)"),
    ("other XML", lambda k: k.with_xml(b"<html><body/></html>"), "got <html>"),
    ("deep XML", lambda k: k.with_xml(b"<a>" * 200000 + b"</a>" * 200000), "header"),
    ("no encoding", lambda k: k.with_xml(b"<ismrmrdHeader/>"), "expected an encoding"),
    ("a large matrix", lambda k: k.with_xml(k.xml(2**31, 2**31), k.line()), "samples|matrix"),
    ("too large a matrix", lambda k: k.with_xml(k.xml(300, 300), k.line()), "limit of 256 \\(matrix\\)"),
    ("too much of it", lambda k: k.with_xml(k.xml(256, 256, 256), k.line()), "held_bytes"),
    ("no matrix", lambda k: k.with_xml(k.xml(0, 0), k.line()), "samples"),
    ("a matrix of NaN", lambda k: k.with_xml(k.xml(float("nan"), float("inf")), k.line()), "matrixSize"),
    ("a negative matrix", lambda k: k.with_xml(k.xml(-5, 8), k.line()), "samples"),
    ("radial", lambda k: k.with_xml(k.xml(trajectory="radial"), k.line()), "expected cartesian or epi, got radial"),
    ("no coils", lambda k: k.begin + k.line(head=k.head(coils=0)), "0 coils and 16 samples"),
    ("no samples", lambda k: k.begin + k.line(head=k.head(samples=0)), "2 coils and 0 samples"),
    ("65535 coils", lambda k: k.begin + k.line(head=k.head(coils=65535, samples=65535)), "coils"),
    ("33 coils", lambda k: k.begin + k.line(coils=33), "limit of 32 \\(coils\\)"),
    ("a long readout", lambda k: k.begin + k.line(head=k.head(coils=32, samples=65535)), "message_bytes"),
    ("a long trajectory", lambda k: k.begin + k.line(head=k.head(trajectory_dimensions=65535)), "message_bytes"),
    ("a line that is not there", lambda k: k.begin + k.line(65535, flags=(8,)), "do not fit"),
    (
        "a partition that is not there",
        lambda k: k.begin + k.line(kspace_encode_step_2=9, flags=(8,)),
        "do not fit|partitions",
    ),
    ("another encoding", lambda k: k.begin + k.line(encoding_space_ref=7), "encoding 7"),
    ("more samples than the grid", lambda k: k.begin + k.line(samples=64), "64 samples"),
    ("all samples left out", lambda k: k.begin + k.line(discard_pre=20, flags=(8,)), "does not fit"),
    ("other coils", lambda k: k.begin + k.line() + k.line(1, coils=3), "expected readouts of 2 coils"),
    (
        "NaN",
        lambda k: k.begin + b"".join(k.line(n, value=np.nan, flags=(8,) if n == 7 else ()) for n in range(8)),
        "finite",
    ),
    (
        "infinity",
        lambda k: k.begin + b"".join(k.line(n, value=np.inf, flags=(8,) if n == 7 else ()) for n in range(8)),
        "finite",
    ),
    ("one line of a slice", lambda k: k.begin + k.line(flags=(8,)), "lines"),
    (
        "slices without end",
        lambda k: k.begin + b"".join(k.line(slice=n) for n in range(60)),
        "limit of 50 \\(frames\\)",
    ),
    ("readouts without end", lambda k: k.begin + k.line(flags=(27,)) * 3001, "limit of 3000 \\(readouts\\)"),
    ("bytes without end", lambda k: k.begin + (waveform(1000, 1000) + bytes(4 * 10**6)) * 9, "stream_bytes"),
    (
        "more than memory",
        lambda k: k.with_xml(k.xml(256, 256), *(k.line(n % 256, 32, 256, average=n) for n in range(300))),
        "held_bytes",
    ),
    ("a waveform without end", lambda k: k.begin + waveform(65535, 65535), "message_bytes"),
    ("an image", lambda k: k.begin + image(), "expected raw data"),
    ("an image with many words", lambda k: k.begin + image(2**63), "text_bytes"),
    ("a large image", lambda k: k.begin + image(size=65535), "message_bytes"),
    (
        "noise and nothing else",
        lambda k: k.begin + k.line(flags=(19,)) + wire.close_message(),
        "without a readout of an image",
    ),
    (
        "calibration and nothing else",
        lambda k: k.begin + k.line(flags=(20,)) + wire.close_message(),
        "without a readout of an image",
    ),
]


@pytest.mark.parametrize(("craft", "answer"), [row[1:] for row in CRAFTED], ids=[row[0] for row in CRAFTED])
def test_the_error_names_the_reason_and_others_are_not_affected(
    strict, peer, line, make_head, make_xml, craft, answer, check_other
):
    hostile = peer(strict.to)
    try:
        hostile.send(craft if isinstance(craft, bytes) else craft(Kit(line, make_head, make_xml)))
    except ConnectionError:
        pytest.fail("the server closed the connection before it had read everything, so its error may be lost")
    check_other(strict)
    [error] = hostile.errors()
    assert re.search(answer, error), error
    assert strict.process.poll() is None


def test_a_stream_of_zeros_is_said_to_be_one(strict, peer, line, make_head, make_xml, check_other):
    """Its image is 0, and a text says that nothing was sampled."""
    kit, zeros = Kit(line, make_head, make_xml), peer(strict.to)
    zeros.send(kit.begin + b"".join(kit.line(n, value=0) for n in range(8)) + wire.close_message())
    check_other(strict)
    texts = [message.text for message in zeros.rest() if message.kind == Kind.TEXT]
    assert any("nothing was sampled" in text for text in texts), texts
    assert strict.process.poll() is None


@pytest.mark.parametrize("size", ["1e300", "1e-300", "-1", "nan", "inf", "0", "x"])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e38, -1e38, 1e-40])
def test_odd_numbers_in_headers_cost_the_geometry_at_most(strict, peer, small, messages, size, number):
    """The scan itself is fine: there is an image, or an error that names the reason."""
    header, *lines = messages(small)
    xml = re.sub(rb"<([xyz])>(\d+\.\d+)</", rb"<\1>" + size.encode() + rb"</", header[6:])
    changed = []
    for line in lines:
        head = ismrmrd.AcquisitionHeader.from_buffer_copy(line[2:342])
        for field in (head.position, head.read_dir, head.phase_dir, head.slice_dir, head.patient_table_position):
            field[:] = [number] * 3
        head.sample_time_us = number
        changed.append(wire.acquisition_message(bytes(head), line[342:]))
    found = peer(strict.to).send(GO, wire.header_message(xml), *changed, wire.close_message()).rest()
    errors = [message.text for message in found if message.text.startswith("ERROR")]
    images = [message for message in found if message.kind == Kind.IMAGE]
    assert len(images) + len(errors) == 1
    assert not any("fault" in error for error in errors), errors


def test_truncated_anywhere(strict, peer, small, messages, check_other):
    whole = GO + b"".join(messages(small)[:4])
    for end in (1, 2, 500, 1026, 1030, len(whole) - 1, len(whole)):
        hostile = peer(strict.to).send(whole[:end])
        hostile.socket.shutdown(socket.SHUT_WR)
        [error] = hostile.errors()
        assert "without CLOSE" in error if end in (1026, len(whole)) else "in the middle of a message" in error
    check_other(strict)


def test_the_error_arrives_while_the_client_still_sends(strict, peer):
    hostile = peer(strict.to).send(b"\xff\xff")
    for _ in range(200):
        hostile.send(bytes(2**16))  # 12.5 MiB in all
    [error] = hostile.errors()
    assert "message 65535" in error


def test_silence(impatient, peer, check_other):
    hostile = peer(impatient.to)
    check_other(impatient)
    [error] = hostile.errors()  # though the client never sent a byte
    assert "begin_seconds" in error
    assert impatient.event("stream_end", code="limit:begin_seconds")["bytes_in"] == 0


@pytest.mark.parametrize("after_the_header", [False, True])
def test_slow_loris(impatient, peer, make_xml, line, check_other, after_the_header):
    """Single bytes are no message: time is measured from one whole message to the next."""
    hostile = peer(impatient.to)
    if after_the_header:
        hostile.send(GO, wire.header_message(make_xml()))
    hostile.socket.settimeout(0.1)
    answer = b""
    for byte in (line() if after_the_header else GO)[:-1]:  # the answer must come before the message is whole
        hostile.socket.send(bytes([byte]))
        with suppress(TimeoutError):
            answer = hostile.socket.recv(1000)
            break
    assert (b"idle_seconds" if after_the_header else b"begin_seconds") in answer
    check_other(impatient)


def test_a_stream_without_end(impatient, peer, make_xml, line, check_other):
    hostile = peer(impatient.to).send(GO, wire.header_message(make_xml()))
    hostile.socket.settimeout(0.2)
    answer, navigator, until = b"", line(flags=(23,)), time.monotonic() + GUARD
    while b"total_seconds" not in answer and time.monotonic() < until:
        hostile.socket.sendall(navigator)
        with suppress(TimeoutError):
            answer += hostile.socket.recv(1000)
    assert b"total_seconds" in answer
    check_other(impatient)


def test_a_client_that_disconnects_while_images_are_sent(strict, peer, repeated, messages, check_other):
    for _ in range(3):
        hostile = peer(strict.to).send(GO, *messages(repeated), wire.close_message())
        while hostile.next().kind != Kind.IMAGE:
            pass
        hostile.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        hostile.socket.close()  # with a reset
    check_other(strict)
    ends = [e["code"] for e in strict.events() if e["event"] == "stream_end" and e["readouts"] == 273]
    assert len(ends) <= 3


def test_more_clients_than_allowed(strict, peer, small, messages, check_other):
    holding = [peer(strict.to).send(GO, *messages(small)[:3]) for _ in range(LIMITS["clients"])]
    strict.event("stream_begin", count=sum(e["event"] == "stream_begin" for e in strict.events()))
    [error] = peer(strict.to).send(GO, messages(small)[0]).errors()
    assert "busy with 6 clients; try again later" in error
    for one in holding:
        one.socket.close()
    strict.quiet()
    check_other(strict)


def test_a_flood_of_connections(strict, check_other):
    def met():
        away = [strict.metric(f'streams_refused_total{{code="{code}"') for code in ("flood", "limit:clients")]
        return strict.metric("streams_total") + sum(away)

    before = met()
    flood = [socket.create_connection(strict.to) for _ in range(60)]
    for one in flood:
        one.close()
    until = time.monotonic() + GUARD
    while met() < before + 60:  # some may still wait to be accepted, and turn the next one away
        assert time.monotonic() < until
        time.sleep(0.01)
    strict.quiet()
    check_other(strict)


def test_an_address_that_floods_the_server_keeps_no_other_out(strict, check_other):
    """More connections than the server takes, each with a byte, so that each gets an error and time to read it."""
    flood = [socket.create_connection(strict.to, GUARD, source_address=("127.0.0.2", 0)) for _ in range(60)]
    for one in flood:
        with suppress(ConnectionError):
            one.sendall(b"\x01")
    check_other(strict)
    for one in flood:
        one.close()
    strict.quiet()


def test_memory_and_threads_stayed_bounded(strict):
    """The last of this file: after all of the above."""
    if strict.metric("streams_total") < len(CRAFTED):
        pytest.skip("the others ran elsewhere")
    assert strict.memory() < 600
    threads = len(list(Path(f"/proc/{strict.pid}/task").iterdir()))
    files = len(list(Path(f"/proc/{strict.pid}/fd").iterdir()))
    assert threads < 10
    assert files < 40
    assert strict.metric("worker_starts_total") == 1
    assert not [e for e in strict.events() if e["event"] == "fault"]
