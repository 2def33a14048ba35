"""The images of a job, from frames in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import upmri
from upmri.inference.choice import build_method
from upmri.inference.scan_session import Session
from upmri.physics import simulate_series
from upmri.server.held import SIGMA, HeldSource, Known
from upmri.server.making import make_images

FRAMES, HEIGHT, WIDTH, COILS = 6, 32, 24, 4
NOISE = f"""<userParameters><userParameterDouble><name>{SIGMA}</name><value>0.1</value></userParameterDouble>
    </userParameters></ismrmrdHeader>""".encode()


@pytest.fixture(scope="module")
def scan():
    y, x = np.mgrid[-1 : 1 : HEIGHT * 1j, -1 : 1 : WIDTH * 1j]
    beat = [0.5 * (np.hypot(x, y) < 0.8) + 0.5 * (np.hypot(x, y) < 0.3 + 0.03 * t) for t in range(FRAMES)]
    made = simulate_series(np.stack(beat), coils=COILS, acceleration=2)
    return upmri.Scan(kspace=made.kspace, mask=made.mask, noise=None, meta={"axes": {"phase": FRAMES}})


@pytest.fixture
def sources(scan, make_head, make_xml):
    def source(frame):
        lines = scan.mask[frame, 0].nonzero().flatten().tolist()
        heads = b"".join(make_head(line, COILS, HEIGHT, phase=frame) for line in lines)
        bodies = [np.ascontiguousarray(scan.kspace[frame, :, :, line].numpy()).tobytes() for line in lines]
        return HeldSource(known, [(heads, b"".join(bodies))])

    known = Known(make_xml(HEIGHT, WIDTH))
    return [source(frame) for frame in range(FRAMES)]


def session(method, **settings):
    return Session(build_method(method, **settings), torch.device("cpu"), 0)


def test_frames_together_are_the_series_of_a_file(scan, sources):
    made = list(make_images(session("tv-t", steps=5), sources))
    expected = upmri.reconstruct(scan, "tv-t", steps=5, device="cpu").image
    assert [(one.frame, one.index) for one in made] == [(number, 0) for number in range(FRAMES)]
    assert (torch.stack([one.image for one in made]) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert all(one.std is None and one.found == {} for one in made)
    with pytest.warns(UserWarning, match="one was given"):
        alone = upmri.reconstruct(scan[0], "tv-t", steps=5, device="cpu").image[0]
    assert (alone - expected[0]).abs().max() > 1e-2 * expected.abs().max()  # frames do matter


def test_a_frame_alone_is_not_enough_for_a_method_over_time(sources):
    (alone,) = make_images(session("tv-t", steps=2), sources[:1])
    assert alone.found == {
        "one_frame": "tv-t needs several frames of one place, and one was given; upmri is better for one frame"
    }
    (image,) = make_images(session("zero-filled"), sources[:1])
    assert image.found == {}


def test_images_that_were_made_are_left_out(sources):
    whole = list(make_images(session("tv-t", steps=2), sources))
    rest = list(make_images(session("tv-t", steps=2), sources, skip=4))
    assert [one.frame for one in rest] == [4, 5]
    assert all(torch.equal(one.image, other.image) for one, other in zip(rest, whole[4:], strict=True))
    assert not list(make_images(session("tv-t", steps=2), sources, skip=FRAMES))


def test_a_frame_without_samples_is_named(sources, make_head, make_xml):
    empty = HeldSource(Known(make_xml(HEIGHT, WIDTH)), [(make_head(5, COILS, HEIGHT), bytes(8 * COILS * HEIGHT))])
    made = list(make_images(session("tv-t", steps=2), [*sources[:2], empty]))
    assert [bool(one.found) for one in made] == [False, False, True]
    assert made[2].image.abs().max() == 0


@pytest.mark.filterwarnings("ignore:maps")  # noise has no maps that explain it
def test_positions_of_volumes_are_series_of_their_own(make_head, make_xml):
    chance, known = np.random.default_rng(0), Known(make_xml(4, 8, 8).replace(b"</ismrmrdHeader>", NOISE))

    def source(repetition):
        heads = [make_head(i, 2, 4, kspace_encode_step_2=j, repetition=repetition) for j in range(8) for i in range(8)]
        bodies = [chance.standard_normal((2, 4, 2)).astype("<f4").tobytes() for _ in heads]
        return HeldSource(known, [(b"".join(heads), b"".join(bodies))])

    frames = [source(repetition) for repetition in range(3)]
    made = list(make_images(session("tv-t", steps=2), frames))
    assert [(one.index, one.frame) for one in made] == [(index, frame) for index in range(4) for frame in range(3)]
    rest = list(make_images(session("tv-t", steps=2), frames, skip=7))
    assert [(one.index, one.frame) for one in rest] == [(one.index, one.frame) for one in made[7:]]
    flat = HeldSource(known, [(make_head(0, 2, 4), bytes(8 * 2 * 4))])
    with pytest.raises(upmri.InputError, match="frames of one shape"):
        list(make_images(session("tv-t"), [frames[0], flat]))


def test_slices_one_by_one(scan, sources):
    [made] = make_images(session("sense"), sources[:1])
    expected = upmri.reconstruct(upmri.Scan(kspace=scan.kspace[:1], mask=scan.mask[:1]), "sense", device="cpu").image[0]
    assert (made.image - expected).abs().max() <= 1e-5 * expected.abs().max()
