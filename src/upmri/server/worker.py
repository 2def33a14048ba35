"""The process that owns the weights and the device: it receives frames over a socket and sends images back, one by one.

    python -m upmri.server.worker FD DEVICE METHOD NICE

A job has everything that its frame needs, or its frames of one place together, so that another worker can continue
when one dies. What the worker keeps of a stream (noise, maps) is a cache; the server sends it again to a new worker.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.server import link

_OOM_SCORE = "500"  # when memory runs out, the system kills the worker before the server
_MATRIX = 32  # of the scan that is reconstructed first, to load everything


class FrameWorker:
    """Reconstructs frames on one device.

    Parameters
    ----------
    sock
        Connection to the server.
    device
        Device, such as ``"auto"`` or ``"cuda:1"``.
    method
        Method whose weights are loaded at once.
    """

    def __init__(self, sock: socket.socket, device: str, method: str) -> None:
        from upmri.core.device import pick_device

        self._sock, self._device = sock, pick_device(device)
        self._streams: dict[int, Any] = {}
        self._warm_up(method)

    def _warm_up(self, method: str) -> None:
        """Load weights and libraries before the first scan comes."""
        from upmri.inference.reconstruct import reconstruct
        from upmri.physics.phantom import image
        from upmri.physics.simulate import simulate
        from upmri.weights.files import load_available

        load_available(method, self._device)
        scan = simulate(image((_MATRIX, _MATRIX)).abs(), coils=4, acceleration=2)
        with suppress(InputError):  # weights may be for other scans than this one
            reconstruct(scan, method, device=str(self._device))

    def run(self) -> None:
        """Work until the server closes the connection."""
        link.send_message(self._sock, {"ready": True, "device": str(self._device), "pid": os.getpid()})
        with suppress(EOFError, ConnectionError):
            while True:
                self._work(*link.receive_message(self._sock))

    def _work(self, job: dict[str, Any], buffers: list[memoryview]) -> None:
        for gone in job["forget"]:
            self._streams.pop(gone, None)
        try:
            self._reconstruct(job, buffers)
        except InputError as error:
            self._fail("data", error)
        except ConnectionError:
            raise
        except (MemoryError, RuntimeError) as error:
            full = isinstance(error, MemoryError) or "out of memory" in str(error)
            why = "memory ran out" if full else type(error).__name__
            self._streams.clear()
            self._fail("failed", InputError(f"the reconstruction failed: {why}"))
        except Exception as error:
            why = f"the reconstruction failed: {type(error).__name__} (a fault of the program)"
            self._fail("fault", InputError(why))

    def _fail(self, code: str, error: InputError) -> None:
        link.send_message(self._sock, {"error": _parts(error), "code": code, "last": True})

    def _reconstruct(self, job: dict[str, Any], buffers: list[memoryview]) -> None:
        import torch

        from upmri.inference.choice import build_method
        from upmri.inference.scan_session import Session
        from upmri.server.held import HeldSource, Known
        from upmri.server.making import make_images

        if job["begins"]:
            self._streams[job["stream"]] = Known(bytes(buffers[0]), (buffers[1], buffers[2]))
            buffers = buffers[3:]
        known = self._streams[job["stream"]]
        readouts = list(zip(buffers[::2], buffers[1::2], strict=True))
        most = job["max_bytes"] // len(job["parts"])
        sources = [HeldSource(known, [readouts[number] for number in part], most) for part in job["parts"]]
        source = sources[0]
        settings = {name: value for name, value in job["settings"].items() if name != "model"}
        key = json.dumps([job["method"], settings, job["seed"]], sort_keys=True)
        if key in known.adapted:
            method, facts = known.adapted[key]
            session = Session(method, self._device, job["seed"], facts=facts)
        else:
            session = Session(build_method(job["method"], **job["settings"]), self._device, job["seed"])
            # Weights are adapted to the first frame of a stream, and serve the others.
            session.begin(lambda index: source.read_one(index, range(source.slices)), source.slices)
            if session.facts is not None:
                known.adapted[key] = session.method, session.facts
        for one in make_images(session, sources, job["skip"]):
            found = session.findings.settings
            answer = {
                "frame": one.frame,
                "index": one.index,
                "settings": {name: value for name, value in session.settings.items() if name not in found},
                "found": {name: value for name, value in found.items() if name != "empty_slices"} | one.found,
                "place": one.scan.meta.get("geometry"),
                "spacing": one.scan.spacing,
                "volume": source.volume,
                "readouts": source.slices,
                "shape": list(one.image.shape),
                "seconds": one.seconds,
                "last": (one.index, one.frame) == (source.slices - 1, len(sources) - 1),
            }
            arrays = [one.image.to(torch.complex64)] + ([] if one.std is None else [one.std.float()])
            link.send_message(self._sock, answer, [[array.contiguous().numpy().tobytes()] for array in arrays])


def _parts(error: InputError) -> dict[str, str | None]:
    return {"message": error.message, "field": error.field, "path": error.path}


def run_worker() -> None:
    """Run the process: the command line has the socket's descriptor, the device, the method and the niceness."""
    # A signal to the process group is for the server, which ends the worker when its streams have ended.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    descriptor, device, method, nice = sys.argv[1:]
    os.nice(int(nice))  # before there are threads, each of which would keep its own
    from upmri.core import memory

    memory.keep_freed()
    with socket.socket(fileno=int(descriptor)) as sock:
        try:
            worker = FrameWorker(sock, device, method)
        except InputError as error:
            link.send_message(sock, {"ready": False, "error": _parts(error)})
            return
        worker.run()


if __name__ == "__main__":
    run_worker()
