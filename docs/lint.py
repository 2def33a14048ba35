"""Check the pages: short lines, plain words, links that lead somewhere. `make lint` runs it.

    python docs/lint.py

Lines of prose have at most 140 characters; tables, code, images and lines that are one link may be longer. Words of a
list are not used: they are private metaphors, or the history of a page instead of its subject. Every relative link
leads to a file, and every anchor to a heading of that file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 140
# In any page but the CHANGELOG, which is history.
WORDS = (
    "ailment", "at hand", "before these", "company", "door", "foretell", "foretells", "foretold", "house",
    "in its own defence", "not kept", "rooms", "told", "withdrawn", "the weights before",
)  # fmt: skip
_WORD = re.compile(rf"\b({'|'.join(map(re.escape, WORDS))})\b", re.IGNORECASE)
_LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
_FENCE = re.compile(r"^\s*(```|~~~)")


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages that people read: those of the top folder, docs, benchmarks and models."""
    folders = (root, root / "docs", root / "benchmarks", root / "models", root / "examples")
    return sorted(path for folder in folders for path in (*folder.glob("*.md"), *folder.glob("*.rst")))


def findings(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with a page, each as "file:line: what"."""
    name = path.relative_to(root)
    lines = path.read_text("utf-8").splitlines()
    for number, line, kind in kinds(lines):
        if kind == "prose" and len(line) > LONGEST and not _is_one_link(line):
            yield f"{name}:{number}: {len(line)} characters, at most {LONGEST}"
        if kind != "code" and path.name != "CHANGELOG.md" and (found := _WORD.search(_without_code(line))):
            yield f'{name}:{number}: "{found[1]}" is not used; say it in plain words'
        if kind != "code" and path.suffix == ".md":
            yield from (f"{name}:{number}: {wrong}" for wrong in _wrong_links(line, path, root))


def kinds(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yield number and text of each line, and whether it is prose, a table or code."""
    fenced, before = False, ""
    indented = False
    for number, line in enumerate(lines, 1):
        if _FENCE.match(line):
            fenced = not fenced
            yield number, line, "code"
        elif fenced:
            yield number, line, "code"
        else:
            # Four blanks begin code after an empty line, unless they continue a list.
            starts = line.startswith("    ") and not before.strip() and not _in_list(lines, number - 1)
            indented = line.startswith("    ") and (indented or starts) if line.strip() else indented
            kind = "code" if indented and line.strip() else "table" if line.lstrip().startswith("|") else "prose"
            yield number, line, kind
        before = line


def _in_list(lines: list[str], index: int) -> bool:
    """Return whether an indented line continues an entry of a list."""
    for line in reversed(lines[:index]):
        if line.strip() and not line.startswith(" "):
            return bool(re.match(r"(?:[-*+]|\d+\.)\s", line))
    return False


def _is_one_link(line: str) -> bool:
    return bool(_LINK.fullmatch(line.strip(" -*.")))


def _without_code(line: str) -> str:
    return re.sub(r"`[^`]*`", "", line)


def _wrong_links(line: str, page: Path, root: Path) -> Iterator[str]:
    for target in _LINK.findall(_without_code(line)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = unquote(target).partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists():
            yield f"{target} does not exist"
        elif not path.is_relative_to(root):
            yield f"{target} is outside the project"
        elif anchor and path.suffix == ".md" and anchor not in _anchors(path):
            yield f"{target}: {path.name} has no such heading"


def _anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and MyST make them."""
    found = set()
    for _, line, kind in kinds(path.read_text("utf-8").splitlines()):
        if kind == "prose" and (heading := re.match(r"#{1,6}\s+(.*)", line)):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").strip().lower()
            found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
        found.update(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", line))
    return found | set(re.findall(r"^\(([\w-]+)\)=", path.read_text("utf-8"), re.M))


def main() -> int:
    """Print all findings; the exit status is 1 if there are some."""
    wrong = [line for page in pages() for line in findings(page)]
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
