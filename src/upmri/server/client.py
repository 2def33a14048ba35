"""A client: send a scan to an MRD server, and make a reconstruction from the images that come back."""

from __future__ import annotations

import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ismrmrd
import numpy as np
import torch
from numpy.typing import NDArray

from upmri.core import geometry
from upmri.core.bounds import Bounds
from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction
from upmri.formats import stack
from upmri.formats.grid import AXES, Grid, ranked
from upmri.server import series, wire
from upmri.server.limits import Limits
from upmri.server.tls import connect_tls
from upmri.server.wire import ERROR, PIXELS, EndedError, Incoming, Kind, Message

_CONNECT_SECONDS = 10.0


def address(text: str) -> tuple[str, int]:
    """Read HOST:PORT, or HOST alone."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(wire.PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InputError(f"expected HOST:PORT, such as 127.0.0.1:{wire.PORT}, got {text!r}", field="--to")
    return host.strip("[]"), int(port)


def exchange(
    to: tuple[str, int],
    config: dict[str, Any],
    messages: Iterable[bytes],
    *,
    seconds: float,
    context: ssl.SSLContext | None = None,
    on_text: Callable[[str], None] = lambda _: None,
    on_image: Callable[[], None] = lambda: None,
) -> list[Message]:
    """Send a configuration and messages, and return the images that come back.

    Images are received while messages are still being sent. Errors have the address of the server as their ``path``.

    Parameters
    ----------
    to
        Host and port of the server.
    config
        Configuration, which is sent as JSON.
    messages
        Messages between the configuration and CLOSE.
    seconds
        Time to wait for the next message of the server.
    context
        Settings of TLS, without which the connection is not encrypted.
    on_text, on_image
        Functions that are called for each text and for each magnitude image.
    """
    server = _name(to)
    try:
        sock = socket.create_connection(to, _CONNECT_SECONDS)
        if context is not None:
            sock = connect_tls(sock, context, to[0])
    except OSError as error:
        message = f"no server answers at {server} ({error}); is `upmri serve` running there?"
        raise InputError(message, field="--to") from error
    sender = _Sender(sock, config, messages)
    with sock:
        sock.settimeout(seconds)
        sender.start()
        try:
            found = _receive(sock, on_text, on_image)
        except EndedError as error:
            raise InputError(str(error), path=server) from sender.error or error
        except TimeoutError as error:
            raise InputError(f"nothing came back within {seconds:g} s", path=server) from sender.error or error
        except OSError as error:
            raise InputError(f"the connection ended ({error})", path=server) from sender.error or error
        except InputError as error:
            raise error.within(path=server) from error
        finally:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sender.join()
    if sender.error is not None and not isinstance(sender.error, OSError):
        raise sender.error
    return found


class _Sender(threading.Thread):
    """Sends while the other thread receives: a server may stop reading until its images are received."""

    def __init__(self, sock: socket.socket, config: dict[str, Any], messages: Iterable[bytes]) -> None:
        super().__init__(name="sender", daemon=True)
        self._socket, self._config, self._messages = sock, config, messages
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._socket.sendall(wire.config_text_message(json.dumps(self._config)))
            for message in self._messages:
                self._socket.sendall(message)
            self._socket.sendall(wire.close_message())
        except Exception as error:  # raised by the other thread, which knows the answer of the server
            self.error = error
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)


def _receive(sock: socket.socket, on_text: Callable[[str], None], on_image: Callable[[], None]) -> list[Message]:
    incoming = Incoming(sock.recv, Limits(stream_bytes=2**50))
    found = []
    while (message := incoming.message()).kind != Kind.CLOSE:
        if message.kind == Kind.IMAGE:
            found.append(message)
            if message.head.image_series_index == series.MAGNITUDE:
                on_image()
        elif message.kind == Kind.TEXT and message.text.startswith(ERROR):
            raise InputError(message.text.removeprefix(ERROR))
        elif message.kind == Kind.TEXT:
            on_text(message.text)
    return found


def combine_images(found: list[Message], name: str, seconds: float) -> Reconstruction:
    """Make a reconstruction from the images of a server, in the order of slices that files have.

    Parameters
    ----------
    found
        Messages with images, of up to three series.
    name
        Name of the scan.
    seconds
        Time that it took.
    """
    by_number: dict[int, list[Message]] = {}
    for message in found:
        by_number.setdefault(message.head.image_series_index, []).append(message)
    if series.MAGNITUDE not in by_number:
        raise InputError("the server sent no image")
    magnitudes = by_number[series.MAGNITUDE]
    order, counters = _order(magnitudes)
    stacks = {
        number: [_pixels(some[i]) for i in order] for number, some in by_number.items() if len(some) == len(order)
    }
    if len({one.shape for one in stacks[series.MAGNITUDE]}) > 1:
        raise InputError("the server sent images of different sizes")
    deviations = stacks.get(series.DEVIATION)
    settings = _settings(magnitudes[0])
    width = stacks[series.MAGNITUDE][0].shape[1]
    bounds = [_settings(magnitudes[i]).get("bounds") for i in order]
    given = [Bounds.from_header(one, torch.full((1, width), math.nan)) for one in bounds if isinstance(one, dict)]
    settings |= {"bounds": True} if given else {}
    spacing, meta = _place([magnitudes[i].head for i in order], counters[order])
    return Reconstruction(
        image=torch.from_numpy(np.stack(stacks.get(series.COMPLEX, stacks[series.MAGNITUDE]))),
        std=None if deviations is None else torch.from_numpy(np.stack(deviations)),
        bounds=Bounds.join(given) if len(given) == len(order) else None,
        method=str(settings.pop("method", "")),
        versions={"upmri": str(settings.pop("version"))} if "version" in settings else {},
        settings=settings,
        seconds=seconds,
        spacing=spacing,
        name=name,
        meta=meta,
    )


def _order(some: list[Message]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices that sort the images, and the counters of each image, (image, AXES)."""
    counters = np.array([[getattr(message.head, axis) for axis in AXES] for message in some], np.int64)
    if series.READOUT not in _attributes(some[0]):
        positions = np.array([list(message.head.position) for message in some])
        counters[:, -1] = ranked(counters[:, -1], positions)
    return np.lexsort(counters.T[::-1]), counters


def _pixels(message: Message) -> NDArray[Any]:
    """Return an image as (readout, phase)."""
    x, y, z = message.head.matrix_size
    pixels = np.frombuffer(message.body, PIXELS[message.head.data_type]).reshape(-1, y, x)
    if len(pixels) != 1:
        raise InputError(f"the server sent an image of {message.head.channels} channels, {x}×{y}×{z}; expected 2-D")
    return pixels[0].T


def _place(heads: list[Any], counters: NDArray[np.int64]) -> tuple[geometry.Spacing | None, dict[str, Any]]:
    """Return the size of a voxel, and the geometry of the images if they are one stack."""
    x, y, _ = heads[0].matrix_size
    fields = list(heads[0].field_of_view)
    spacing = (fields[0] / x, fields[1] / y, fields[2]) if min(fields) > 0 else None
    numbers = np.unique(counters[:, -1], return_inverse=True)[1].reshape(-1)
    axes = {axis: len(np.unique(column)) for axis, column in zip(AXES, counters.T, strict=True)}
    meta: dict[str, Any] = {"axes": named} if (named := {axis: n for axis, n in axes.items() if n > 1}) else {}
    if spacing is None:
        return None, meta
    positions = np.array([list(head.position) for head in heads])
    directions = np.array([[list(head.read_dir), list(head.phase_dir), list(head.slice_dir)] for head in heads])
    located = stack.locate(Grid(x, x, y, 1, spacing), numbers, positions, directions)
    if located is None:
        return spacing, meta
    if len(np.unique(counters[:, :-1], axis=0)) == 1:
        meta["geometry"] = located.geometry(0, None)
    return located.spacing, meta


def _attributes(message: Message) -> dict[str, Any]:
    if "<!" in message.text:
        raise InputError("the server sent attributes with a DOCTYPE; expected plain XML")
    try:
        return dict(ismrmrd.Meta.deserialize(message.text))
    except (SyntaxError, AssertionError, ValueError):
        return {}


def _settings(message: Message) -> dict[str, Any]:
    """Return the method, version and settings that the attributes of an image contain."""
    try:
        values = json.loads(_attributes(message).get("UPMRI", "{}"))
    except (ValueError, RecursionError, TypeError):
        return {}
    return values if isinstance(values, dict) else {}


def stream(
    path: Path,
    to: tuple[str, int],
    config: dict[str, Any],
    *,
    slices: str | None = None,
    axes: str | None = None,
    max_bytes: int,
    seconds: float = 600.0,
    progress: bool = False,
    context: ssl.SSLContext | None = None,
    on_text: Callable[[str], None] = lambda _: None,
) -> Reconstruction:
    """Send a scan of any supported format, and return the reconstruction of the server.

    Parameters
    ----------
    path
        File of the scan.
    to
        Host and port of the server.
    config
        Configuration of the stream: a method and its settings.
    slices
        Slices to send, such as ``"3:7"``; None for all.
    axes
        Names of the axes of an array, as for :func:`upmri.load`.
    max_bytes
        Size of the scan in memory above which it is refused.
    seconds
        Time to wait for the next message of the server.
    progress
        Whether to show a progress bar.
    context
        Settings of TLS, without which the connection is not encrypted.
    on_text
        Function that is called for each text of the server.
    """
    from upmri import formats
    from upmri.core.progress import bar
    from upmri.server import sending

    start = time.perf_counter()
    with formats.open_source(path, axes=axes, max_bytes=max_bytes) as source:
        if missing := sending.not_sent(source):
            on_text(f"{path}: MRD has no message for {' and '.join(missing)}; not sent")
        count = len(source.indices(slices))
        with bar(str(config.get("method", "stream")), count, shown=progress) as advance:
            messages = sending.messages(source, slices)
            found = exchange(to, config, messages, seconds=seconds, context=context, on_text=on_text, on_image=advance)
        name = source.name
    try:
        return combine_images(found, name, time.perf_counter() - start)
    except InputError as error:
        raise error.within(path=_name(to)) from error


def _name(to: tuple[str, int]) -> str:
    return f"{to[0]}:{to[1]}"
