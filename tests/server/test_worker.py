"""The worker, in a thread of this process: jobs in, images out."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import numpy as np
import pytest

import upmri
from upmri import InputError
from upmri.learning.adaptation import Adapted
from upmri.learning.held_out_bounds import Calibration
from upmri.learning.line_model import LineModel
from upmri.methods.upmri import Upmri
from upmri.server import link
from upmri.server.limits import Limits
from upmri.server.wire import Incoming
from upmri.server.worker import FrameWorker
from upmri.weights.catalogue import find_weights
from upmri.weights.files import update_card

GUARD = 240  # seconds after which a failing test stops to wait
JOB = {
    "stream": 1, "begins": True, "forget": [], "method": "zero-filled", "settings": {}, "seed": 0,
    "parts": [[0, 1]], "skip": 0, "max_bytes": 2**30,
}  # fmt: skip


@pytest.fixture
def ask():
    """``ask(job, buffers)``: the answers of a worker to a job."""
    ours, theirs = socket.socketpair()
    ours.settimeout(GUARD)
    worker = FrameWorker(theirs, "cpu", "zero-filled")
    thread = threading.Thread(target=worker.run)
    thread.start()
    ready, _ = link.receive_message(ours)
    assert (ready["ready"], ready["device"]) == (True, "cpu")

    def call(job, buffers):
        link.send_message(ours, job, buffers)
        found = [link.receive_message(ours)]
        while not found[-1][0]["last"]:
            found.append(link.receive_message(ours))
        return found

    with ours, theirs:
        yield call
        ours.close()
        thread.join(GUARD)
        assert not thread.is_alive()  # it ends with the connection


@pytest.fixture
def frame(small, messages):
    """The XML of the small scan, and the headers and samples of its readouts."""
    parts = iter((*messages(small), b""))
    incoming = Incoming(lambda _: next(parts), Limits())
    xml = incoming.message().body
    lines = [incoming.message() for _ in range(32)]
    return xml, [bytes(line.head) for line in lines], [line.body for line in lines]


def test_a_frame_becomes_an_image(ask, frame, small):
    xml, heads, bodies = frame
    expected = upmri.reconstruct(upmri.load(small), "zero-filled", device="cpu").image[0].numpy()
    for begins in (True, False):  # the second frame uses what the worker knows of the stream
        shared = [[xml], [], []] if begins else []
        [(answer, [pixels])] = ask(JOB | {"begins": begins}, [*shared, [], [], heads, bodies])
        image = np.frombuffer(pixels, np.complex64).reshape(answer["shape"])
        assert np.abs(image - expected).max() <= 1e-6 * np.abs(expected).max()
        assert (answer["index"], answer["volume"], answer["readouts"]) == (0, False, 1)
        assert answer["spacing"] == pytest.approx(upmri.load(small).spacing)


def test_weights_adapted_to_the_first_frame_serve_the_others(ask, frame, monkeypatch):
    xml, heads, bodies = frame
    calls = []

    def adapt(self, problem, report):
        calls.append(len(problem))
        return replace(self, adapt=False, adapt_steps=None), Adapted(self.prior.network, 5, 0.5, 1.0, 5, 1, 0.1)

    monkeypatch.setattr(Upmri, "adapted", adapt)
    job = JOB | {"method": "upmri", "settings": {"adapt": True, "adapt_steps": 5}}
    for number in range(3):
        begins = number == 0
        shared = [[xml], [], []] if begins else []
        settings = job["settings"] | ({} if begins else {"model": "brain"})  # which the server adds
        [(answer, _)] = ask(job | {"begins": begins, "settings": settings}, [*shared, [], [], heads, bodies])
        assert answer["settings"]["adapt"] is True
        assert answer["settings"]["adaptation"]["gain"] == 0.5
    assert calls == [1]
    ask(JOB | {"begins": False, "method": "upmri", "settings": {"model": "brain"}}, [[], [], heads, bodies])
    assert calls == [1]


def test_bounds_are_part_of_the_answer(ask, frame, tmp_path):
    xml, heads, bodies = frame
    fitted = {"coefficients": [0.0, 0.0, 0.0, 1.0, 0.0], "quantiles": {"0.9": 1.0}}
    model = LineModel((-6.0,) + (0.0,) * 6, 1.0, 0.1, 0.3)
    known = Calibration(model, (0.0, 99.0, 40), (0.01, 99.0), (1e-6, 9.0), {"0.9": 1.0}, fitted, fitted)
    weights = update_card(find_weights("brain"), tmp_path / "bounded.safetensors", bounds=known.card())
    job = JOB | {"method": "upmri", "settings": {"model": str(weights), "bounds": True}}
    [(answer, _)] = ask(job, [[xml], [], [], [], [], heads, bodies])
    found = answer["found"]["bounds"]
    assert found["sentence"].startswith("at least " if found["reasons"] == [""] else "no bound")
    assert len(found["psnr"]) == 1


@pytest.mark.filterwarnings("ignore:maps")  # noise has no maps that explain it
def test_images_that_another_worker_made_are_left_out(ask, make_head, make_xml):
    """A volume of four positions of the readout, random lines, two phase encodings."""
    chance = np.random.default_rng(0)
    heads = [make_head(i, 2, 4, kspace_encode_step_2=j) for j in range(8) for i in range(8)]
    bodies = [chance.standard_normal((2, 4, 2)).astype("<f4").tobytes() for _ in heads]
    buffers = [[make_xml(4, 8, 8)], [], [], [], [], heads, bodies]
    whole = ask(JOB, buffers)
    rest = ask(JOB | {"skip": 2}, buffers)
    assert [answer["index"] for answer, _ in whole] == [0, 1, 2, 3]
    assert [answer["index"] for answer, _ in rest] == [2, 3]
    assert [bytes(pixels) for _, [pixels] in rest] == [bytes(pixels) for _, [pixels] in whole[2:]]


def test_an_error_has_its_parts(ask, frame):
    xml, heads, bodies = frame
    wrong = [np.full(len(body) // 8, np.nan, np.complex64).tobytes() for body in bodies]
    [(answer, [])] = ask(JOB, [[xml], [], [], [], [], heads, wrong])
    assert answer["code"] == "data"
    assert set(answer["error"]) == {"message", "field", "path"}
    assert "finite" in str(InputError(**answer["error"]))
    [(answer, _)] = ask(JOB, [[xml], [], [], [], [], heads, bodies])  # the next frame is reconstructed
    assert "error" not in answer


def test_a_fault_of_the_program_is_named_by_its_kind_alone(ask, frame):
    _, heads, bodies = frame
    [(answer, [])] = ask(JOB | {"begins": False}, [[], [], heads, bodies])  # of a stream that never began
    assert answer["code"] == "fault"
    assert answer["error"]["message"] == "the reconstruction failed: KeyError (a fault of the program)"


def test_a_device_that_is_not_available():
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(InputError, match="'abacus'") as error:
        FrameWorker(theirs, "abacus", "zero-filled")
    assert error.value.field == "device"
