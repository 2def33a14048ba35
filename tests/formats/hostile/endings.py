"""What files of formats that are not HDF5 have in common: which of them are changed, and damage to their bytes."""

from __future__ import annotations

from hostile.damage import Draw, Files, chance, damaged, one_of, resized


def finished(draw: Draw, name: str, data: bytes, changes: set[str]) -> Files:
    data = resized(draw, data) if "end" in changes else data
    return Files({name: damaged(draw, data) if "bytes" in changes else data})


def drawn_changes(draw: Draw, *known: str) -> set[str]:
    """None for one file in six."""
    if chance(draw, 16):
        return set()
    return {one_of(draw, *known, *known, "end", "bytes") for _ in range(one_of(draw, 1, 1, 1, 2, 3))}
