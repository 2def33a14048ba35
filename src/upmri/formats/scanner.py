"""What a header says about the scanner and the contrast: ``meta["scanner"]``, and nothing about the patient.

A dictionary with those of these entries that are known:

``vendor``, ``model``
    Names of the manufacturer and of the scanner.
``field_strength``
    In tesla.
``echo_time``
    List of echo times in ms, one for each echo.
``repetition_time``
    In ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from upmri.core.frame_places import frames_of
from upmri.core.printable import one_line

_LONGEST = 64  # characters, as in DICOM
_MOST = 64  # echo times
_STRONGEST = 100.0  # T
_SLOWEST = 1e6  # ms


def scanner_facts(
    *,
    vendor: Any = None,
    model: Any = None,
    field_strength: Any = None,
    echo_time: Iterable[Any] = (),
    repetition_time: Any = None,
) -> dict[str, Any]:
    """Return the entries that make sense: short text, and numbers above 0 that a scanner can have."""
    echoes = [_number(value, _SLOWEST) for value in echo_time][:_MOST]
    found = {
        "vendor": _text(vendor),
        "model": _text(model),
        "field_strength": _number(field_strength, _STRONGEST),
        "echo_time": [value for value in echoes if value is not None] or None,
        "repetition_time": _number(repetition_time, _SLOWEST),
    }
    return {name: value for name, value in found.items() if value is not None}


def known_facts(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of ``meta["scanner"]``, checked again: it may come from any file."""
    given = meta.get("scanner")
    if not isinstance(given, dict):
        return {}
    echoes = given.get("echo_time")
    return scanner_facts(
        vendor=given.get("vendor"),
        model=given.get("model"),
        field_strength=given.get("field_strength"),
        echo_time=echoes if isinstance(echoes, list) else [],
        repetition_time=given.get("repetition_time"),
    )


def echo_times(meta: dict[str, Any], count: int) -> list[float | None]:
    """Return the echo time of each of ``count`` slices, None where it is not known or ambiguous."""
    times = known_facts(meta).get("echo_time", [])
    if len(times) == 1:
        return [times[0]] * count
    frames = frames_of(meta, count)
    numbers: list[Any] = [frame.get("contrast", frame.get("echo")) for frame in frames or ()]
    if not times or not numbers or not all(type(number) is int for number in numbers):
        return [None] * count
    return [times[number] if 0 <= number < len(times) else None for number in numbers]


def _text(value: Any) -> str | None:
    return (one_line(value)[:_LONGEST].strip() or None) if isinstance(value, str) else None


def _number(value: Any, most: float) -> float | None:
    known = type(value) in (int, float) and 0 < value <= most
    return float(f"{value:.6g}") if known else None
