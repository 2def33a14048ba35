"""Slices of a file one by one, with the coil maps that other slices or other files give them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.printable import slices_like
from upmri.core.scan import Scan
from upmri.formats.source import SliceSelection, Source
from upmri.physics.epi import correct_ghosts, lines_alternate
from upmri.physics.espirit import MIN_LINES, find_maps
from upmri.physics.frames import Average, of_slices, places
from upmri.physics.maps import maps_of_reference
from upmri.physics.masks import calibration_lines

# Slices that show whether the frames of a scan have calibration lines.
_PROBES = 3


class MappedSlices:
    """The slices of a scan, with maps if they are given, or found from a reference scan or an average over time.

    Frames without calibration lines are read twice: for their average, and to be reconstructed. Other slices are as
    they are; a method estimates maps from each.

    Parameters
    ----------
    source
        Scan that is open.
    slices
        Slices to read.
    maps
        Coil maps (slice, coil, readout, phase), of one slice for all, of the slices to read, of all slices of the
        file, or of all its places if it has several frames of each.
    reference
        Another scan with the same coils; slices as of ``maps``.
    navigators
        The same echo-planar scan without phase encoding, to correct ghosts; slices as of ``maps``.
    averages
        Whether an average over time is computed, for which frames without calibration lines are read.
    """

    def __init__(
        self,
        source: Source,
        slices: SliceSelection = None,
        *,
        maps: Tensor | None = None,
        reference: Scan | None = None,
        navigators: Scan | None = None,
        averages: bool = True,
    ) -> None:
        self._source, self._slices = source, slices
        self._wanted = wanted = source.indices(slices)
        self._navigators = navigators
        self._navigator = [] if navigators is None else _numbers("navigators", len(navigators), source, wanted)
        self._found: Callable[[Scan, int], tuple[Tensor, str] | None]
        if maps is not None:
            expected = (source.coils, *source.matrix)
            if maps.shape[1:] != expected:
                raise InputError(f"expected {expected} like the scan, got {tuple(maps.shape[1:])}", field="maps")
            where = _numbers("maps", len(maps), source, wanted)
            self._found = lambda _, i: (maps[where[i], None], "given")
        elif reference is not None:
            self._found = _FromReference(reference, _numbers("reference", len(reference), source, wanted))
        else:
            self._found = _from_average(source, wanted) if averages else lambda *_: None

    def __len__(self) -> int:
        return len(self._wanted)

    def __iter__(self) -> Iterator[Scan]:
        """Read the slices one after another."""
        for i, scan in enumerate(self._source.each(self._slices)):
            yield self._with_maps(scan, i)

    def read(self, number: int) -> Scan:
        """Read one of them."""
        return self._with_maps(self._source.read_one(self._wanted[number], self._wanted), number)

    def _with_maps(self, scan: Scan, i: int) -> Scan:
        if self._navigators is not None:
            scan = correct_ghosts(scan, self._navigators[self._navigator[i]])
        elif i == 0 and "echo-planar" not in scan.meta and bool(scan.mask.any()) and lines_alternate(scan):
            warnings.warn(
                "every second line runs backwards, as in echo-planar scans, and the file does not mark it: the image "
                "will have ghosts; give the same scan without phase encoding as --navigators",
                stacklevel=2,
            )
        meta = of_slices(scan.meta, self._source.slices, self._wanted)
        given = self._found(scan, i)
        if given is None:
            return scan if meta is scan.meta else replace(scan, meta=meta)
        return replace(scan, maps=given[0], meta=meta | {"maps_from": given[1]})


class _FromReference:
    """Maps of slice after slice; those of the same slice of the reference scan are computed once."""

    def __init__(self, reference: Scan, where: Sequence[int]) -> None:
        self._reference, self._where = reference, where
        self._last: tuple[int, Tensor] | None = None

    def __call__(self, scan: Scan, i: int) -> tuple[Tensor, str]:
        number = self._where[i]
        if self._last is None or self._last[0] != number:
            self._last = (number, maps_of_reference(scan, self._reference[number]))
        return self._last[1], "reference scan"


def _from_average(source: Source, wanted: range) -> Callable[[Scan, int], tuple[Tensor, str] | None]:
    """Maps of the average over time, where frames have too few calibration lines and their average has enough."""
    nothing: Callable[[Scan, int], None] = lambda *_: None  # noqa: E731
    first = source.read(wanted[0])
    place_of = places(first.meta, source.slices)
    if first.maps is not None or place_of is None:
        return nothing
    if all(_enough(source.read(index).mask[0], source) for index in islice(wanted, _PROBES)):
        return nothing
    average = Average()
    needed = {place_of[index] for index in wanted}
    for index in range(source.slices):
        if place_of[index] in needed:
            scan = source.read(index)
            average.add(place_of[index], scan.kspace[0], scan.mask[0])
    maps: dict[int, Tensor] = {}
    for place in needed:
        kspace, mask = average(place)
        if not _enough(mask, source):
            return nothing
        maps[place] = find_maps(kspace[None], mask[None])
    return lambda _, i: (maps[place_of[wanted[i]]], "average over time")


def _enough(mask: Tensor, source: Source) -> bool:
    return not bool(mask.any()) or calibration_lines(mask, source.matrix[0]) >= MIN_LINES


def _numbers(name: str, count: int, source: Source, wanted: range) -> list[int]:
    """Return which of ``count`` slices belongs to each slice that is wanted."""
    if count == 1:
        return [0] * len(wanted)
    if count == source.slices:
        return list(wanted)
    place_of = places(source.read(wanted[0]).meta, source.slices)
    if place_of is not None and count == max(place_of) + 1:
        return [place_of[index] for index in wanted]
    if count == len(wanted):
        return list(range(count))
    raise InputError(f"expected {slices_like(source.slices)}, got {count}", field=name)
