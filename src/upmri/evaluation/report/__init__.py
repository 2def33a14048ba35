"""One page to look at: results of a scan side by side, in a file that needs no network, no server and no installation.

``study`` brings results into the form a page needs, ``encode`` makes text of pictures, ``page`` puts it all into one
file, of which ``page.html``, ``page.css`` and ``script/`` are what a browser shows and runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.evaluation.report import page
from upmri.evaluation.report.study import Result, gather
from upmri.formats import atomic
from upmri.formats.source import SliceSelection

__all__ = ["MAX_MEGABYTES", "Result", "check", "write"]

MAX_MEGABYTES = 40.0


def write(
    results: Iterable[Result] | Result,
    out: str | Path,
    *,
    scan: Scan | str | Path | None = None,
    slices: SliceSelection = None,
    overwrite: bool = False,
    max_megabytes: float = MAX_MEGABYTES,
) -> Path:
    """Write one self-contained page that shows results of the same scan.

    Parameters
    ----------
    results
        Reconstructions, or names of the .h5 files that hold them. The reference is that of the results, else the
        scan's.
    out
        The page to write, .html.
    scan
        The scan they were made of, or its file: adds the measured k-space, its mask and the acceleration.
    slices
        Which slices of the scan the results are of, all when None; as for :func:`upmri.load`.
    overwrite
        Replace a file that is there already, which is otherwise an error.
    max_megabytes
        What the page may take. Magnitudes (16 bits) and deviations are always in; measured k-space, phase, samples and
        the k-space of each image follow in this order, each if there is room. What is left out is told on the page,
        and by a warning.

    Returns
    -------
    Path
        The page.
    """
    path = Path(out)
    check(path, overwrite=overwrite)
    study = gather(results, scan, slices)
    blocks = page.Blocks.of(study, int(max_megabytes * 1e6))
    with atomic.staged(path, overwrite=overwrite) as stage, stage.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(page.parts(study, blocks))
    if blocks.size > max_megabytes * 1e6:
        warnings.warn(
            f"{path}: takes {blocks.size / 1e6:.3g} MB; magnitudes and deviations are always in", stacklevel=2
        )
    if blocks.left_out:
        left_out = " and ".join(blocks.left_out)
        warnings.warn(f"{path}: {left_out} left out, to stay below {max_megabytes:g} MB", stacklevel=2)
    return path


def check(out: str | Path, *, overwrite: bool = False) -> None:
    """Tell before long work what :func:`write` would say of this name after it."""
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path}: expected a name that ends in .html for a report")
    atomic.check_writable(path, overwrite=overwrite)
