"""Arrays through shared memory: any sizes, and no description that is not one."""

import mmap
import os

import numpy as np
import pytest

from upmri.formats.child import shared_arrays
from upmri.formats.child.shared_arrays import (
    GivenArrays,
    TakenArrays,
    check_specs,
    describe_arrays,
    make_room,
    map_room,
)


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("half", [1, 7, 64, 2**12])
def test_arrays_come_as_they_went(monkeypatch, half, before):
    monkeypatch.setattr(shared_arrays, "HALF", half)
    rng = np.random.default_rng(0)
    arrays = {
        "kspace": rng.standard_normal((3, 4)).astype(np.complex64),
        "none": np.zeros((0, 5)),
        "mask": rng.random((5, 3)) > 0.5,
        "turned": np.asfortranarray(rng.standard_normal((2, 3, 4)).astype(">f4")).swapaxes(0, 2),
        "one": np.array(3, np.int16),
    }
    room = mmap.mmap(-1, 2 * half)
    outgoing = GivenArrays(arrays, room, before)
    incoming = TakenArrays(check_specs(describe_arrays(arrays), 10**6), room, before)
    assert outgoing.pieces == incoming.pieces == -(-sum(array.nbytes for array in arrays.values()) // half)
    for piece in range(outgoing.pieces):
        outgoing.fill(piece)
        incoming.take(piece)
    for name, array in arrays.items():
        assert incoming.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(incoming.arrays[name], array)


@pytest.mark.parametrize(
    "said",
    [
        None,
        {"kspace": 1},
        [["kspace", "<c8"]],
        [["kspace", "O", [1]]],
        [["kspace", "|O8", [1]]],
        [["kspace", "<f3", [1]]],
        [["kspace", "<c8,<c8", [1]]],
        [["kspace", 8, [1]]],
        [[3, "<c8", [1]]],
        [["kspace", "<c8", 4]],
        [["kspace", "<c8", [-1]]],
        [["kspace", "<c8", [1.5]]],
        [["kspace", "<c8", [True]]],
        [["kspace", "<c8", [2**60]]],
        [["kspace", "<c8", [2**40, 2**40, 0]], ["mask", "|b1", [1001]]],
        [["kspace", "<c8", [126]]],
        [["kspace", "<c8", [1]], ["kspace", "<c8", [2]]],
        [["kspace", "<c8", [1] * 9]],
        [[str(n), "|u1", [1]] for n in range(9)],
    ],
)
def test_a_description_that_is_none_or_too_large(said):
    with pytest.raises(ValueError, match="."):
        check_specs(said, 1000)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="seals are Linux's")
def test_nobody_changes_the_size_of_the_room():
    room = make_room()
    for size in (0, 4 * shared_arrays.HALF):
        with pytest.raises(PermissionError):
            os.ftruncate(room, size)
    mapped = map_room(room, writable=False)
    with pytest.raises(TypeError):
        mapped[0] = 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(room)
