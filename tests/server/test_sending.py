"""A scan as messages: their samples are the k-space of the scan."""

from __future__ import annotations

import ismrmrd
import numpy as np
import pytest
import torch

from upmri import InputError, Scan, formats
from upmri.server import sending
from upmri.server.limits import Limits
from upmri.server.wire import Incoming, Kind, Message

LAST_IN_SLICE, LAST_IN_REPETITION = 1 << 7, 1 << 13


def read(path, slices=None) -> list[Message]:
    """The messages of a file."""
    with formats.open_source(path) as source:
        parts = iter((*sending.messages(source, slices), b""))
        incoming, found = Incoming(lambda _: next(parts), Limits()), []
        while True:
            try:
                found.append(incoming.message())
            except EOFError as error:
                assert error.whole
                return found


@pytest.fixture
def kspace():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 2, 8, 6, dtype=torch.complex64, generator=generator)


def test_each_line_of_a_mask_is_a_readout(tmp_path, kspace):
    mask = torch.tensor([True, True, False, True, False, True])
    Scan(kspace=kspace * mask, mask=mask, noise=0.25, spacing=(2.0, 1.0, 3.0)).save(tmp_path / "x.h5")
    header, *lines = read(tmp_path / "x.h5", "1:")
    assert header.kind == Kind.HEADER
    assert b"<matrixSize><x>8</x><y>6</y><z>1</z></matrixSize>" in header.body
    assert b"<name>upmri_sigma</name><value>0.25</value>" in header.body
    assert b"<x>16.0</x><y>6.0</y><z>3.0</z>" in header.body
    counters = [(line.head.idx.slice, line.head.idx.kspace_encode_step_1) for line in lines]
    assert counters == [(number, column) for number in (0, 1) for column in (0, 1, 3, 5)]
    for line, (number, column) in zip(lines, counters, strict=True):
        samples = np.frombuffer(line.body, "<c8").reshape(2, 8)
        assert np.array_equal(samples, kspace[1 + number, :, :, column].numpy())
        assert line.head.flags == (LAST_IN_SLICE if column == 5 else 0)


def test_each_point_of_a_two_dimensional_mask_is_a_readout(tmp_path, kspace):
    mask = torch.rand(8, 6, generator=torch.Generator().manual_seed(1)) < 0.5
    Scan(kspace=kspace[:1] * mask, mask=mask).save(tmp_path / "x.h5")
    header, *points = read(tmp_path / "x.h5")
    assert b"<matrixSize><x>1</x><y>8</y><z>6</z></matrixSize>" in header.body
    made = torch.zeros(2, 8, 6, dtype=torch.complex64)
    for point in points:
        at = point.head.idx
        made[:, at.kspace_encode_step_1, at.kspace_encode_step_2] = torch.tensor(np.frombuffer(point.body, "<c8"))
    assert torch.equal(made, kspace[0] * mask)
    assert [point.head.flags for point in points] == [0] * (len(points) - 1) + [LAST_IN_REPETITION]


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"phase": 3}, {"phase": [0, 1, 2], "slice": [0, 0, 0]}),
        ({"frame": 3}, {"repetition": [0, 1, 2], "phase": [0, 0, 0], "slice": [0, 0, 0]}),
        ({"phase": 3, "time": 1, "slice": 1}, {"repetition": [0, 1, 2], "slice": [0, 0, 0]}),
        ({"slice": 3}, {"repetition": [0, 0, 0], "slice": [0, 1, 2]}),
        (None, {"repetition": [0, 0, 0], "slice": [0, 1, 2]}),
    ],
)
def test_frames_of_a_place_are_counted(tmp_path, kspace, axes, expected):
    Scan(kspace=kspace, meta={"axes": axes} if axes else {}).save(tmp_path / "x.h5")
    lines = read(tmp_path / "x.h5")[1:]
    assert {name: [getattr(line.head.idx, name) for line in lines[::6]] for name in expected} == expected


def test_frames_keep_their_numbers_where_some_are_sent(tmp_path, kspace):
    Scan(kspace=kspace, meta={"axes": {"phase": 3}}).save(tmp_path / "x.h5")
    last = read(tmp_path / "x.h5", "1:")[-1].head.idx
    assert (last.phase, last.slice) == (2, 0)


@pytest.mark.parametrize("empty", [0, 1])
@pytest.mark.parametrize("points", [False, True])
def test_the_centre_of_a_slice_without_samples_is_sent(tmp_path, kspace, empty, points):
    mask = torch.rand(8, 6, generator=torch.Generator().manual_seed(1)) < 0.5
    kspace = kspace * (mask if points else mask[:1])
    kspace[empty] = 0
    np.save(tmp_path / "x.npy", kspace.numpy())
    header, *readouts = read(tmp_path / "x.npy")
    size = "<x>1</x><y>8</y><z>6</z>" if points else "<x>8</x><y>6</y><z>1</z>"
    assert f"<matrixSize>{size}</matrixSize>".encode() in header.body
    assert {one.head.idx.slice for one in readouts} == {0, 1, 2}
    (centre,) = [one for one in readouts if one.head.idx.slice == empty]
    at = (centre.head.idx.kspace_encode_step_1, centre.head.idx.kspace_encode_step_2)
    assert at == ((4, 3) if points else (3, 0))
    assert centre.head.flags == (LAST_IN_REPETITION if points else LAST_IN_SLICE)
    assert not np.frombuffer(centre.body, "<c8").any()


def test_scans_that_cannot_be_sent(tmp_path, kspace):
    np.save(tmp_path / "empty.npy", torch.zeros_like(kspace).numpy())
    kspace[1, :, ::2, 1::2] = 0
    np.save(tmp_path / "both.npy", kspace.numpy())
    for name, expected in (("empty.npy", "nothing was sampled"), ("both.npy", "slice 1 has a 2-D mask")):
        with pytest.raises(InputError, match=expected) as error:
            read(tmp_path / name)
        assert (error.value.field, error.value.path) == ("mask", str(tmp_path / name))


def test_the_readouts_of_an_ismrmrd_file_are_sent_as_they_are(small):
    header, *lines = read(small)
    assert b"</ismrmrdHeader>" in header.body
    with ismrmrd.File(small, mode="r") as file:
        acquisitions = list(file["dataset"].acquisitions)
    assert len(lines) == len(acquisitions) == 32
    for line, expected in zip(lines, acquisitions, strict=True):
        assert np.array_equal(np.frombuffer(line.body, "<c8").reshape(4, -1), expected.data)
        assert line.head.idx.kspace_encode_step_1 == expected.idx.kspace_encode_step_1
        assert (line.head.flags, list(line.head.position)) == (expected.flags, list(expected.position))


def test_slices_of_an_ismrmrd_file_cannot_be_chosen(small):
    with formats.open_source(small) as source, pytest.raises(InputError) as error:
        sending.messages(source, "0")
    assert (error.value.field, error.value.path) == ("--slices", str(small))


def test_parts_that_are_not_sent(tmp_path, kspace, small):
    Scan(kspace=kspace, mask=torch.ones(6, dtype=torch.bool), maps=kspace).save(tmp_path / "x.h5")
    with formats.open_source(tmp_path / "x.h5") as source:
        assert sending.not_sent(source) == ["maps"]
    with formats.open_source(small) as source:
        assert sending.not_sent(source) == []


def test_more_than_mrd_can_count(tmp_path):
    Scan(kspace=torch.ones(1, 1, 2, 2**16, dtype=torch.complex64)).save(tmp_path / "x.h5")
    with formats.open_source(tmp_path / "x.h5") as source, pytest.raises(InputError) as error:
        next(sending.messages(source, None))
    assert error.value.path == str(tmp_path / "x.h5")
