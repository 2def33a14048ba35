"""Tables and numbers on pages that no stored result gives, and why."""

from __future__ import annotations

UNSOURCED: list[dict[str, str]] = []
