"""Shards: each of N processes takes every N-th task."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from upmri.core.errors import InputError

_Item = TypeVar("_Item")


def parse_shard(text: str, environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return number, from 1, and count of a shard: ``I/N``, or ``auto`` for those of a Slurm job array.

    Slurm's numbers may begin anywhere and have a step: ``--array=0-9``, ``1-10`` and ``0-90:10`` are ten shards each.

    Examples
    --------
    >>> parse_shard("2/3")
    (2, 3)
    """
    if text == "auto":
        try:
            task, count, first = (int(environment[f"SLURM_ARRAY_TASK_{key}"]) for key in ("ID", "COUNT", "MIN"))
            step = int(environment.get("SLURM_ARRAY_TASK_STEP", "1"))
        except (KeyError, ValueError) as error:
            raise InputError(
                "auto takes SLURM_ARRAY_TASK_ID, _COUNT and _MIN, which are not all set; expected I/N", field="--shard"
            ) from error
        number = (task - first) // max(step, 1) + 1
    else:
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if found is None:
            raise InputError(f"expected I/N, as in 1/8, or auto, got {text!r}", field="--shard")
        number, count = int(found[1]), int(found[2])
    if not 1 <= number <= count:
        raise InputError(f"expected a number from 1 to {count}, got {number}", field="--shard")
    return number, count


def of_shard(items: Sequence[_Item], number: int, count: int) -> Sequence[_Item]:
    """Return the items of a shard: every ``count``-th, so that large neighbours are spread."""
    return items[number - 1 :: count]
