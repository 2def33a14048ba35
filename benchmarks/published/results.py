"""Reading of result files, with a record of what was read: that is where a number on a page comes from."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
WEIGHTS = ROOT / "src" / "upmri" / "weights"


class MissingResultError(Exception):
    """No result of that name: the part that makes it was not run."""


class Results:
    """The files of a folder, read by their names.

    ``used`` has what was read since it was made: for files of rows, the values that columns were selected by; for
    nested files, the keys at each level.
    """

    def __init__(self, folder: Path = RESULTS) -> None:
        self.folder = folder
        self.used: dict[str, dict[str, dict[str, None]]] = {}

    def has(self, file: str) -> bool:
        """Return whether the file exists."""
        return (self.folder / file).exists()

    def all(self, file: str, column: str, **where: Any) -> list[Any]:
        """Return a column of all rows that have these values."""
        rows = _index(self._path(file), tuple(where)).get(_key(where.values()), [])
        found = [row[column] for row in rows if row.get(column) not in (None, "")]
        if found:
            self._use(file, {"column": column, **where})
        return found

    def one(self, file: str, column: str, **where: Any) -> Any:
        """Return a column of the one row that has these values."""
        found = self.all(file, column, **where)
        if len(found) != 1:
            raise LookupError(f"{file}: {len(found)} rows have {column} with {where}, not one")
        return found[0]

    def distinct(self, file: str, column: str, **where: Any) -> list[Any]:
        """Return the different values of a column, in the order of the file."""
        return list(dict.fromkeys(self.all(file, column, **where)))

    def at(self, file: str, *keys: str | int) -> Any:
        """Return an entry of a nested JSON file by its keys."""
        found = _read(self._path(file))
        for key in keys:
            found = found[key]
        self._use(file, {f"key {level}": key for level, key in enumerate(keys, 1)})
        return found

    def card(self, weights: str, *keys: str) -> Any:
        """Return an entry of the card of shipped weights."""
        from upmri.weights.card import read_header

        found: Any = read_header(WEIGHTS / f"{weights}.safetensors")
        for key in keys:
            found = found[key]
        self._use(f"{weights}.safetensors", {f"key {level}": key for level, key in enumerate(keys, 1)})
        return found

    def _path(self, file: str) -> Path:
        path = self.folder / file
        if not path.exists():
            raise MissingResultError(file)
        return path

    def _use(self, file: str, keys: dict[str, Any]) -> None:
        entry = self.used.setdefault(file, {})
        for key, value in keys.items():
            entry.setdefault(key, {})[str(value)] = None


@cache
def _read(path: Path) -> Any:
    text = path.read_text("utf-8")
    if path.suffix == ".csv":
        return [{key: _number(value) for key, value in row.items()} for row in csv.DictReader(text.splitlines())]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


@cache
def _index(path: Path, columns: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """Rows of a file by their values in some columns."""
    content = _read(path)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in content if isinstance(content, list) else content["rows"]:
        found.setdefault(_key(row.get(column) for column in columns), []).append(row)
    return found


def _key(values: Iterable[Any]) -> str:
    """Equal for equal values, 4 and 4.0 among them."""
    return repr([float(value) if isinstance(value, int) else value for value in values])


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
