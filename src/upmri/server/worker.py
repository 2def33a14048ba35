"""The process that owns the model and the device: frames come in over a link, images go back, one frame at a time.

    python -m upmri.server.worker FD DEVICE METHOD

A job says all that is needed for its frame, so that another worker can take over where one died; what is kept here of a
stream (noise, maps) is only kept ready, and comes again where it is not.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.server import link

_MOST_LIKELY = "500"  # to be ended first when memory runs out, before the server itself
_LEAST = 32  # matrix of the scan that warms up


class Worker:
    """Turns frames into images on one device."""

    def __init__(self, sock: socket.socket, device: str, method: str) -> None:
        from upmri.methods import pick_device

        self._sock, self._device = sock, pick_device(device)
        self._streams: dict[int, Any] = {}
        self._warm_up(method)

    def _warm_up(self, method: str) -> None:
        """Load weights and libraries before the first scan waits for them."""
        from upmri import methods, weights
        from upmri.physics.phantom import image
        from upmri.physics.simulate import simulate

        for name in methods.at_hand(method):
            weights.load(name, self._device)
        scan = simulate(image((_LEAST, _LEAST)).abs(), coils=4, acceleration=2)
        with suppress(InputError):  # weights may be for other scans than this one
            methods.reconstruct(scan, method, device=str(self._device))

    def run(self) -> None:
        """Work until the server hangs up."""
        link.send(self._sock, {"ready": True, "device": str(self._device), "pid": os.getpid()})
        with suppress(EOFError, ConnectionError):
            while True:
                self._work(*link.receive(self._sock))

    def _work(self, job: dict[str, Any], buffers: list[memoryview]) -> None:
        for gone in job["forget"]:
            self._streams.pop(gone, None)
        try:
            self._reconstruct(job, buffers)
        except InputError as error:
            link.send(self._sock, {"error": str(error), "code": "data", "last": True})
        except ConnectionError:
            raise
        except (MemoryError, RuntimeError) as error:
            full = isinstance(error, MemoryError) or "out of memory" in str(error)
            why = "memory ran out" if full else type(error).__name__
            self._streams.clear()
            link.send(self._sock, {"error": f"the reconstruction failed: {why}", "code": "failed", "last": True})
        except Exception as error:
            why = f"the reconstruction failed: {type(error).__name__} (a fault of the program)"
            link.send(self._sock, {"error": why, "code": "fault", "last": True})

    def _reconstruct(self, job: dict[str, Any], buffers: list[memoryview]) -> None:
        import torch

        from upmri.methods import build
        from upmri.methods.base import apply
        from upmri.server.held import HeldSource, Known

        if job["begins"]:
            self._streams[job["stream"]] = Known(bytes(buffers[0]), (buffers[1], buffers[2]))
            buffers = buffers[3:]
        source = HeldSource(
            self._streams[job["stream"]], [(buffers[0], buffers[1]), (buffers[2], buffers[3])], job["max_bytes"]
        )
        method = build(job["method"], **job["settings"])
        fitted = job["fitted"]
        for index, scan in enumerate(source.each()):
            start = time.perf_counter()
            method, made = apply(method, scan, self._device, job["seed"], settle=not fitted)
            fitted, image = True, made.image[0]
            std = None if made.std is None else made.std[0].float()
            told = {
                "index": index,
                "settings": method.settings,
                "place": scan.meta.get("geometry"),
                "spacing": scan.spacing,
                "volume": source.volume,
                "readouts": source.slices,
                "shape": list(image.shape),
                "seconds": time.perf_counter() - start,
                "last": index == source.slices - 1,
            }
            arrays = [image.to(torch.complex64)] + ([] if std is None else [std])
            link.send(self._sock, told, [[array.contiguous().numpy().tobytes()] for array in arrays])


def main() -> None:
    """Run as the server starts it."""
    # Who stops the server stops it in good order, and it the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_MOST_LIKELY)
    from upmri.core import memory

    memory.keep_freed()
    descriptor, device, method = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as sock:
        try:
            worker = Worker(sock, device, method)
        except InputError as error:
            link.send(sock, {"ready": False, "error": str(error)})
            return
        worker.run()


if __name__ == "__main__":
    main()
