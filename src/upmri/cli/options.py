"""The application, and the options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="upmri",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Reconstruct accelerated multi-coil MRI without fully sampled training data.\n\n"
    "Start with `upmri demo`, then `upmri info SCAN` and `upmri recon SCAN` with a scan of your own.",
    epilog="Not for clinical use. With --debug, an error shows its whole traceback.",
)

Json = Annotated[bool, typer.Option("--json", help="Print machine-readable results.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there already.")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
Mirrors = Annotated[bool, typer.Option("--mirrors", help="Average over the scan's mirror images: better, 4× slower.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
