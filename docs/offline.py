"""Check that pages, styles and scripts need no network. `make docs` runs it on what it has built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_LOADS = re.compile(r"""(?:\ssrc=|<link[^>]*\shref=|url\(|@import\s)\s*["']?\s*((?:https?:)?//[^"')\s>]+)""")
# A string of a script that is an address; those of w3.org name kinds of XML and are never asked.
_CALLS = re.compile(r"""["'`]((?:(?:https?|wss?):)?//(?!www\.w3\.org/)[\w-]+\.[\w.-]+)""")
_INLINE = re.compile(r"<script[^>]*>(.*?)</script>", re.DOTALL)
_SCRIPT = re.compile(r"""<script[^>]*\ssrc=["']([^"'?#:]+)["'?#]""")


def findings(folder: Path) -> Iterator[str]:
    """Yield what the files of a folder would ask other machines for, and the scripts that pages lack."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".html", ".css", ".js"):
            continue
        text = path.read_text(encoding="utf-8")
        asked = _CALLS.findall(text) if path.suffix == ".js" else _LOADS.findall(text)
        if path.suffix == ".html":
            asked += [address for script in _INLINE.findall(text) for address in _CALLS.findall(script)]
        yield from (f"{path.name}: asks for {address}; expected pages that need no network" for address in asked)
        if path.suffix == ".html" and path.parent.name != "_static":  # where the theme keeps templates
            lacks = (name for name in _SCRIPT.findall(text) if not (path.parent / name).is_file())
            yield from (f"{path.name}: the script {name} is missing" for name in lacks)
