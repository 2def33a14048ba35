"""Slices in batches, read ahead."""

import threading
import time
from dataclasses import replace

import pytest
import torch

import upmri
from upmri.inference import batches
from upmri.inference.batches import batched, read_ahead, slices_at_once
from upmri.inference.reconstruct import reconstruct_slices

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(torch.rand(7, 24, 24, generator=torch.Generator().manual_seed(0)), coils=4, acceleration=2)


@pytest.fixture
def by_three(monkeypatch):
    """Three slices at once, as on an accelerator."""
    monkeypatch.setattr(batches, "slices_at_once", lambda *_: 3)


def test_a_cpu_takes_one_slice_at_a_time(scan):
    assert slices_at_once(CPU, scan) == 1
    assert [len(batch) for batch in batched((scan[i] for i in range(7)), CPU)] == [1] * 7


@pytest.mark.parametrize("free", [1 << 20, 1 << 30, 1 << 40])
def test_an_accelerator_takes_what_half_of_its_free_memory_holds(scan, monkeypatch, free):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, free))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    count = slices_at_once(torch.device("cuda"), scan)
    assert 1 <= count <= 32
    assert count == 1 or 2 * 40 * scan.kspace[0].nbytes * count <= free


@pytest.mark.usefixtures("by_three")
def test_batches_keep_the_order_and_all_slices(scan):
    found = list(batched((scan[i] for i in range(7)), CPU))
    assert [len(batch) for batch in found] == [3, 3, 1]
    assert torch.equal(torch.cat([one.kspace for batch in found for one, _ in batch]), scan.kspace)


@pytest.mark.usefixtures("by_three")
def test_slices_of_another_kind_begin_a_batch(scan):
    bare = replace(scan, maps=None)
    other = upmri.simulate(torch.rand(2, 24, 32), coils=4, acceleration=2)
    stream = [scan[0], bare[1], bare[2], bare[3], other[0], other[1], scan[4]]
    assert [len(batch) for batch in batched(stream, CPU)] == [1, 3, 2, 1]
    assert [len(batch) for batch in batched(stream, CPU, alone=True)] == [1] * 7


@pytest.mark.usefixtures("by_three")
@pytest.mark.parametrize("method", ["zero-filled", "sense", "cg-sense", "grappa", "l1-wavelet", "upmri"])
@pytest.mark.parametrize("maps", [True, False])
def test_a_slice_in_a_batch_is_the_slice_alone(scan, method, maps):
    scan = scan[:4]  # a batch of three, and one of what is left
    scan = scan if maps else replace(scan, maps=None, noise=None)
    few = {"upmri": {"model": "brain", "precision": "fp32"}, "l1-wavelet": {"steps": 20}}
    settings = few.get(method, {})
    stream = (scan[i] for i in range(4))
    together = reconstruct_slices(stream, 4, method, seed=0, device="cpu", progress=False, **settings)
    alone = torch.cat([upmri.reconstruct(scan[i], method, device="cpu", **settings).image for i in range(4)])
    assert (together.image - alone).norm() < 1e-4 * alone.norm()
    assert torch.equal(together.reference, scan.reference)


@pytest.mark.usefixtures("by_three")
def test_a_batch_that_is_too_large_for_memory_is_halved(scan, monkeypatch):
    from upmri.methods.sense import Sense

    sizes = []
    reconstruct = Sense.reconstruct

    def scarce(self, problem):
        sizes.append(len(problem))
        if len(problem) > 1:
            raise torch.OutOfMemoryError
        return reconstruct(self, problem)

    monkeypatch.setattr(Sense, "reconstruct", scarce)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    rec = reconstruct_slices((scan[i] for i in range(3)), 3, "sense", seed=0, device="cpu", progress=False)
    assert len(rec) == 3
    assert sizes == [3, 1, 2, 1, 1]


def test_items_are_read_before_they_are_asked_for():
    taken = []

    def items():
        for i in range(5):
            taken.append(i)
            yield i

    ahead = read_ahead(items(), str, 2)
    assert next(ahead) == "0"
    until = time.monotonic() + 60
    while len(taken) < 4 and time.monotonic() < until:  # one in hand, two in the queue, one waits for its place
        time.sleep(0.01)
    assert taken == [0, 1, 2, 3]
    assert list(ahead) == ["1", "2", "3", "4"]


def test_an_exception_comes_where_its_item_would():
    def items():
        yield 1
        raise ValueError("damaged")

    ahead = read_ahead(items(), str, 4)
    assert next(ahead) == "1"
    with pytest.raises(ValueError, match="damaged"):
        next(ahead)


def test_an_exception_in_the_work_comes_where_its_result_would():
    ahead = read_ahead([1, 0, 2], lambda number: 1 / number, 4)
    assert next(ahead) == 1
    with pytest.raises(ZeroDivisionError):
        next(ahead)


def test_the_thread_ends_with_the_iterator():
    def endless():
        while True:
            yield 0

    ahead = read_ahead(endless(), str, 1)
    next(ahead)
    ahead.close()
    assert not any(thread.name.startswith("upmri-re") for thread in threading.enumerate())
