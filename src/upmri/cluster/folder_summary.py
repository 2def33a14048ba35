"""One JSON file, one table and one index page of all records in a folder, written record by record."""

from __future__ import annotations

import csv
import html
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote

from upmri.cluster.records import Record, TaskRecords
from upmri.core.printable import one_line
from upmri.formats import atomic

_COLUMNS = ("scan", "out", "state", "method", "slices", "seconds", "psnr", "ssim", "nmse", "line")
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>UPMRI</title><style>
body{font:14px/1.4 system-ui,sans-serif;margin:2em}table{border-collapse:collapse}
td,th{padding:.15em .8em;text-align:left;border-bottom:1px solid #ddd}.bad td{color:#a00}
tr{content-visibility:auto;contain-intrinsic-size:auto 1.7em}</style>
<h1>%s</h1><p>Not for clinical use.</p>
<table><tr><th>scan<th>result<th>method<th>slices<th>seconds<th>PSNR (dB)<th>SSIM<th>note</tr>
"""


@dataclass(frozen=True)
class Totals:
    """Numbers of tasks by what became of them, and the files that list them."""

    done: int
    bad: int
    files: tuple[Path, ...]


def summarise_folder(folder: Path, also: Mapping[str, str] | None = None) -> Totals:
    """Write ``results.json``, ``results.csv`` and ``index.html`` of a folder; memory does not grow with its records.

    Parameters
    ----------
    folder
        Folder of the outputs.
    also
        Name and line of bad tasks that have no record.
    """
    counts = {"done": 0, "bad": 0}
    files = tuple(folder / name for name in ("results.json", "results.csv", "index.html"))
    with ExitStack() as stack:
        json_file, table_file, page = (_text(stack, path) for path in files)
        table = csv.DictWriter(table_file, _COLUMNS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        page.write(_PAGE % html.escape(f"{folder.absolute().name}: results"))
        between = "["
        for record in _with(TaskRecords(folder), dict(also or {})):
            row = _row(record)
            json_file.write(f"{between}\n{json.dumps(row)}")
            table.writerow({"state": record.state, "line": record.line, **row})
            page.write(_html_row(record, row))
            between = ","
            counts["done" if record.state == "done" else "bad"] += 1
        json_file.write("\n]\n" if between == "," else "[]\n")
        page.write("</table></html>\n")
    return Totals(counts["done"], counts["bad"], files)


def _with(records: TaskRecords, also: dict[str, str]) -> Iterator[Record]:
    for record in records:
        line = also.pop(record.name, None)
        yield record if line is None else Record(record.name, "bad", line=line, summary=record.summary)
    for name, line in sorted(also.items()):
        yield Record(name, "bad", line=line)


def _row(record: Record) -> dict[str, Any]:
    if record.state == "done":
        return record.summary
    return {"scan": record.summary.get("scan", record.name), "error": record.line}


def _html_row(record: Record, row: Mapping[str, Any]) -> str:
    links = []
    for name in record.files if record.state == "done" else ():
        links.append(f'<a href="{quote(name)}">{html.escape(one_line(name))}</a>')
    number: Callable[[str, str], str] = lambda key, form: format(row[key], form) if key in row else ""  # noqa: E731
    cells = [
        html.escape(one_line(Path(row["scan"]).name)), ", ".join(links),
        html.escape(one_line(row.get("method", ""))), number("slices", "d"), number("seconds", ".2f"),
        number("psnr", ".2f"), number("ssim", ".3f"), html.escape(one_line(record.line)),
    ]  # fmt: skip
    kind = "" if record.state == "done" else ' class="bad"'
    return f"<tr{kind}>{''.join(f'<td>{cell}' for cell in cells)}</tr>\n"


def _text(stack: ExitStack, path: Path) -> TextIO:
    stage = stack.enter_context(atomic.staged(path, overwrite=True))
    return stack.enter_context(stage.open("w", encoding="utf-8", newline=""))
