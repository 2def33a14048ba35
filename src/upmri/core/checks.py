"""Range checks for ``__post_init__`` of settings dataclasses, and that of a random seed.

The functions read attributes of ``settings`` by name and raise an :class:`InputError` whose field is that name. A
dataclass that is constructed directly is checked in the same way as one that is read from a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from upmri.core.errors import InputError

_SEEDS = (-(2**63), 2**63 - 1)


def checked_seed(seed: Any, field: str = "seed") -> int:
    """Return a random seed, which may be an integer of NumPy, as an int: −2⁶³ to 2⁶³ − 1."""
    if not is_whole(seed) or not _SEEDS[0] <= seed <= _SEEDS[1]:
        raise InputError(f"expected a whole number from -2^63 to 2^63 - 1, got {seed!r}", field=field)
    return int(seed)


def given(settings: object, *names: str) -> list[str]:
    """Return the names of optional settings that are not None: ``at_least(self, 0, *given(self, "damping"))``."""
    return [name for name in names if getattr(settings, name) is not None]


def in_range(settings: object, **bounds: tuple[float, float]) -> None:
    """Check low ≤ value ≤ high: ``in_range(self, cascades=(1, 64), width=(1, 256))``."""
    for name, (low, high) in bounds.items():
        _check(settings, name, low <= _number(settings, name) <= high, f"{low:g} to {high:g}")


def at_least(settings: object, least: float, *names: str) -> None:
    """Check value ≥ least: ``at_least(self, 1, "steps", "batch")``."""
    for name in names:
        _check(settings, name, _number(settings, name) >= least, f"at least {least:g}")


def whole(settings: object, least: int, *names: str) -> None:
    """Check that a value is a whole number ≥ least: ``whole(self, 1, "steps", "samples")``."""
    for name in names:
        value = getattr(settings, name)
        _check(settings, name, is_whole(value) and value >= least, f"a whole number, at least {least}")


def positive(settings: object, *names: str) -> None:
    """Check value > 0: ``positive(self, "rate", "clip")``."""
    for name in names:
        _check(settings, name, _number(settings, name) > 0, "a number > 0")


def fraction(settings: object, *names: str) -> None:
    """Check 0 < value < 1: ``fraction(self, "loss_share")``."""
    for name in names:
        _check(settings, name, 0 < _number(settings, name) < 1, "a number between 0 and 1, both excluded")


def shares(settings: object, *names: str) -> None:
    """Check two bounds of a share, 0 ≤ low ≤ high ≤ 1: ``shares(self, "loss", "path")``."""
    for name in names:
        value = getattr(settings, name)
        pair = isinstance(value, tuple | list) and len(value) == 2 and all(map(is_number, value))
        _check(settings, name, pair and 0 <= value[0] <= value[1] <= 1, "two numbers, 0 ≤ low ≤ high ≤ 1")


def one_of(settings: object, **choices: Iterable[Any]) -> None:
    """Check that a value is among the choices: ``one_of(self, size=SIZES)``."""
    for name, allowed in choices.items():
        known = list(allowed)
        _check(settings, name, getattr(settings, name) in known, f"one of {', '.join(map(str, known))}")


def _number(settings: object, name: str) -> Any:
    value = getattr(settings, name)
    _check(settings, name, is_number(value), "a number")
    return value


def is_number(value: object) -> bool:
    """Whether a value is a real number, one of NumPy included, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, one of NumPy included, and no truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check(settings: object, name: str, holds: bool, expected: str) -> None:
    if not holds:
        raise InputError(f"expected {expected}, got {getattr(settings, name)!r}", field=name)
