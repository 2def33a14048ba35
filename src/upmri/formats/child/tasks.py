"""What a child does for the program: open a file, and hand over what is asked for.

Each request is a message ``{"do": name, …}``. The answer has ``values`` and the description of ``arrays``, which follow
through shared memory, or an ``error``; and the ``warnings`` that were raised.
"""

from __future__ import annotations

import mmap
import os
import socket
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core import fields
from upmri.core.bounds import Bounds
from upmri.core.errors import InputError
from upmri.core.framing import receive_json, send_json
from upmri.core.scan import Reconstruction, Scan
from upmri.formats import guard, images, native, reading
from upmri.formats.child import sandbox
from upmri.formats.child.shared_arrays import GivenArrays, describe_arrays, map_room
from upmri.formats.source import Source

_BESIDE = (".hdr", ".cfl")  # BART's pair
_BATCH = 2**24  # bytes of readouts in one answer
Answer = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def answer_requests(link: int, room: int, *, parent: int, folders: list[Path], plugins: bool) -> None:
    """Set the limits of this process, then answer until the program closes the socket. Does not return.

    Parameters
    ----------
    link, room
        Open files: the socket, and the shared memory.
    parent
        Process that forked this one.
    folders
        Folders of Python and its packages.
    plugins
        Whether other packages offer formats: these may open files beside the one that is read.
    """
    try:
        with socket.socket(fileno=link) as program:
            memory = map_room(room, writable=True)
            first = receive_json(program)
            path = Path(first["path"])
            torch.set_num_threads(first["threads"])
            fields.check_values = False  # the program checks them
            allowed = [path.parent] if plugins else [path, *(path.with_suffix(suffix) for suffix in _BESIDE)]
            active = sandbox.enter([*folders, *allowed], first["max_bytes"], parent)
            send_json(program, {"values": {"active": active}, "arrays": [], "warnings": []})
            file, exchange = OpenedFile(path, first["max_bytes"]), Exchange(program, memory)
            while True:
                request = exchange.request()
                sandbox.allow_seconds(first["seconds"] * first["threads"])
                _answer(exchange, file, request)
    except (EOFError, OSError):  # the program is gone
        pass
    finally:
        os._exit(0)  # the interpreter belongs to the process that forked this one


class OpenedFile:
    """The file of this child, and the tasks that it can be asked for, by name."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path, self._max_bytes = path, max_bytes
        self._source: Source
        self._samples: Iterator[bytes] = iter(())
        self.tasks: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "open": self._open,
            "read": self._read,
            "read_one": self._read_one,
            "acquisitions": self._acquisitions,
            "samples": self._next_samples,
            "images": self._images,
            "reconstruction": self._reconstruction,
        }

    def _open(self, request: dict[str, Any]) -> Answer:
        source = self._source = reading.open_here(self.path, self._max_bytes, request["also"], request.get("axes"))
        names = ("slices", "coils", "matrix", "slice_bytes", "format", "name")
        return {name: getattr(source, name) for name in names}, {}

    def _read(self, request: dict[str, Any]) -> Answer:
        return _parts(self._source.read(slice(*request["slices"])))

    def _read_one(self, request: dict[str, Any]) -> Answer:
        return _parts(self._source.read_one(request["index"], range(*request["among"])))

    def _acquisitions(self, request: dict[str, Any]) -> Answer:  # noqa: ARG002
        stored = self._source.acquisitions()
        if stored is None:
            raise InputError("expected ISMRMRD readouts, the file has none")
        self._samples = stored.samples
        heads = np.frombuffer(stored.heads.tobytes(), np.uint8)
        return {}, {"xml": np.frombuffer(stored.xml, np.uint8), "heads": heads}

    def _next_samples(self, request: dict[str, Any]) -> Answer:  # noqa: ARG002
        batch: list[bytes] = []
        count = 0
        for samples in self._samples:
            batch.append(samples)
            count += len(samples)
            if count >= _BATCH:
                break
        lengths = np.array([len(samples) for samples in batch], np.int64)
        return {}, {"lengths": lengths, "samples": np.frombuffer(b"".join(batch), np.uint8)}

    def _images(self, request: dict[str, Any]) -> Answer:  # noqa: ARG002
        image, spacing = images.read_images(self.path, self._max_bytes)
        return {"spacing": spacing}, {"image": image}

    def _reconstruction(self, request: dict[str, Any]) -> Answer:  # noqa: ARG002
        return _parts(reading.read_reconstruction_here(self.path, self._max_bytes))


def _parts(item: Scan | Reconstruction) -> Answer:
    """Return the fields that are JSON, and those that are arrays."""
    values: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for field in dataclass_fields(item):
        value = getattr(item, field.name)
        if isinstance(value, Tensor):
            arrays[field.name] = value.numpy()
        elif isinstance(value, Bounds):
            values[field.name], arrays[native.BOUNDS_LINES] = value.header, value.lines.numpy()
        else:
            values[field.name] = value
    return values, arrays


class Exchange:
    """The socket and the shared memory of a child: requests come in, answers and pieces of arrays go out.

    The program may send its next request before it has copied the last piece of an answer.
    """

    def __init__(self, program: socket.socket, memory: mmap.mmap) -> None:
        self._program, self._memory = program, memory
        self._requests: deque[dict[str, Any]] = deque()
        self._filled = self._taken = 0

    def request(self) -> dict[str, Any]:
        """Wait for the next request."""
        while not self._requests:
            self._receive()
        return self._requests.popleft()

    def send(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]] | None = None) -> None:
        """Send an answer: its header, and its arrays piece by piece, each into a half that was copied before."""
        if not arrays:
            send_json(self._program, header)
            return
        outgoing = GivenArrays(arrays, self._memory, self._filled)
        for piece in range(max(1, outgoing.pieces)):
            while self._filled - self._taken >= 2:
                self._receive()
            outgoing.fill(piece)
            send_json(self._program, header if piece == 0 else {"piece": piece})
            self._filled += min(1, outgoing.pieces)

    def _receive(self) -> None:
        message = receive_json(self._program)
        if "taken" in message:
            self._taken = message["taken"]
        else:
            self._requests.append(message)


def _answer(exchange: Exchange, file: OpenedFile, request: dict[str, Any]) -> None:
    """Do a task and send what came of it."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        failed, (values, arrays) = _done(file, request)
    said = [[warning.category.__name__, str(warning.message)] for warning in raised]
    if failed is not None:
        exchange.send(failed | {"warnings": said})
        return
    exchange.send({"values": values, "arrays": describe_arrays(arrays), "warnings": said}, arrays)


def _done(file: OpenedFile, request: dict[str, Any]) -> tuple[dict[str, Any] | None, Answer]:
    try:
        with guard.naming(file.path):
            return None, file.tasks[request["do"]](request)
    except InputError as error:
        return {"error": {"message": error.message, "field": error.field}}, ({}, {})
    except Exception as error:
        if "can't allocate memory" in str(error):  # torch has no MemoryError
            return {"memory": True}, ({}, {})
        return {"fault": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}, ({}, {})
