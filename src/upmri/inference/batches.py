"""Slices of a scan in batches: read ahead of the work, and as many at once as a device holds."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from typing import TypeVar

import torch

from upmri.core.scan import Scan

T = TypeVar("T")

# Most slices at once on an accelerator; more bring nothing.
_MOST = 32
# Memory of a slice on an accelerator, relative to its k-space: maps, k-space, transforms, factors and network.
_TIMES = 40


def slices_at_once(device: torch.device, scan: Scan) -> int:
    """Return how many slices like the first of a scan are reconstructed together.

    A CPU is busy with one. An accelerator takes as many as half of its free memory holds.
    """
    if device.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(1, min(_MOST, free // 2 // (_TIMES * scan.kspace[0].nbytes)))


def batched(scans: Iterable[Scan], device: torch.device, *, alone: bool = False) -> Generator[list[Scan]]:
    """Yield lists of scans of one slice that can be reconstructed together: of the same shape, in order.

    Parameters
    ----------
    scans
        Scans of one slice, read ahead of the work.
    device
        Device of the reconstruction.
    alone
        Whether every slice is a batch of its own.
    """
    batch: list[Scan] = []
    most = 1
    with closing(read_ahead(scans, 1 if alone or device.type != "cuda" else _MOST)) as ready:
        for scan in ready:
            if batch and kind(scan) != kind(batch[0]):
                yield batch
                batch = []
            if not batch:
                most = 1 if alone else slices_at_once(device, scan)
            batch.append(scan)
            if len(batch) == most:
                yield batch
                batch = []
    if batch:
        yield batch


def kind(scan: Scan) -> tuple[object, ...]:
    """What scans in a batch have in common: their shapes, and whether they have maps and a reference."""
    return tuple(scan.kspace.shape[1:]), tuple(scan.mask.shape[1:]), scan.maps is None, scan.reference is None


def read_ahead(items: Iterable[T], count: int) -> Generator[T]:
    """Yield the items, of which up to ``count`` are taken in a thread of its own before they are asked for.

    An exception in the thread is raised where its item would come. The thread ends with the iterator.
    """
    waiting: queue.Queue[tuple[T | None, BaseException | None, bool]] = queue.Queue(maxsize=count)
    ended = threading.Event()

    def put(entry: tuple[T | None, BaseException | None, bool]) -> None:
        while not ended.is_set():
            with suppress(queue.Full):
                waiting.put(entry, timeout=0.1)
                return

    def take() -> None:
        try:
            for item in items:
                put((item, None, False))
                if ended.is_set():
                    return
            put((None, None, True))
        except BaseException as error:  # raised again by the other thread
            put((None, error, False))

    thread = threading.Thread(target=take, name="upmri-reader", daemon=True)
    thread.start()
    try:
        while True:
            item, error, last = waiting.get()
            if error is not None:
                raise error
            if last:
                return
            yield item  # type: ignore[misc]  # only the end has none
    finally:
        ended.set()
        thread.join()
