"""The command line: parse, call a verb, show. Nothing here computes, and nothing here loads torch before it must."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from upmri.cli import console
from upmri.core import memory
from upmri.core.version import __version__

from upmri.cli import scans, recon, report, learn, benchmark, serve, doctor  # isort: skip  # as `--help` shall list them
from upmri.cli.options import app
from upmri.core.errors import InputError

__all__ = ["app", "benchmark", "doctor", "learn", "main", "recon", "report", "scans", "serve"]


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(f"upmri {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line: exit 2 is bad input, 1 the program's own failure."""
    # On a machine that is busy with other work, threads that spin while they wait make torch many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    memory.keep_freed()
    try:
        # --debug is understood anywhere, also before it is known which command is meant.
        app(args=[word for word in sys.argv[1:] if word != "--debug"], prog_name="upmri")
    except InputError as error:
        console.complain(error)
        sys.exit(2)
    except KeyboardInterrupt:
        console.err.print("upmri: interrupted", style="red")
        sys.exit(130)
    except Exception as error:
        console.complain(RuntimeError(f"{type(error).__name__}: {error} (a fault of the program; --debug shows where)"))
        if console.debugging():
            raise
        sys.exit(1)
