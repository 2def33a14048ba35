"""Messages of MRD version 1: little-endian, each an identifier of two bytes and its content.

    1 CONFIG_FILE   name[1024]                                  5 TEXT        length u32, text
    2 CONFIG_TEXT   length u32, text                         1008 ACQUISITION head[340], trajectory f32, samples c64
    3 HEADER        length u32, XML                          1022 IMAGE       head[198], length u64, attributes, pixels
    4 CLOSE                                                  1026 WAVEFORM    head[40], u32[channels, samples]

Texts may end with a NUL or not; they are sent with one. Messages are read as their bytes arrive. No length is trusted:
it is compared with a limit first, and memory is allocated only for bytes that have arrived.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import ismrmrd
import numpy as np
from numpy.typing import NDArray

from upmri.server.limits import Limits, RefusedError

PORT = 9002
ERROR = "ERROR: "  # the beginning of a text with the reason why no more images will come
WORKING = "working: "  # the beginning of a text that only tests whether the client is there
RECEIVED = "frame received: "  # begins a text about a frame that is kept for others of its place
_NAME = 1024  # bytes of CONFIG_FILE
_STEP = 2**18  # bytes that are read from a socket at a time
_ACQUISITION = ctypes.sizeof(ismrmrd.AcquisitionHeader)
_IMAGE = ctypes.sizeof(ismrmrd.ImageHeader)
_WAVEFORM = ctypes.sizeof(ismrmrd.WaveformHeader)
PIXELS = {  # NumPy types by data_type of the header
    ismrmrd.DATATYPE_USHORT: "<u2",
    ismrmrd.DATATYPE_SHORT: "<i2",
    ismrmrd.DATATYPE_UINT: "<u4",
    ismrmrd.DATATYPE_INT: "<i4",
    ismrmrd.DATATYPE_FLOAT: "<f4",
    ismrmrd.DATATYPE_DOUBLE: "<f8",
    ismrmrd.DATATYPE_CXFLOAT: "<c8",
    ismrmrd.DATATYPE_CXDOUBLE: "<c16",
}


class Kind(IntEnum):
    """Identifiers of the messages."""

    CONFIG_FILE = 1
    CONFIG_TEXT = 2
    HEADER = 3
    CLOSE = 4
    TEXT = 5
    ACQUISITION = 1008
    IMAGE = 1022
    WAVEFORM = 1026


@dataclass(frozen=True)
class Message:
    """One message.

    ``text`` is the content of a text or configuration, or the attributes of an image; ``head`` a header of the
    ``ismrmrd`` package; ``body`` the samples of a readout, the pixels of an image, or the XML.
    """

    kind: Kind
    text: str = ""
    head: Any = None
    body: bytes = field(default=b"", repr=False)


class EndedError(EOFError):
    """The connection was closed; ``whole`` if between two messages."""

    def __init__(self, whole: bool) -> None:
        super().__init__("the connection ended " + ("without CLOSE" if whole else "in the middle of a message"))
        self.whole = whole


class Incoming:
    """Reads messages; ``count`` is the number of bytes read so far.

    Parameters
    ----------
    receive
        Function that returns the next bytes, at most as many as its argument, and none at the end.
    limits
        Limits of the lengths.
    """

    def __init__(self, receive: Callable[[int], bytes], limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._bytes, self._at = b"", 0
        self.count = 0

    def message(self) -> Message:
        """Wait for the next message."""
        number = int.from_bytes(self._take(2, begins=True), "little")
        if number == Kind.ACQUISITION:
            return self._acquisition()
        if number == Kind.IMAGE:
            return self._image()
        if number == Kind.WAVEFORM:
            return self._waveform()
        if number == Kind.CLOSE:
            return Message(Kind.CLOSE)
        if number == Kind.CONFIG_FILE:
            return Message(Kind.CONFIG_FILE, _text(self._take(_NAME).partition(b"\0")[0]))
        if number == Kind.HEADER:
            return Message(Kind.HEADER, body=self._long("xml_bytes", "the XML header"))
        if number in (Kind.CONFIG_TEXT, Kind.TEXT):
            return Message(Kind(number), _text(self._long("text_bytes", "a text").rstrip(b"\0")))
        raise RefusedError("protocol", f"message {number}: not one of MRD version 1; is this another protocol?")

    def _long(self, limit: str, what: str) -> bytes:
        count = int.from_bytes(self._take(4), "little")
        self._limits.check(limit, count, what)
        return self._take(count)

    def _acquisition(self) -> Message:
        head = ismrmrd.AcquisitionHeader.from_buffer_copy(self._take(_ACQUISITION))
        coils, samples = head.active_channels, head.number_of_samples
        if not (coils and samples):
            raise RefusedError("data", f"a readout of {coils} coils and {samples} samples; expected at least one each")
        self._limits.check("coils", coils, "coils of a readout")
        trajectory = 4 * head.trajectory_dimensions * samples
        self._limits.check("message_bytes", 8 * coils * samples + trajectory, "bytes of a readout")
        self._skip(trajectory)  # not needed for a Cartesian readout
        return Message(Kind.ACQUISITION, head=head, body=self._take(8 * coils * samples))

    def _image(self) -> Message:
        head = ismrmrd.ImageHeader.from_buffer_copy(self._take(_IMAGE))
        count = int.from_bytes(self._take(8), "little")
        self._limits.check("text_bytes", count, "attributes of an image")
        text = _text(self._take(count).rstrip(b"\0"))
        if head.data_type not in PIXELS:
            raise RefusedError("protocol", f"an image of data type {head.data_type}; expected 1 to 8")
        x, y, z = head.matrix_size
        count = x * y * z * head.channels * np.dtype(PIXELS[head.data_type]).itemsize
        self._limits.check("message_bytes", count, "bytes of an image")
        return Message(Kind.IMAGE, text, head, self._take(count))

    def _waveform(self) -> Message:
        head = ismrmrd.WaveformHeader.from_buffer_copy(self._take(_WAVEFORM))
        count = 4 * head.channels * head.number_of_samples
        self._limits.check("message_bytes", count, "bytes of a waveform")
        self._skip(count)
        return Message(Kind.WAVEFORM, head=head)

    def _skip(self, count: int) -> None:
        while count > 0:
            count -= len(self._take(min(count, _STEP)))

    def _take(self, count: int, begins: bool = False) -> bytes:
        """Return the next ``count`` bytes; EndedError if the connection ends before."""
        ready = len(self._bytes) - self._at
        if ready < count:
            parts = bytearray(self._bytes[self._at :])
            while len(parts) < count:
                got = self._receive(_STEP)
                if not got:
                    raise EndedError(whole=begins and not parts)
                parts += got
                self.count += len(got)
                self._limits.check("stream_bytes", self.count, "bytes of the stream")
            self._bytes, self._at = bytes(parts), 0
        taken = self._bytes[self._at : self._at + count]
        self._at += count
        return taken


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError("protocol", "a text that is not UTF-8; expected UTF-8") from error


# --- messages to send -------------------------------------------------------------------------------------------------


def _long(kind: Kind, raw: bytes) -> bytes:
    return struct.pack("<HI", kind, len(raw)) + raw


def config_file_message(name: str) -> bytes:
    """Return a message with the name of a configuration, at most 1023 bytes."""
    raw = name.encode()[: _NAME - 1]
    return struct.pack("<H", Kind.CONFIG_FILE) + raw.ljust(_NAME, b"\0")


def config_text_message(text: str) -> bytes:
    """Return a message with a configuration."""
    return _long(Kind.CONFIG_TEXT, text.encode() + b"\0")


def header_message(xml: bytes) -> bytes:
    """Return a message with the XML header of the scan."""
    return _long(Kind.HEADER, xml.rstrip(b"\0") + b"\0")


def text_message(text: str) -> bytes:
    """Return a message with a text for people, or with parameters."""
    return _long(Kind.TEXT, text.encode() + b"\0")


def close_message() -> bytes:
    """Return the message that ends a stream."""
    return struct.pack("<H", Kind.CLOSE)


def acquisition_message(head: bytes, samples: bytes) -> bytes:
    """Return a message with a readout: 340 bytes of header, and samples in complex64, (coil, sample)."""
    return struct.pack("<H", Kind.ACQUISITION) + head + samples


def image_message(head: Any, attributes: str, pixels: NDArray[Any]) -> bytes:
    """Return a message with an image; sizes, type and length of the attributes are set in its header.

    Parameters
    ----------
    head
        ``ismrmrd.ImageHeader``.
    attributes
        Attributes in XML.
    pixels
        Pixels (channel, z, y, x), of a type in ``PIXELS``.
    """
    pixels = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("<"))
    raw = attributes.encode() + b"\0"
    head.data_type = next(number for number, kind in PIXELS.items() if np.dtype(kind) == pixels.dtype)
    head.channels, head.matrix_size[:] = pixels.shape[0], pixels.shape[:0:-1]
    head.attribute_string_len = len(raw)
    return struct.pack("<H", Kind.IMAGE) + bytes(head) + struct.pack("<Q", len(raw)) + raw + pixels.tobytes()
