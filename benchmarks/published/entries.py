"""All published tables and texts, and what has no stored source."""

from __future__ import annotations

from published import certainty_tables, methods_tables, parts, scans_tables, speed_tables
from published.pages import Entry
from published.texts import TEXTS
from published.unsourced import UNSOURCED

ENTRIES: list[Entry] = [
    *methods_tables.TABLES, *scans_tables.TABLES, *certainty_tables.TABLES, *speed_tables.TABLES, *parts.TABLES, *TEXTS
]  # fmt: skip

__all__ = ["ENTRIES", "UNSOURCED"]
