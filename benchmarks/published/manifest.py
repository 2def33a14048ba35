"""The manifest: for every published table and number, the page, the results and keys, and where these come from."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provenance import read, sha256
from published.pages import Made, Text
from published.parts import PARTS
from published.results import RESULTS, ROOT, WEIGHTS

# Figures that no part draws.
OTHERS = dict.fromkeys(("architecture.svg", "graphical_model.svg", "inference.svg", "training.svg"), "a diagram")
OTHERS["report.png"] = "a screenshot of the page that `make demo` writes"
MANIFEST = ROOT / "benchmarks" / "manifest.json"


def build(made: Sequence[Made], unsourced: Sequence[dict[str, str]], folder: Path = RESULTS) -> dict[str, Any]:
    """Return the manifest."""
    published = []
    for one in made:
        if not one.used:  # a table about the parts themselves
            continue
        what = {"text": one.entry.fragment} if isinstance(one.entry, Text) else {"table": one.entry.name}
        published.append({"page": one.entry.page, **what, "numbers": _count(one.value), "from": one.used})
    files = {file for entry in published for file in entry["from"]}
    return {
        "about": "Published tables and numbers, and where they come from. Written by benchmarks/reproduce.py --pages.",
        "weights": {path.stem: sha256(path) for path in sorted(WEIGHTS.glob("*.safetensors"))},
        "results": {file: _source(folder / file) for file in sorted(files)},
        "published": published,
        "figures": figures(),
        "unsourced": list(unsourced),
    }


def figures(root: Path = ROOT) -> list[dict[str, Any]]:
    """All figures on pages, and the part that draws each, or what else made it."""
    found = []
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for name in dict.fromkeys(re.findall(r"figures/([\w.]+)", page.read_text("utf-8"))):
            part = next((part.name for part in PARTS if name in part.figures), None)
            found.append({"page": str(page.relative_to(root)), "figure": name, "part": part, "made": OTHERS.get(name)})
    return found


def write(content: dict[str, Any], path: Path = MANIFEST) -> None:
    """Write the manifest, one line for each entry."""
    path.write_text(text_of(content), encoding="utf-8")


def text_of(content: dict[str, Any]) -> str:
    """JSON with one line for each entry, so that a change of one is one line."""
    parts = []
    for key, value in content.items():
        if isinstance(value, dict):
            lines = [f"{_line(name)}: {_line(entry)}" for name, entry in value.items()]
            parts.append(f"{_line(key)}: {{\n  " + ",\n  ".join(lines) + "\n }")
        elif isinstance(value, list):
            parts.append(f"{_line(key)}: [\n  " + ",\n  ".join(map(_line, value)) + "\n ]")
        else:
            parts.append(f"{_line(key)}: {_line(value)}")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _source(path: Path) -> dict[str, Any]:
    """Where a result comes from: its side file; of weights, the file itself."""
    if path.suffix == ".safetensors":
        return {"sha256": sha256(WEIGHTS / path.name)}
    return {key: value for key, value in read(path).items() if key != "file"}


def _count(values: Any) -> int:
    """Number of numbers: values of a text; of a table, parts of cells (4× · 8×) with a digit, first column left out."""
    if not isinstance(values, str):
        return len(values)
    cells = [cell for row in values.splitlines()[2:] for cell in row.strip("|").split("|")[1:]]
    return sum(any(map(str.isdigit, part)) for cell in cells for part in cell.split("·"))
