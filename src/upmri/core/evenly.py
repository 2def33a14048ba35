"""A few items out of many, spread evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most ``most`` of the items: the middle ones of equal parts.

    Examples
    --------
    >>> evenly(range(10), 2), evenly("abc", 5)
    ([2, 7], ['a', 'b', 'c'])
    """
    count = min(len(items), most)
    return [items[(2 * i + 1) * len(items) // (2 * count)] for i in range(count)]
