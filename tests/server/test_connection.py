"""One connection over a pair of sockets, with a dispatcher that answers at once."""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from upmri.server import wire
from upmri.server.connection import Connection
from upmri.server.counters import Counters
from upmri.server.limits import Limits, RefusedError
from upmri.server.order import Order
from upmri.server.places import Places
from upmri.server.shared import Shared
from upmri.server.wire import ERROR, EndedError, Incoming, Kind

GUARD = 240  # seconds after which a failing test stops to wait
GO = wire.config_file_message("sense")


class FakeDispatcher:
    """Answers each frame with an image of ones."""

    def __init__(self):
        self.forgotten, self.error, self.found = [], None, {}

    def submit(self, stream, frame):
        if self.error is not None:
            raise self.error
        answer = {
            "index": 0, "settings": {"model": "brain"}, "found": self.found, "place": None, "spacing": None,
            "volume": False, "readouts": 1, "shape": [4, 3], "seconds": 0.25,
        }  # fmt: skip
        stream.deliver(frame, answer, [np.ones((4, 3), np.complex64).data])

    def finish(self, stream):
        if stream.fault:
            raise stream.fault

    def forget(self, stream, late):  # noqa: ARG002
        self.forgotten.append(stream.number)

    def wake(self, stream):
        pass


class Dialogue:
    """A connection that runs in a thread, and the socket of its client."""

    def __init__(self, **limits):
        self.dispatcher, self.counters = FakeDispatcher(), Counters()
        limit = Limits(linger_seconds=0.5, **limits)
        self.shared = Shared(
            limit, Order(method="sense"), ("sense", "zero-filled"), self.dispatcher, self.counters, Places(limit)
        )
        self.client, theirs = socket.socketpair()
        self.client.settimeout(GUARD)
        self.connection = Connection(theirs, 7, self.shared)

    def run(self, *messages: bytes, target=None) -> list[wire.Message]:
        """Send messages, and return the answers up to the end of the connection."""
        thread = threading.Thread(target=target or self.connection.run)
        thread.start()
        for message in messages:
            self.client.sendall(message)
        self.client.shutdown(socket.SHUT_WR)
        incoming, found = Incoming(self.client.recv, Limits()), []
        while not found or found[-1].kind != Kind.CLOSE:
            found.append(incoming.message())
        with pytest.raises(EndedError):
            incoming.message()
        self.client.close()
        thread.join(GUARD)
        assert not thread.is_alive()
        return found


@pytest.fixture
def lines(make_head):
    """Two slices of three lines each; the first is complete at its last line, the second at CLOSE."""
    return [
        wire.acquisition_message(
            make_head(line, slice=number, flags=(8,) if (number, line) == (0, 2) else ()), bytes(256)
        )
        for number in (0, 1)
        for line in (0, 1, 2)
    ]


def test_a_whole_stream(make_xml, lines, caplog):
    dialogue = Dialogue()
    with caplog.at_level(logging.INFO, "upmri.server"):
        found = dialogue.run(GO, wire.header_message(make_xml()), *lines, wire.close_message())
    assert [message.kind for message in found] == [Kind.TEXT, Kind.IMAGE, Kind.TEXT, Kind.IMAGE, Kind.TEXT, Kind.CLOSE]
    assert found[0].text == "reconstructing with sense; NOT FOR CLINICAL USE"
    assert [found[at].text for at in (2, 4)] == [f"image {n}: slice {n - 1}, by sense in 0.25 s" for n in (1, 2)]
    assert dialogue.connection.model == "brain"
    assert dialogue.dispatcher.forgotten == [7]
    assert dialogue.counters.get("streams_done_total") == 1
    assert dialogue.counters.get("images_total") == 2
    [record] = caplog.records
    assert record.getMessage() == "stream_end"
    expected = {"stream": 7, "code": "done", "method": "sense", "readouts": 6, "images": 2}
    assert {key: record.facts[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (wire.config_text_message('{"method": "sense", "steps": true}'), "config"),
        (wire.close_message(), "order"),
        (b"\xff\xff", "protocol"),
        (wire.config_text_message("x" * 70000), "limit:text_bytes"),
        (GO + wire.header_message(b"<x/>"), "data"),
        (GO, "cut"),
    ],
)
def test_a_refused_stream(sent, code):
    dialogue = Dialogue()
    error, end = dialogue.run(sent)
    assert error.text.startswith(ERROR)
    assert end.kind == Kind.CLOSE
    assert dialogue.counters.get("streams_refused_total", code) == 1
    assert dialogue.connection.fault.code == code


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_noise_that_is_not_finite_is_left_out_with_a_warning(make_xml, make_head, lines, value):
    good, bad = np.ones(32, np.complex64), np.full(32, value, np.complex64)
    noise = [wire.acquisition_message(make_head(flags=(19,)), one.tobytes()) for one in (good, bad, bad, good)]
    dialogue, kept = Dialogue(), []
    submit = dialogue.dispatcher.submit

    def keep(stream, frame):
        kept.append(b"".join(stream.lines.noise.bodies))
        submit(stream, frame)

    dialogue.dispatcher.submit = keep
    found = dialogue.run(GO, wire.header_message(make_xml()), *noise, *lines, wire.close_message())
    assert kept == [2 * good.tobytes()] * 2
    assert sum("noise readouts that are not finite are left out" in message.text for message in found) == 1
    assert sum(message.kind == Kind.IMAGE for message in found) == 2


def test_faults_of_the_data_are_warnings(make_xml, lines):
    dialogue = Dialogue()
    dialogue.dispatcher.found = {"left_out_coils": [3]}
    found = dialogue.run(GO, wire.header_message(make_xml()), *lines, wire.close_message())
    images = [message for message in found if message.kind == Kind.IMAGE]
    assert len(images) == 2
    texts = [message.text for message in found if "warning" in message.text]
    assert texts == ["warning: slice 0: coil 3 would spoil the image and is left out"]  # once a stream
    dialogue = Dialogue()
    dialogue.dispatcher.found = {"empty_slices": [0]}
    found = dialogue.run(GO, wire.header_message(make_xml()), *lines, wire.close_message())
    assert sum("nothing was sampled, the image is 0" in message.text for message in found) == 2


def test_a_token_is_needed_once(make_xml, lines):
    dialogue = Dialogue()
    dialogue.connection._shared = replace(dialogue.shared, token="secret")
    first, later = (wire.config_text_message(text) for text in ('{"token": "secret"}', '{"complex": true}'))
    found = dialogue.run(first, wire.header_message(make_xml()), later, *lines, wire.close_message())
    assert sum(message.kind == Kind.IMAGE for message in found) == 4
    dialogue = Dialogue()
    dialogue.connection._shared = replace(dialogue.shared, token="secret")
    error, _ = dialogue.run(GO)
    assert error.text == f"{ERROR}token: expected the token of this server"


@pytest.mark.parametrize("frames", [4, 5])
def test_frames_are_kept_for_a_method_over_time(make_xml, make_head, frames):
    """Frames of one place are one job at the end; too many for the memory of a stream are refused."""
    each = 8 * 3 * 16 * 64
    dialogue, jobs = Dialogue(held_bytes=4 * each), []
    dialogue.connection._shared = replace(dialogue.shared, allowed=("tv-t",))
    dialogue.dispatcher.submit = lambda _, work: jobs.append([frame.key[0] for frame in work.frames])
    lines = [
        wire.acquisition_message(make_head(line, repetition=number, flags=(8,) if line else ()), bytes(256))
        for number in range(frames)
        for line in (0, 1)
    ]
    config = wire.config_file_message("tv-t")
    found = dialogue.run(config, wire.header_message(make_xml(lines=64)), *lines, wire.close_message())
    texts = [message.text for message in found]
    assert [text for text in texts if text.startswith("frame")][:2] == [
        "frame received: slice 0", "frame received: repetition 1, slice 0"
    ]  # fmt: skip
    if frames == 4:
        assert jobs == [[0, 1, 2, 3]]
    else:
        assert not jobs
        assert texts[-2] == (
            f"{ERROR}bytes of 5 frames of one place, all coils: {5 * each} is more than this server's limit of "
            f"{4 * each} (held_bytes)"
        )
        assert dialogue.counters.get("streams_refused_total", "limit:held_bytes") == 1


def test_readouts_that_come_after_their_slice_are_counted(make_xml, lines):
    found = Dialogue().run(GO, wire.header_message(make_xml()), *lines[:3], lines[1], wire.close_message())
    [note] = [message.text for message in found if "too late" in message.text]
    assert note.startswith("1 readouts")


def test_a_fault_of_the_program_is_named_by_its_kind_alone(make_xml, lines, caplog):
    dialogue = Dialogue()
    dialogue.dispatcher.error = ZeroDivisionError("Jane Doe")
    with caplog.at_level(logging.INFO, "upmri.server"):
        found = dialogue.run(GO, wire.header_message(make_xml()), *lines, wire.close_message())
    assert found[-2].text == f"{ERROR}the server failed: ZeroDivisionError"
    assert caplog.records[0].facts["kind"] == "ZeroDivisionError"
    assert "Jane" not in caplog.text
    assert dialogue.counters.get("streams_refused_total", "fault") == 1


def test_another_thread_can_end_it():
    dialogue = Dialogue()
    dialogue.connection.fail(RefusedError("stopping", "the server is stopping"))
    dialogue.connection.fail(RefusedError("late", "a second reason does not count"))
    error, _ = dialogue.run(GO)
    assert error.text == f"{ERROR}the server is stopping"
    assert dialogue.counters.get("streams_refused_total", "stopping") == 1


def test_a_client_without_a_place(make_xml):
    dialogue = Dialogue(clients=1)
    dialogue.shared.places.take(SimpleNamespace(number=6, peer=""))
    error, _ = dialogue.run(GO, wire.header_message(make_xml()))
    assert error.text == f"{ERROR}the server is busy with 1 clients; try again later"
    assert dialogue.counters.get("streams_refused_total", "limit:clients") == 1


def test_a_client_that_sends_nothing():
    dialogue = Dialogue(begin_seconds=0.1)
    thread = threading.Thread(target=dialogue.connection.run)
    thread.start()
    incoming = Incoming(dialogue.client.recv, Limits())
    assert "begin_seconds" in incoming.message().text
    dialogue.client.close()
    thread.join(GUARD)
    assert dialogue.counters.get("streams_refused_total", "limit:begin_seconds") == 1
