"""Scans, images and reconstructions that a child reads: what it sends is checked as if a file held it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core import fields
from upmri.core.errors import InputError
from upmri.core.geometry import Spacing
from upmri.core.scan import Reconstruction, Scan
from upmri.formats import guard, native
from upmri.formats.child.session import ChildSession
from upmri.formats.source import Acquisitions, SliceSelection, Source

_SCAN = ("noise", "spacing", "name", "meta")
_RECONSTRUCTION = ("method", "settings", "seconds", "versions", "spacing", "name", "meta", "bounds")


class RemoteSource(Source):
    """A scan that is open in a child; the child reads ahead while the program works on a slice.

    Parameters
    ----------
    path, max_bytes
        As for :class:`~upmri.formats.source.Source`.
    also
        What readers that were asked before in the program read.
    axes
        Names of the axes of an array, or None.
    """

    def __init__(self, path: Path, max_bytes: int, also: Sequence[str], axes: str | None = None) -> None:
        super().__init__(path, max_bytes)
        self._session = ChildSession(path, max_bytes)
        try:
            said, _ = self._session.request(do="open", also=list(also), axes=axes)
            self.slices, self.coils = _count(said, "slices"), _count(said, "coils")
            self.slice_bytes = _count(said, "slice_bytes")
            matrix = said.get("matrix")
            sizes = matrix if isinstance(matrix, list) and len(matrix) == 2 else [0, 0]
            self.matrix = (_count({"matrix": sizes[0]}, "matrix"), _count({"matrix": sizes[1]}, "matrix"))
            self.format, self.name = str(said.get("format")), str(said.get("name"))
        except BaseException:
            self.close()
            raise

    def each(self, slices: SliceSelection = None) -> Iterator[Scan]:
        """Read these slices one by one; the child reads the next one meanwhile."""
        wanted = self.indices(slices)
        for index in wanted:
            with guard.naming(self.path):
                self._session.request_ahead(*(_one(at, wanted) for at in wanted if index <= at <= index + wanted.step))
            yield self.read_one(index, wanted)

    def read_one(self, index: int, among: range) -> Scan:
        """Read one slice of several; its spacing is that between them."""
        with guard.naming(self.path):
            guard.check_bytes(f"1 of {self.slices} slices", self.slice_bytes, self.max_bytes)
            return _scan(*self._session.request(**_one(index, among)))

    def _read(self, keep: slice) -> Scan:
        return _scan(*self._session.request(do="read", slices=[keep.start, keep.stop, keep.step]))

    def acquisitions(self) -> Acquisitions | None:
        """Return the readouts as they are stored; an error where the format does not store ISMRMRD's."""
        import ismrmrd

        with guard.naming(self.path):
            _, arrays = self._session.request(do="acquisitions")
            xml, heads = (_bytes(arrays, name) for name in ("xml", "heads"))
            layout = np.dtype(ismrmrd.AcquisitionHeader)
            if len(heads) % layout.itemsize:
                raise InputError("damaged: headers of readouts are not whole")
            return Acquisitions(xml, np.frombuffer(heads, layout), self._samples())

    def _samples(self) -> Iterator[bytes]:
        number = 0
        while True:
            with guard.naming(self.path):
                _, arrays = self._session.request(do="samples", number=number)
                samples, lengths = _bytes(arrays, "samples"), arrays.get("lengths")
                ends = np.cumsum(np.zeros(0, np.int64) if lengths is None else lengths).tolist()
                if any(one > other for one, other in zip([0, *ends], [*ends, len(samples)], strict=True)):
                    raise InputError("damaged: readouts are not whole")
            if not ends:
                return
            yield from (samples[one:other] for one, other in zip([0, *ends], ends, strict=False))
            number += 1

    def close(self) -> None:
        """End the child."""
        self._session.end()


def _one(index: int, among: range) -> dict[str, Any]:
    return {"do": "read_one", "index": index, "among": [among.start, among.stop, among.step]}


def images_from_child(path: Path, max_bytes: int) -> tuple[NDArray[Any], Spacing | None]:
    """Read images and the size of their voxels as :func:`upmri.formats.images.read_images` does."""
    values, arrays = _ask_once(path, max_bytes, "images")
    image = arrays.get("image")
    if image is None or image.ndim != 3 or 0 in image.shape:
        raise InputError("damaged: expected (slice, row, column)", field="image")
    if image.dtype.kind in "fc" and not np.isfinite(image).all():
        raise InputError("expected finite values, found NaN or infinite ones", field="image")
    return image, fields.spacing(values.get("spacing"))


def reconstruction_from_child(path: Path, max_bytes: int) -> Reconstruction:
    """Read a reconstruction that was saved as .h5."""
    values, arrays = _ask_once(path, max_bytes, "reconstruction")
    given: dict[str, Any] = {name: values[name] for name in _RECONSTRUCTION if name in values}
    names = ("image", "samples", "std", "reference", native.BOUNDS_LINES)
    return Reconstruction(**native.with_bounds(given | {name: arrays.get(name) for name in names}))


def child_protections() -> list[str]:
    """Return the limits that a child sets for itself on this system, by name."""
    session = ChildSession(Path(__file__), 0)
    session.end()
    return session.active


def _ask_once(path: Path, max_bytes: int, task: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    session = ChildSession(path, max_bytes)
    try:
        return session.request(do=task)
    finally:
        session.end()


def _scan(values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Scan:
    given: dict[str, Any] = {name: values[name] for name in _SCAN if name in values}
    stored: dict[str, Any] = {name: arrays.get(name) for name in ("kspace", "mask", "maps", "reference")}
    return Scan(**given, **stored)


def _count(said: dict[str, Any], name: str) -> int:
    count = said.get(name)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count < 2**63:
        raise InputError(f"damaged: its reader says {name} = {count!r}"[:200])
    return count


def _bytes(arrays: dict[str, NDArray[Any]], name: str) -> bytes:
    array = arrays.get(name)
    if array is None or array.dtype != np.uint8:
        raise InputError(f"damaged: expected the bytes of its {name}")
    return array.tobytes()
