"""Changes of numbers, texts and bytes that hypothesis draws; the same for every format."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]


class Files(dict[str, bytes]):
    """Contents of files by name; the first is the one that is opened."""

    def __repr__(self) -> str:
        return f"Files({', '.join(f'{name}: {len(content)} bytes' for name, content in self.items())})"


_ENDS = (0, 1, 2, 3, 5, 8, 17, 64, 127, 128, 255, 256, 512, 1000, 4096, 32767, 32768, 65535, 65536, 10**6)
_LARGE = (2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**63 - 1, 2**63, 2**64 - 1)


def one_of(draw: Draw, *values: Any) -> Any:
    return draw(st.sampled_from(values))


def whole(draw: Draw, low: int, high: int) -> int:
    return int(draw(st.integers(low, high)))


def chance(draw: Draw, percent: int) -> bool:
    return whole(draw, 0, 99) < percent


def number(draw: Draw, width: int = 8, near: int = 0) -> int:
    """A number of ``width`` bytes that a reader may not expect: an end of a range, a large one, or one close by."""
    kind = one_of(draw, "near", "end", "end", "large")
    if kind == "near":
        value = near + one_of(draw, -1, 1, -8, 8, near, -near // 2)
    else:
        value = one_of(draw, *(_ENDS if kind == "end" else _LARGE))
    return int(value % 2 ** (8 * width))


def noise(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def set_number(draw: Draw, data: bytearray, at: int, width: int) -> None:
    """Replace a field of a header."""
    old = int.from_bytes(data[at : at + width], "little")
    data[at : at + width] = number(draw, width, old).to_bytes(width, "little")[: len(data[at : at + width])]


def set_near(draw: Draw, data: bytearray, signatures: Sequence[bytes], reach: int) -> None:
    """Replace a number in the ``reach`` bytes after a signature."""
    found = [match.end() for sign in signatures for match in re.finditer(re.escape(sign), bytes(data))]
    if found:
        width = one_of(draw, 1, 2, 4, 8)
        set_number(draw, data, one_of(draw, *found) + whole(draw, 0, reach // width) * width, width)


def damaged(draw: Draw, data: bytes) -> bytes:
    """The file with some bytes changed, lost, added or moved, half of the time near its beginning."""
    changed = bytearray(data)
    for _ in range(one_of(draw, 1, 1, 1, 2, 4)):
        size = max(1, len(changed) if draw(st.booleans()) else min(len(changed), 1024))
        at, length = whole(draw, 0, size - 1), one_of(draw, 1, 2, 4, 8, 16, 64, 512)
        match one_of(draw, "flip", "flip", "byte", "number", "number", "fill", "cut", "insert", "remove", "swap"):
            case "flip":
                changed[at : at + 1] = bytes(byte ^ 1 << whole(draw, 0, 7) for byte in changed[at : at + 1])
            case "byte":
                changed[at : at + 1] = bytes([whole(draw, 0, 255)])
            case "number":  # where the fields of headers mostly begin
                width = one_of(draw, 1, 2, 4, 8)
                set_number(draw, changed, at - at % width, width)
            case "fill":
                changed[at : at + length] = bytes([one_of(draw, 0x00, 0xFF)]) * len(changed[at : at + length])
            case "cut":
                del changed[at:]
            case "insert":
                changed[at:at] = draw(st.binary(min_size=1, max_size=32))
            case "remove":
                del changed[at : at + length]
            case "swap":
                other = whole(draw, 0, size - 1)
                first, second = changed[at : at + length], changed[other : other + length]
                changed[at : at + len(second)], changed[other : other + len(first)] = second, first
    return bytes(changed)


def resized(draw: Draw, data: bytes) -> bytes:
    """The file cut short, or with more at its end."""
    if draw(st.booleans()):
        return data[: whole(draw, 0, max(0, len(data) - 1))]
    return data + one_of(draw, b"\0", bytes(512), data, b"\xff" * 7)


def zeros(first: bytes, pieces: int) -> tuple[bytes, bytes]:
    """Some bytes and then ``pieces`` times 16 MiB of zeros, as streams of zlib and of gzip of a few hundred KiB."""
    squeeze, blank = zlib.compressobj(9, wbits=-15), bytes(2**24)
    piece = squeeze.compress(blank) + squeeze.flush(zlib.Z_FULL_FLUSH)
    head = zlib.compressobj(9, wbits=-15)
    body = head.compress(first) + head.flush(zlib.Z_FULL_FLUSH) + pieces * piece + b"\x03\0"
    adler, crc = zlib.adler32(first), zlib.crc32(first)
    for _ in range(pieces):
        adler, crc = zlib.adler32(blank, adler), zlib.crc32(blank, crc)
    end = struct.pack("<II", crc, (len(first) + pieces * 2**24) % 2**32)
    return b"\x78\xda" + body + struct.pack(">I", adler), b"\x1f\x8b\x08" + bytes(5) + b"\x02\xff" + body + end


_VALUES = ("0", "-1", "1e9", "NaN", "inf", "65536", "4294967296", "99999999999999999999", "1.5", "", " 7 ", "0x10", "٣")


def text_damaged(draw: Draw, text: str) -> str:
    """The text of a header with a number, a word or a part replaced, lost or doubled."""
    spans = [match.span() for match in re.finditer(r"-?\d+(\.\d+)?", text)]
    match one_of(draw, "number", "number", "number", "remove", "double", "insert", "cut"):
        case "number" if spans:
            low, high = one_of(draw, *spans)
            return text[:low] + one_of(draw, *_VALUES) + text[high:]
        case "remove":
            at = whole(draw, 0, len(text))
            return text[:at] + text[at + one_of(draw, 1, 8, 64) :]
        case "double":
            at = whole(draw, 0, len(text))
            return text[:at] + text[max(0, at - 64) : at] + text[at:]
        case "insert":
            at = whole(draw, 0, len(text))
            return text[:at] + one_of(draw, "\0", "\n", "é", "<", "{", '"', "&a;", "]", "\t", "😀", "- ") + text[at:]
        case _:
            return text[: whole(draw, 0, len(text))]


_XML_BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + "]>"
)


def xml_damaged(draw: Draw, text: str) -> str:
    """The XML with an element lost, doubled, nested or replaced by entities, or damaged as a text."""
    elements = [m.span() for m in re.finditer(r"<(\w+)>[^<]*</\1>", text)]
    spaces = [m.span() for m in re.finditer(r"<(encodedSpace|reconSpace|encodingLimits|encoding)>.*?</\1>", text, re.S)]
    match one_of(draw, "text", "text", "remove", "double", "large part", "bomb", "external", "deep", "encoding"):
        case "text":
            return text_damaged(draw, text)
        case "bomb":
            low = text.index("<ismrmrdHeader")
            return text[:low] + _XML_BOMB + re.sub(r"<x>\d+</x>", "<x>&i;</x>", text[low:])
        case "external":
            low = text.index("<ismrmrdHeader")
            outside = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]>'
            return text[:low] + outside + re.sub(r"<x>\d+</x>", "<x>&a;</x>", text[low:])
        case "deep":
            return text.replace("<encoding>", "<a>" * 5000 + "<encoding>")
        case "encoding":
            return re.sub(
                r"<\?xml[^>]*>", f'<?xml version="1.0" encoding="{one_of(draw, "utf-16", "x", "utf-7")}"?>', text
            )
        case how:
            low, high = one_of(draw, *(spaces if how == "large part" and spaces else elements))
            return text[:low] + (2 * text[low:high] if how == "double" else "") + text[high:]


JSON = st.sampled_from(
    [
        *(None, True, 0, -1, 1.5, 1e308, 10**40, "", "x" * 300, "\ud800"),
        *([], {}, [1], [[[]]], {"a": 1}, [1, 2, 3], [1e400] * 3),
    ]
)
