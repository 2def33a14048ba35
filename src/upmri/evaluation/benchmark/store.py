"""The database of results: SQLite, one row for each scan and variant, written by several processes."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upmri.core.errors import InputError
from upmri.formats.leftovers import runs

# Seconds after which a claim of another machine is taken to be lost.
_LOST = 3600
_TABLES = """
CREATE TABLE IF NOT EXISTS scan (
    key TEXT PRIMARY KEY, grp TEXT NOT NULL, person TEXT NOT NULL, name TEXT NOT NULL, slice INTEGER NOT NULL,
    acceleration REAL NOT NULL, true_acceleration REAL NOT NULL, maps TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS origin (scan TEXT PRIMARY KEY, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS variant (
    key TEXT PRIMARY KEY, method TEXT NOT NULL, settings TEXT NOT NULL, versions TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS result (
    scan TEXT NOT NULL, variant TEXT NOT NULL, psnr REAL, ssim REAL, nmse REAL, seconds REAL, settings TEXT,
    PRIMARY KEY (scan, variant));
CREATE TABLE IF NOT EXISTS picture (
    scan TEXT NOT NULL, variant TEXT NOT NULL, height INTEGER, width INTEGER, pixels BLOB,
    PRIMARY KEY (scan, variant));
CREATE TABLE IF NOT EXISTS claim (
    scan TEXT PRIMARY KEY, host TEXT NOT NULL, process INTEGER NOT NULL, since REAL NOT NULL);
"""


@dataclass(frozen=True)
class Row:
    """One result, with its scan and variant."""

    scan: str
    group: str
    person: str
    acceleration: float
    maps: str
    variant: str
    psnr: float
    ssim: float
    nmse: float
    seconds: float


class Store:
    """The results of a benchmark.

    Every result is one transaction, so it is stored completely or not at all. Processes share the work by claiming
    scans. The claim of a process of this machine that has ended is free again; that of another machine after an hour.

    Parameters
    ----------
    path
        The database file, made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._base = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.executescript(_TABLES)
        except sqlite3.Error as error:
            raise InputError(f"not a database of results: {error}", path=path) from error
        self._me = (socket.gethostname(), os.getpid())

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def enter(self, key: str, origin: Any) -> str:
        """Store what the data of a scan depend on; return the name of the scan in the database.

        That is its key, or the key with a hash where the key stands for a scan of another origin, whose results are
        kept. Results without an origin, those of earlier versions, become results of this one.
        """
        self._add_origin(key, origin)
        name = self.name_of(key, origin)
        if name != key:
            self._add_origin(name, origin)
        return name

    def name_of(self, key: str, origin: Any) -> str:
        """Return the name of a scan in the database, as :meth:`enter` does, but store nothing."""
        text = json.dumps(origin, sort_keys=True)
        found = self._base.execute("SELECT facts FROM origin WHERE scan = ?", [key]).fetchone()
        same = found is None or found[0] == text
        return key if same else f"{key} #{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def add_scan(self, key: str, **facts: Any) -> None:
        """Store the facts about a scan."""
        columns = ("grp", "person", "name", "slice", "acceleration", "true_acceleration", "maps")
        values = [facts[column] for column in columns]
        self._base.execute(f"INSERT OR IGNORE INTO scan VALUES (?{', ?' * len(columns)})", [key, *values])  # noqa: S608

    def add_variant(self, key: str, method: str, settings: Any, versions: Any) -> None:
        """Store the facts about a variant."""
        row = [key, method, json.dumps(settings, sort_keys=True), json.dumps(versions, sort_keys=True)]
        self._base.execute("INSERT OR IGNORE INTO variant VALUES (?, ?, ?, ?)", row)

    def done(self, scan: str) -> set[str]:
        """Return the variants that have a result for this scan."""
        return {key for (key,) in self._base.execute("SELECT variant FROM result WHERE scan = ?", [scan])}

    @contextmanager
    def claim(self, scan: str) -> Iterator[bool]:
        """Claim a scan for this process; yield False if another process has it."""
        with self._transaction():
            found = self._base.execute("SELECT host, process, since FROM claim WHERE scan = ?", [scan]).fetchone()
            mine = found is None or self._lost(*found)
            if mine:
                self._base.execute("INSERT OR REPLACE INTO claim VALUES (?, ?, ?, ?)", [scan, *self._me, time.time()])
        try:
            yield mine
        finally:
            if mine:
                self._base.execute("DELETE FROM claim WHERE scan = ? AND host = ? AND process = ?", [scan, *self._me])

    def put(
        self,
        scan: str,
        variant: str,
        scores: dict[str, float],
        seconds: float,
        settings: Any,
        image: NDArray[Any] | None = None,
    ) -> None:
        """Store a result and, if given, its image, complex or real."""
        row = [scan, variant, *(scores[name] for name in ("psnr", "ssim", "nmse")), seconds]
        with self._transaction():
            self._base.execute(
                "INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?, ?, ?, ?)",
                [*row, json.dumps(settings, sort_keys=True, default=str)],
            )
            if image is not None:
                self._picture(scan, variant, image)

    def put_picture(self, scan: str, what: str, image: NDArray[Any]) -> None:
        """Store another image of a scan, such as its reference."""
        self._picture(scan, what, image)

    def picture(self, scan: str, variant: str) -> NDArray[Any] | None:
        """Return a stored image, complex64 or float32, or None."""
        found = self._base.execute(
            "SELECT height, width, pixels FROM picture WHERE scan = ? AND variant = ?", [scan, variant]
        ).fetchone()
        if found is None:
            return None
        numbers = np.frombuffer(zlib.decompress(found[2]), np.float16).astype(np.float32)
        is_complex = len(numbers) == 2 * found[0] * found[1]  # real and imaginary parts
        return (numbers.view(np.complex64) if is_complex else numbers).reshape(found[:2])

    def rows(self) -> list[Row]:
        """Return every result, in an order that does not depend on when it was stored."""
        query = """
            SELECT scan.key, grp, person, acceleration, maps, variant, psnr, ssim, nmse, seconds
            FROM result JOIN scan ON scan.key = result.scan
            ORDER BY grp, maps, acceleration, scan.key, variant"""
        return [Row(*values) for values in self._base.execute(query)]

    def settings(self, variant: str) -> dict[str, Any]:
        """Return the settings of a variant."""
        (text,) = self._base.execute("SELECT settings FROM variant WHERE key = ?", [variant]).fetchone()
        found: dict[str, Any] = json.loads(text)
        return found

    def _add_origin(self, scan: str, origin: Any) -> None:
        self._base.execute("INSERT OR IGNORE INTO origin VALUES (?, ?)", [scan, json.dumps(origin, sort_keys=True)])

    def _picture(self, scan: str, variant: str, image: NDArray[Any]) -> None:
        if np.iscomplexobj(image):
            numbers = np.ascontiguousarray(image, np.complex64).view(np.float32)
        else:
            numbers = np.asarray(image)
        pixels = zlib.compress(numbers.astype(np.float16).tobytes())
        self._base.execute(
            "INSERT OR REPLACE INTO picture VALUES (?, ?, ?, ?, ?)", [scan, variant, *image.shape, pixels]
        )

    def _lost(self, host: str, process: int, since: float) -> bool:
        if (host, process) == self._me:
            return True  # from an earlier process with the same number
        return not runs(process) if host == self._me[0] else time.time() - since > _LOST

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")
