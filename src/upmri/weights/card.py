"""The card of a weights file: JSON in the header of a safetensors file that describes how the weights were trained."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.core.legacy import rename_old_keys
from upmri.core.regular import open_regular

# The first was written until the key ``lesson`` became ``objective``; both are read.
FORMATS = ("upmri-weights-1", "upmri-weights-2")
MAX_HEADER = 1 << 20
_MAX_DEPTH, _MAX_BANDS = 16, 64


def read_header(path: Path) -> dict[str, Any]:
    """Read the card alone: the first bytes of a safetensors file, of bounded length."""
    try:
        with open_regular(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= MAX_HEADER:
                raise ValueError("its header has an impossible length")
            outer = json.loads(file.read(length))
            stored = file.seek(0, os.SEEK_END) - 8 - length
        if stored != _tensor_bytes(outer):
            raise ValueError("cut short, or damaged")
        header = json.loads(outer["__metadata__"]["upmri"])
        if not isinstance(header, dict) or header.get("format") not in FORMATS:
            raise ValueError("its format is unknown")
        _check_depth(header, _MAX_DEPTH)
        _check_spread(header)
        header = rename_old_keys(header)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    except InputError as error:
        raise error.within(path=path) from error
    except (LookupError, AttributeError) as error:
        raise InputError("not weights of UPMRI (it has no card)", path=path) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"not weights of UPMRI ({shorten(error)})", path=path) from error
    return header


def training_seconds(card: Mapping[str, Any]) -> float | None:
    """Duration of the training, over all runs that led to the weights; None where a card does not have it."""
    total, training = 0.0, card.get("training")
    while isinstance(training, dict):
        if not isinstance(training.get("seconds"), int | float):
            return None
        total += training["seconds"]
        before = training.get("begun with")
        training = before.get("training") if isinstance(before, dict) else None
    return total or None


def training_coils(card: Mapping[str, Any]) -> int:
    """Largest number of coils of a training scan; 0 where a card does not have it."""
    data = card.get("data")
    count = data.get("coils") if isinstance(data, dict) else None
    return count if isinstance(count, int) else 0


def shorten(text: object) -> str:
    """Return text that comes from a file, cut to a readable length."""
    whole = str(text)
    return whole if len(whole) <= 200 else f"{whole[:200]}…"


def _tensor_bytes(outer: Mapping[str, Any]) -> int:
    """Return the bytes of all tensors, as the header of safetensors declares them."""
    return max((entry["data_offsets"][1] for name, entry in outer.items() if name != "__metadata__"), default=0)


def _is_within(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high  # NaN is not


def _check_spread(header: Mapping[str, Any]) -> None:
    """Check the calibration of draws: lists of equal length, or the single factor of earlier versions."""
    spread = header.get("spread", {"factor": 1.0, "exponent": 0.0})
    if not isinstance(spread, dict):
        raise TypeError("spread: expected radius, gain and exponent")
    bounds = {"radius": (1, 1e4), "gain": (1e-3, 100), "exponent": (-4, 4)}
    lists = {key: spread.get(key) for key in bounds}
    if "factor" in spread:
        bounds = {"factor": (0, 100), "exponent": (-4, 4)}
        lists = {key: [spread.get(key)] for key in bounds}
    sizes = {len(values) if isinstance(values, list) else 0 for values in lists.values()}
    if len(sizes) != 1 or not 1 <= max(sizes) <= _MAX_BANDS:
        raise ValueError("spread: expected lists of equal length for radius, gain and exponent")
    for key, values in lists.items():
        if not all(_is_within(value, *bounds[key]) for value in values or ()):
            raise ValueError(f"spread: expected a {key} from {bounds[key][0]} to {bounds[key][1]}")
    radii = lists.get("radius") or []
    if any(low >= high for low, high in pairwise(radii)) or len(radii) == 1:
        raise ValueError("spread: expected two or more radii in ascending order")


def _check_depth(value: Any, left: int) -> None:
    if left == 0:
        raise ValueError("nested too deeply")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(item, left - 1)
