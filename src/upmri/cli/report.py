"""`upmri report`: a page that shows results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from upmri.cli import console
from upmri.cli.options import COMPARE, Axes, Overwrite, Quiet, Trusted, above_zero, app


@app.command(
    "report",
    panel=COMPARE,
    examples=["upmri report sense.h5 upmri.h5 --scan scan.h5", "upmri report result.h5 -o page.html"],
)
def report_command(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULT", help="Results of one scan, written by `upmri recon -o RESULT.h5`.", readable=False
        ),
    ],
    target: Annotated[Path, typer.Option("--out", "-o", help="The page to write, .html.", readable=False)] = Path(
        "report.html"
    ),
    scan: Annotated[
        Path | None,
        typer.Option(help="The scan they were reconstructed from; adds measured k-space and mask.", readable=False),
    ] = None,
    slices: Annotated[str | None, typer.Option(help="Slices of the scan that the results show, as in 3:7.")] = None,
    axes: Axes = None,
    max_mb: Annotated[
        float, typer.Option(help="Size limit of the page in MB; samples and phase are left out first.")
    ] = 40,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    trusted: Trusted = False,  # noqa: ARG001
) -> None:
    """Make one offline page that shows results side by side: errors, uncertainty, phase, k-space, metrics."""
    from upmri.evaluation.report import write_report
    from upmri.formats import atomic

    atomic.check_not_input(target, results if scan is None else [*results, scan])
    limit = above_zero(max_mb, "--max-mb")
    with console.warnings_shown(quiet=quiet):
        write_report(
            list(results), target, scan=scan, slices=slices, axes=axes, overwrite=overwrite, max_megabytes=limit
        )
    if not quiet:
        count = f"{len(results)} result{'s' * (len(results) != 1)}"
        console.say(f"{target}: {count}, {target.stat().st_size / 1e6:.1f} MB; open it in a browser")
