"""Which slices of a dynamic scan show the same place, by its ``meta``, and the ``meta`` of some of its slices."""

from __future__ import annotations

import itertools
import math
from typing import Any

# Axes along which the place changes; along the others the same place is seen again.
PLACES = ("slice", "readout", "batch")


def frames_of(meta: dict[str, Any], count: int) -> list[dict[str, Any]] | None:
    """Return the number of each of ``count`` slices along each axis, from ``meta["frames"]`` or ``meta["axes"]``.

    None where they do not say it, or are not of ``count`` slices.
    """
    frames = _listed(meta, count)
    return _counted(meta, count) if frames is None else frames


def places(meta: dict[str, Any], count: int) -> list[int] | None:
    """Return the place of each slice as a number, from ``meta["axes"]`` or ``meta["frames"]``.

    None where they do not say it, where they are not of ``count`` slices, and where no place is seen twice.
    """
    frames = frames_of(meta, count)
    if frames is None:
        return None
    found = [tuple(frame.get(name) for name in PLACES) for frame in frames]
    if not all(isinstance(at, int | float | str | None) for place in found for at in place):
        return None
    numbers = {place: number for number, place in enumerate(dict.fromkeys(found))}
    return [numbers[place] for place in found] if len(numbers) < count else None


def of_slices(meta: dict[str, Any], count: int, wanted: range) -> dict[str, Any]:
    """Return the ``meta`` of some slices of a scan of ``count``: which frames and places these are.

    ``meta["axes"]`` and ``meta["frames"]`` of a file are those of all its slices. Of a part, ``meta["frames"]`` lists
    the slices one by one. A scan that is not dynamic and lists no frames, or all of it, keeps its ``meta``.
    """
    if wanted == range(count):
        return meta
    frames = _listed(meta, count)
    if frames is None and places(meta, count) is not None:
        frames = _counted(meta, count)
    if frames is None:
        return meta
    return {key: value for key, value in meta.items() if key != "axes"} | {"frames": [frames[i] for i in wanted]}


def _listed(meta: dict[str, Any], count: int) -> list[dict[str, Any]] | None:
    """Return ``meta["frames"]`` if that is a list of ``count`` frames."""
    frames = meta.get("frames")
    listed = isinstance(frames, list) and len(frames) == count and all(isinstance(frame, dict) for frame in frames)
    return frames if listed else None


def _counted(meta: dict[str, Any], count: int) -> list[dict[str, Any]] | None:
    """Return the frames that ``meta["axes"]`` counts, slowest axis first, if they are ``count``."""
    axes = meta.get("axes")
    if not isinstance(axes, dict) or not all(isinstance(n, int) and n > 0 for n in axes.values()):
        return None
    if math.prod(axes.values()) != count:
        return None
    return [dict(zip(axes, index, strict=True)) for index in itertools.product(*map(range, axes.values()))]
