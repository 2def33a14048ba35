"""Dynamic scans by a method over time, with real processes: images, two places, and parts that fail."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import upmri
from upmri.physics import simulate_series
from upmri.server import client, wire
from upmri.server.wire import Kind

FRAMES, HEIGHT, WIDTH, COILS = 6, 32, 24, 4
METHOD = {"method": "tv-t", "steps": 5}
GO = wire.config_text_message('{"method": "tv-t", "steps": 5}')
PATIENCE = 240  # seconds after which a failing test stops to wait


def beats(shift: float) -> np.ndarray:
    y, x = np.mgrid[-1 : 1 : HEIGHT * 1j, -1 : 1 : WIDTH * 1j]
    body = 0.5 * (np.hypot(x, y) < 0.8)
    return np.stack([body + 0.5 * (np.hypot(x - shift, y) < 0.3 + 0.03 * t) for t in range(FRAMES)])


def scan_of(places: int, axis: str) -> upmri.Scan:
    """Frames of some places, the places fastest."""
    parts = [simulate_series(beats(0.1 * i), coils=COILS, acceleration=2, seed=i) for i in range(places)]
    kspace, mask = (torch.stack([getattr(one, name) for one in parts], 1).flatten(0, 1) for name in ("kspace", "mask"))
    axes = {axis: FRAMES} | ({"slice": places} if places > 1 else {})
    return upmri.Scan(kspace=kspace, mask=mask, noise=0.01, meta={"axes": axes})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("series") / "beat.h5"
    scan_of(1, "phase").save(file)
    return file


@pytest.fixture
def stopped(server):
    """The worker's number; the worker is held until the end of the test, if it still is there."""
    pid = server.worker_pid
    os.kill(pid, signal.SIGSTOP)
    yield pid
    if Path(f"/proc/{pid}").exists():
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(("places", "axis", "counter"), [(1, "phase", "phase"), (2, "frame", "repetition")])
def test_the_images_are_those_of_the_series(server, tmp_path, places, axis, counter):
    scan_of(places, axis).save(tmp_path / "beat.h5")
    texts = []
    config = METHOD | {"complex": True}
    rec = client.stream(
        tmp_path / "beat.h5", server.to, config, max_bytes=2**30, seconds=PATIENCE, on_text=texts.append
    )
    expected = upmri.reconstruct(upmri.load(tmp_path / "beat.h5"), "tv-t", steps=5, device="cpu")
    assert rec.image.shape == expected.image.shape
    assert (rec.image - expected.image).abs().max() <= 1e-5 * expected.image.abs().max()
    assert rec.meta["axes"] == {counter: FRAMES} | ({"slice": places} if places > 1 else {})
    assert rec.settings["maps_from"] == expected.settings["maps_from"] == "average over time"
    assert texts[1] == "frame received: slice 0"
    done = [text.split(", by")[0] for text in texts if text.startswith("image")]
    assert done[1] == f"image 2: {counter} 1, slice 0"  # in the order of frames, place after place
    assert done[-1] == f"image {places * FRAMES}: {counter} {FRAMES - 1}, slice {places - 1}"


def test_the_worker_is_killed_while_frames_are_kept(server, peer, path, messages):
    """No stream fails: the job of the place has everything that the next worker needs."""
    several = messages(path)
    stream = peer(server.to).send(GO, *several[:-1])
    for number in range(FRAMES - 1):
        while not stream.next().text.startswith("frame received"):
            assert number < FRAMES
    starts = sum(event["event"] == "worker_ready" for event in server.events())
    os.kill(server.worker_pid, signal.SIGKILL)
    server.event("worker_ready", count=starts + 1)
    found = stream.send(several[-1], wire.close_message()).rest()
    images = [message for message in found if message.kind == Kind.IMAGE]
    assert [image.head.phase for image in images] == list(range(FRAMES))
    assert not [message.text for message in found if message.text.startswith("ERROR")]


def test_the_worker_is_killed_at_a_place(server, peer, path, messages, stopped, check_other):
    stream = peer(server.to).send(GO, *messages(path), wire.close_message())
    until = time.monotonic() + PATIENCE
    while not server.metric("frames_working") and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(stopped, signal.SIGKILL)
    [error] = stream.errors()
    assert "the worker died at this slice and is replaced; send the scan again" in error
    check_other(server)


def test_a_client_that_is_gone_does_not_keep_the_worker(server, peer, path, messages, stopped, check_other):
    lost = sum(event["event"] == "worker_lost" for event in server.events())
    stream = peer(server.to).send(GO, *messages(path), wire.close_message())
    until = time.monotonic() + PATIENCE
    while not server.metric("frames_working") and time.monotonic() < until:
        time.sleep(0.01)
    stream.socket.close()
    check_other(server)
    assert not Path(f"/proc/{stopped}").exists()
    assert server.event("worker_lost", lost + 1)["cancelled"] == 1


def test_a_client_that_is_gone_while_frames_are_kept(server, peer, path, messages, check_other):
    before = sum(event["event"] == "stream_begin" for event in server.events())
    peer(server.to).send(GO, *messages(path)[:-1]).socket.close()
    number = server.event("stream_begin", before + 1)["stream"]
    assert server.event("stream_end", stream=number)["code"] in ("cut", "gone")
    check_other(server)
    assert server.metric("frames_working") == 0
