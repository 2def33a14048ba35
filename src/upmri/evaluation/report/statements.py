"""Statements about a result in the side bar of a page: one pair of text for each thing that a reader should know.

A statement is a function of a reconstruction that returns a pair, (subject, sentence), or None if there
is nothing to say. A new one is added to ``_STATEMENTS``; the page shows what it returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from upmri.core.bounds import NOT_COVERED
from upmri.core.printable import one_line
from upmri.core.scan import Reconstruction

Pair = tuple[str, str]


def statements_of(rec: Reconstruction) -> list[Pair]:
    """Return the statements about a result, in the order of ``_STATEMENTS``."""
    made = (statement(rec) for statement in _STATEMENTS)
    return [(subject, one_line(sentence)) for subject, sentence in filter(None, made)]


def _adaptation(rec: Reconstruction) -> Pair | None:
    """What the adaptation to the scan brought."""
    facts = rec.settings.get("adaptation")
    if not isinstance(facts, dict):
        return None
    gain, steps, slices = (_number(facts.get(name)) for name in ("gain", "steps", "slices"))
    seconds = _number(facts.get("seconds"))
    took = "" if seconds is None else f", in {seconds:.1f} s"
    if not gain or not steps:
        return "adaptation", f"no gain on held-out lines: the weights are unchanged{took}"
    where = "" if slices is None else f" on {slices:g} slice{'s' * (slices != 1)}"
    return "adaptation", f"{gain:+.2f} dB on held-out lines after {steps:g} steps{where}{took}"


def _bounds(rec: Reconstruction) -> Pair | None:
    """The bound on the error, and what it does not cover."""
    return None if rec.bounds is None else ("bound on PSNR", f"{rec.bounds.sentence}. {NOT_COVERED}")


def _choice(rec: Reconstruction) -> Pair | None:
    """How far the weights that were chosen are ahead of SENSE."""
    gain = _number(rec.settings.get("held_out_gain"))
    return None if gain is None else ("choice of weights", f"{gain:+.2f} dB over SENSE on held-out lines")


def _maps(rec: Reconstruction) -> Pair | None:
    """Doubts about the coil maps."""
    quality = rec.settings.get("maps_quality")
    if quality not in ("doubtful", "poor"):
        return None
    return "coil maps", f"{quality} ({rec.settings.get('maps_from', 'unknown origin')})"


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


_STATEMENTS: tuple[Callable[[Reconstruction], Pair | None], ...] = (_bounds, _adaptation, _choice, _maps)
