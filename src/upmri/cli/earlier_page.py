"""The report page of an image that is replaced: it would be taken for that of the new one."""

from __future__ import annotations

from pathlib import Path

_HEAD = 4096  # bytes of a page that hold what made it
_MARK = b'<meta name="generator" content="UPMRI '


def remove_page(page: Path) -> None:
    """Remove a file if it is a report page that UPMRI wrote; any other stays as it is."""
    from upmri.formats import atomic

    with atomic.failures(page):
        if page.is_file() and not page.is_symlink():
            with page.open("rb") as file:
                ours = _MARK in file.read(_HEAD)
            if ours:
                page.unlink()
