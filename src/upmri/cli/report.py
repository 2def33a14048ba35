"""`upmri report`: one page to look at results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from upmri.cli import console
from upmri.cli.options import Overwrite, Quiet, app


@app.command()
def report(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT…", help="Results of one scan, as `upmri recon -o RESULT.h5` wrote.")
    ],
    target: Annotated[Path, typer.Option("--out", "-o", help="The page to write, .html.")] = Path("report.html"),
    scan: Annotated[
        Path | None, typer.Option(help="The scan they were made of; adds measured k-space and mask.")
    ] = None,
    slices: Annotated[str | None, typer.Option(help="Which slices of the scan they are of, as in 3:7.")] = None,
    max_mb: Annotated[float, typer.Option(help="What the page may take; samples and phase give way first.")] = 40,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Make one offline page to look at results: side by side, errors, uncertainty, phase, k-space, measures."""
    from upmri.evaluation.report import write

    with console.warnings_told(quiet=quiet):
        write(list(results), target, scan=scan, slices=slices, overwrite=overwrite, max_megabytes=max_mb)
    if not quiet:
        count = f"{len(results)} result{'s' * (len(results) != 1)}"
        console.say(f"{target}: {count}, {target.stat().st_size / 1e6:.1f} MB; open it in a browser")
