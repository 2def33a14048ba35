"""Numbers in running text."""

from __future__ import annotations

from published.pages import Text

TEXTS: list[Text] = []
