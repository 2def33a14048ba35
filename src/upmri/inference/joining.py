"""Join the reconstructions of consecutive ranges of slices of one scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from upmri.core.bounds import Bounds
from upmri.core.scan import Reconstruction
from upmri.physics.map_quality import severity
from upmri.physics.maps import named

_BY_SLICE = ("empty_slices", "normalised_maps")
_WORDS = ("recognised", "maps_from")
_QUALITY = ("maps_unexplained", "maps_quality", "maps_copy")


def join_reconstructions(parts: Sequence[Reconstruction]) -> Reconstruction:
    """Return the reconstruction of all slices, with the settings that one reconstruction of the scan would have.

    Choice of weights and gains are those of the first part. Numbers of slices count from the first slice of all, the
    quality of the maps is that of the worst part, and what was found in any part is named.
    """
    first = parts[0]
    settings: dict[str, Any] = dict(first.settings)
    start = 0
    for part in parts:
        for key in _BY_SLICE:
            if key in part.settings:
                earlier = settings.get(key, []) if start else []
                settings[key] = [*earlier, *(start + number for number in part.settings[key])]
        start += len(part)
    coils = sorted({coil for part in parts for coil in part.settings.get("left_out_coils", [])})
    settings |= {"left_out_coils": coils} if coils else {}
    rated = [part.settings for part in parts if "maps_unexplained" in part.settings]
    if rated:
        worst = max(rated, key=lambda found: (severity(found.get("maps_quality", "")), found["maps_unexplained"]))
        settings = {key: value for key, value in settings.items() if key not in _QUALITY}
        settings |= {key: worst[key] for key in _QUALITY if key in worst}
    for key in _WORDS:
        words = [word for part in parts if key in part.settings for word in part.settings[key].split(", ")]
        settings |= {key: named(words)} if words else {}
    lines = [part.settings["calibration_lines"] for part in parts if "calibration_lines" in part.settings]
    settings |= {"calibration_lines": min(lines)} if lines else {}
    bounds = [part.bounds for part in parts if part.bounds is not None]
    frames = [frame for part in parts for frame in part.meta.get("frames", ())]  # those of a part are its own
    return replace(
        first,
        image=torch.cat([part.image for part in parts]),
        samples=_cat([part.samples for part in parts], 1),
        std=_cat([part.std for part in parts], 0),
        reference=_cat([part.reference for part in parts], 0),
        bounds=Bounds.join(bounds) if len(bounds) == len(parts) else None,
        settings=settings,
        seconds=sum(part.seconds for part in parts),
        meta=first.meta | {"frames": frames} if len(frames) == start else first.meta,
    )


def _cat(tensors: Sequence[Tensor | None], axis: int) -> Tensor | None:
    given = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(given, axis) if len(given) == len(tensors) else None
