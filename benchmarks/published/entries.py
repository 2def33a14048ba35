"""All published tables and texts, and what has no stored source."""

from __future__ import annotations

from published import certainty_tables, methods_tables, other_texts, parts, scans_tables, speed_tables, texts
from published.pages import Entry
from published.unsourced import UNSOURCED

MODULES = (methods_tables, scans_tables, certainty_tables, speed_tables, parts)
ENTRIES: list[Entry] = [
    *(table for module in MODULES for table in module.TABLES),
    *(text for module in (texts, other_texts) for text in module.TEXTS),
]

__all__ = ["ENTRIES", "UNSOURCED"]
