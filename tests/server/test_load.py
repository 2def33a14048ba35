"""Many clients and many streams, each of which checks its own images."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import upmri
from upmri.server import client

CONFIG = {"method": "sense", "complex": True}


def scan_of(shepp_logan, number: int):
    """Scans that differ: 4 to 8 coils, 32 or 48 lines, one to three repetitions."""
    sizes = ("-m", str(32 + 16 * (number % 2)), "-c", str(4 + number % 5), "-r", str(1 + number % 3), "-n", "0.02")
    return shepp_logan(*sizes)


@pytest.mark.soak
def test_twenty_clients_at_once(server, shepp_logan):
    paths = [scan_of(shepp_logan, number) for number in range(20)]
    expected = {path: upmri.reconstruct(upmri.load(path), "sense", device="cpu").image for path in set(paths)}
    results, ready = {}, threading.Barrier(20)

    def run(number: int) -> None:
        ready.wait()
        results[number] = [client.stream(paths[number], server.to, CONFIG, max_bytes=2**30) for _ in range(3)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    for number, several in results.items():
        image = expected[paths[number]]
        for rec in several:
            assert rec.image.shape == image.shape
            assert (rec.image - image).abs().max() <= 1e-6 * image.abs().max()


@pytest.mark.soak
def test_five_hundred_streams_in_a_row(start, shepp_logan):
    server = start()
    paths = [scan_of(shepp_logan, number) for number in range(30)]
    expected = {path: upmri.reconstruct(upmri.load(path), "sense", device="cpu").image for path in set(paths)}
    warm, count, memory = 100, 500, []
    for number in range(warm + count):
        path = paths[number % len(paths)]
        rec = client.stream(path, server.to, CONFIG, max_bytes=2**30)
        assert (rec.image - expected[path]).abs().max() <= 1e-6 * expected[path].abs().max()
        if number >= warm and number % 10 == 0:
            memory.append((number, server.memory(), server.memory(server.worker_pid)))
    at, *several = np.array(memory).T
    slopes = [100 * np.polyfit(at, one, 1)[0] for one in several]
    sys.stdout.write(f"MiB per 100 streams, of the server and of its worker: {slopes}; at the end {memory[-1]}\n")
    assert max(slopes) < 1
    assert server.metric("streams_done_total") >= warm + count - 1
    assert server.metric("worker_starts_total") == 1
