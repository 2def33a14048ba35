"""Slices of a scan in batches: read and repaired ahead of the work, and as many at once as a device holds."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TypeVar

import torch

from upmri.core.parallel import cores
from upmri.core.scan import Scan
from upmri.physics.quality import Notes, repair

T = TypeVar("T")
R = TypeVar("R")
Repaired = tuple[Scan, Notes]
"""A scan without faulty coils, and what was wrong with it."""

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


def batched(scans: Iterable[Scan], device: torch.device, *, alone: bool = False) -> Generator[list[Repaired]]:
    """Yield lists of scans of one slice that can be reconstructed together: of the same shape, in order.

    Parameters
    ----------
    scans
        Scans of one slice, read and repaired ahead of the work of an accelerator.
    device
        Device of the reconstruction.
    alone
        Whether every slice is a batch of its own.
    """
    batch: list[Repaired] = []
    most = 1
    # On a CPU the threads of a second thread would compete with those of the reconstruction; a child reads ahead there.
    on_cpu = device.type == "cpu"
    with closing(
        (repair(scan) for scan in scans) if on_cpu else read_ahead(scans, repair, 1 if alone else _MOST)
    ) as ready:
        for scan, notes in ready:
            if batch and kind(scan) != kind(batch[0][0]):
                yield batch
                batch = []
            if not batch:
                most = 1 if alone else slices_at_once(device, scan)
            batch.append((scan, notes))
            if len(batch) == most:
                yield batch
                batch = []
    if batch:
        yield batch


def kind(scan: Scan) -> tuple[object, ...]:
    """What scans in a batch have in common: their shapes, and whether they have maps and a reference."""
    return tuple(scan.kspace.shape[1:]), tuple(scan.mask.shape[1:]), scan.maps is None, scan.reference is None


def read_ahead(items: Iterable[T], work: Callable[[T], R], count: int) -> Generator[R]:
    """Yield the work for each item; up to ``count`` items are taken and worked on before they are asked for.

    A thread takes the items, others do the work. An exception is raised where its result would come. The threads end
    with the iterator.
    """
    waiting: queue.Queue[Future[R] | None] = queue.Queue(maxsize=count)
    ended = threading.Event()

    def put(entry: Future[R] | None) -> None:
        while not ended.is_set():
            with suppress(queue.Full):
                waiting.put(entry, timeout=0.1)
                return

    def take() -> None:
        try:
            for item in items:
                put(pool.submit(work, item))
                if ended.is_set():
                    return
            put(None)
        except BaseException as error:  # raised again by the other thread
            failed: Future[R] = Future()
            failed.set_exception(error)
            put(failed)

    with ThreadPoolExecutor(min(count, cores()), "upmri-repair") as pool:
        thread = threading.Thread(target=take, name="upmri-reader", daemon=True)
        thread.start()
        try:
            while (result := waiting.get()) is not None:
                yield result.result()
        finally:
            ended.set()
            thread.join()
