"""The report page: results of one scan side by side, in one file that needs no network, server or installation.

``study`` collects the results and ``statements`` what is said about them, ``pictures`` and ``coil_views`` compute what
is drawn, ``encode`` packs it as text, and ``page`` puts it into one file, of which ``page.html``, ``page.css`` and
``script/`` are what a browser shows and runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.evaluation.report import page
from upmri.evaluation.report.study import Result, gather_study
from upmri.formats import atomic
from upmri.formats.source import SliceSelection

__all__ = ["MAX_MEGABYTES", "Result", "check_report", "write_report"]

MAX_MEGABYTES = 40.0


def write_report(
    results: Iterable[Result] | Result,
    out: str | Path,
    *,
    scan: Scan | str | Path | None = None,
    slices: SliceSelection = None,
    axes: str | None = None,
    overwrite: bool = False,
    max_megabytes: float = MAX_MEGABYTES,
) -> Path:
    """Write one self-contained page that shows results of the same scan.

    Parameters
    ----------
    results
        Reconstructions, or .h5 files that hold them. The reference image is that of the results, or else that of the
        scan.
    out
        The page to write, .html.
    scan
        The scan they were reconstructed from, or its file: adds the measured k-space, its mask, coil images, coil maps
        and the acceleration.
    slices
        Slices of the scan that the results show, all when None; as for :func:`upmri.load`.
    axes
        Names of the axes of the scan's file, as for :func:`upmri.load`.
    overwrite
        Whether to replace an existing file, which is otherwise an error.
    max_megabytes
        Size limit of the page. Magnitudes (16 bits, or 12 where those would take most of the page) and standard
        deviations are always included; measured k-space, coil images, coil maps, phase, samples and the k-space of
        each image follow in this order, as far as the limit allows. The page and a warning name what is left out.

    Returns
    -------
    Path
        The file that was written.
    """
    path = Path(out)
    check_report(path, overwrite=overwrite)
    for field, given in (("slices", slices), ("axes", axes)):
        if scan is None and given is not None:
            raise InputError("is about the scan of the results, and none was given (--scan)", field=field)
    study = gather_study(results, scan, slices, axes)
    packed = page.PackedPlanes.of(study, int(max_megabytes * 1e6))
    with atomic.staged(path, overwrite=overwrite) as stage, stage.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(page.parts(study, packed))
    if packed.size > max_megabytes * 1e6:
        warnings.warn(
            f"{path}: takes {packed.size / 1e6:.3g} MB; magnitudes and deviations are always included", stacklevel=2
        )
    if packed.left_out:
        *others, last = packed.left_out
        left_out = f"{', '.join(others)} and {last}" if others else last
        warnings.warn(f"{path}: {left_out} left out, to stay below {max_megabytes:g} MB", stacklevel=2)
    return path


def check_report(out: str | Path, *, overwrite: bool = False) -> None:
    """Raise the :class:`InputError` that :func:`write_report` would raise for this name, before the long work."""
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError("expected a name that ends in .html for a report", path=path)
    atomic.check_writable(path, overwrite=overwrite)
