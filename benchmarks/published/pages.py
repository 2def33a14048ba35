"""Numbers on pages: tables between markers, and fragments of sentences, both filled from results.

A table lies between ``<!-- generated: NAME -->`` and ``<!-- end -->``. A fragment is a piece of a sentence with a
format in place of each number, such as ``"ahead by {:.1f} to {:.1f} dB"``; it stands once on its page, with any line
breaks. `fill` writes what the results say into both; a page is right if that changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from string import Formatter
from typing import Any

from published.results import RESULTS, ROOT, Results

NUMBER = r"([+−-]?\d[\d,]*(?:\.\d+)?)"


class PageError(Exception):
    """A marker or a fragment that is not on its page, or stands there twice."""


@dataclass(frozen=True)
class Table:
    """A table: its name, its page, and what makes it."""

    name: str
    page: str
    build: Callable[[Results], str]

    def fill(self, text: str, table: str) -> str:
        """Return the page with the table."""
        pattern = rf"<!-- generated: {re.escape(self.name)} -->.*?<!-- end -->"
        found = re.findall(pattern, text, re.S)
        if len(found) != 1:
            raise PageError(f"{self.page}: {len(found)} tables are marked {self.name}, not one")
        made = f"<!-- generated: {self.name} -->\n\n{table}\n\n<!-- end -->"
        return text.replace(found[0], made)


@dataclass(frozen=True)
class Text:
    """A fragment of a sentence with formats in place of its numbers, and what gives the numbers."""

    page: str
    fragment: str
    build: Callable[[Results], Sequence[Any]]

    @property
    def name(self) -> str:
        """The fragment identifies it."""
        return self.fragment

    def fill(self, text: str, values: Sequence[Any]) -> str:
        """Return the page with these numbers in the fragment, its line breaks kept."""
        parsed = list(Formatter().parse(self.fragment))
        formats = [spec or "" for _, field, spec, _ in parsed if field is not None]
        pattern = "".join(_loose(literal) + NUMBER * (field is not None) for literal, field, _, _ in parsed)
        found = list(re.finditer(rf"(?<![\d.,]){pattern}(?!\d|\.\d)", text))
        if len(found) != 1:
            raise PageError(f"{self.page}: {len(found)} places have “{self.fragment}”, not one")
        for group, (value, spec) in reversed(list(enumerate(zip(values, formats, strict=True), 1))):
            start, end = found[0].span(group)
            text = text[:start] + show(value, spec) + text[end:]
        return text


Entry = Table | Text


def show(value: Any, spec: str) -> str:
    """A number as pages have it: with a minus sign instead of a hyphen, and 0 without a sign."""
    if isinstance(value, float) and (digits := re.search(r"\.(\d)f$", spec)):
        # As people round, and as they read the number in the file: 0.125 is 0.13.
        value = Decimal(repr(value)).quantize(Decimal(1).scaleb(-int(digits[1])), ROUND_HALF_UP)
    text = format(value, spec)
    if re.fullmatch(r"[-+]0(\.0+)?", text):
        text = text[1:]
    return text.replace("-", "−")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as Markdown."""
    lines = [re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(row)} |") for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


@dataclass(frozen=True)
class Made:
    """What the results give for an entry, and what was read for it."""

    entry: Entry
    value: Any
    used: dict[str, dict[str, list[str]]]


def make(entries: Sequence[Entry], folder: Path = RESULTS) -> list[Made]:
    """Return what the results of a folder give for all entries."""
    made = []
    for entry in entries:
        results = Results(folder)
        value = entry.build(results)
        used = {file: {key: list(found) for key, found in keys.items()} for file, keys in results.used.items()}
        made.append(Made(entry, value, used))
    return made


def filled(made: Sequence[Made], root: Path = ROOT) -> dict[Path, tuple[str, str]]:
    """Return, for every page, its text and the text that the results give."""
    pages: dict[Path, tuple[str, str]] = {}
    wrong = []
    for one in made:
        path = root / one.entry.page
        before, now = pages.get(path) or (path.read_text("utf-8"),) * 2
        try:
            pages[path] = before, one.entry.fill(now, one.value)
        except PageError as error:
            wrong.append(str(error))
    if wrong:
        raise PageError("\n".join(wrong))
    return pages


def _loose(literal: str) -> str:
    """A pattern for text whose blanks may be line breaks."""
    return re.sub(r"(?:\\\s)+", lambda _: r"\s+", re.escape(literal))
