"""Tables as text: Markdown for people, CSV for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, one line for each row."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def csv_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a CSV table, one line for each row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()
