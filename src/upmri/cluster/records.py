"""Records: what became of each task, one small JSON file for each, in the hidden folder ``.upmri`` of the outputs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from upmri.cluster import content
from upmri.formats import atomic

State = Literal["done", "bad", "failed"]


@dataclass(frozen=True)
class Record:
    """What became of a task.

    Parameters
    ----------
    name
        Name of the task.
    state
        ``done``; ``bad`` if its input, its memory or the disk did not allow it; ``failed`` by an error of the program.
    stamp, inputs
        Hash of settings and weights; name, size, time and SHA-256 of the input files.
    files
        Size of each file that was written, by its path relative to the folder of the outputs.
    summary
        What the table shows.
    line
        What was wrong.
    """

    name: str
    state: State
    stamp: str = ""
    inputs: list[list[Any]] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    line: str = ""


class TaskRecords:
    """The records in a folder of outputs.

    Parameters
    ----------
    folder
        Folder of the outputs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.claims = folder / ".upmri" / "claims"
        self.parts = folder / ".upmri" / "parts"
        self._records = folder / ".upmri" / "records"

    def read(self, name: str) -> Record | None:
        """Return the record of a task, or None if there is none that can be read."""
        return _read(self._path(name))

    def write(self, record: Record) -> None:
        """Write a record: whole, or not at all."""
        path = self._path(record.name)
        atomic.make_folder(path.parent)
        # Not synchronised with the disk, which takes longer than all else: a torn record only costs a repetition.
        stage = path.with_name(f".{path.name}-{os.getpid()}")
        with atomic.failures(path):
            try:
                stage.write_text(json.dumps(asdict(record)))
                stage.replace(path)
            finally:
                stage.unlink(missing_ok=True)

    def forget(self, name: str) -> None:
        """Remove the record of a task."""
        self._path(name).unlink(missing_ok=True)

    def finished(self, name: str, stamp: str, inputs: tuple[str, ...]) -> Record | None:
        """Return the record of a task that was done with this content, and whose files are still there."""
        record = self.read(name)
        if record is None or record.state != "done" or record.stamp != stamp:
            return None
        there = all(self._size(file) == size for file, size in record.files.items())
        return record if there and record.files and content.same(inputs, record.inputs) else None

    def __iter__(self) -> Iterator[Record]:
        """Read all records, by name, one after another."""
        for path in sorted(self._records.rglob("*.json")):
            record = None if path.name.startswith(".") else _read(path)
            if record is not None:
                yield record

    def sizes(self, paths: list[Path]) -> dict[str, int]:
        """Return the sizes of files that were written, by their paths relative to the folder; 0 for folders."""
        names = [os.path.relpath(path, self.folder) for path in paths]
        return {name: size for name in names if (size := self._size(name)) is not None}

    def _size(self, name: str) -> int | None:
        path = self.folder / name
        try:
            return 0 if path.is_dir() else path.stat().st_size
        except OSError:
            return None

    def _path(self, name: str) -> Path:
        return self._records / f"{name}.json"


def _read(path: Path) -> Record | None:
    try:
        return Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
