"""The command line: parse, call a function, show its result. Nothing is computed here, and torch is loaded late."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from upmri.cli import console
from upmri.core import memory
from upmri.core.version import __version__

from upmri.cli import scans, recon, maps, report, learn, benchmark, serve, doctor  # isort: skip  # the order of `--help`
from upmri.cli.options import app
from upmri.core.errors import InputError

__all__ = ["app", "benchmark", "doctor", "learn", "main", "maps", "recon", "report", "scans", "serve"]

_INTERRUPTED = 130  # exit status after Ctrl-C, as in a shell
_WrongWords: Any = typer.BadParameter.__base__  # UsageError, of Typer or of click, depends on the version of Typer


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(f"upmri {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line. Exit status 2 means bad input, 1 an error in upmri itself, 130 and 143 an interruption."""
    memory.keep_freed()
    code = _run()
    try:
        if sys.stdout is not None:  # as with >&-
            sys.stdout.flush()
        if console.unwritten is not None:
            raise console.unwritten
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python itself flushes once more at its end
        if not code:
            console.complain(InputError(f"cannot be written: {error.strerror}", field="standard output"))
            code = 2
    sys.exit(code)


def _run() -> int | str | None:
    """Run a command; return the exit status."""
    try:
        # --debug is accepted anywhere on the line, also in front of the command.
        words = [word for word in sys.argv[1:] if word != "--debug"]
        code: int | str | None = app(args=words, prog_name="upmri", standalone_mode=False)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as end:
        return end.code  # the reason has been printed
    except _WrongWords as error:
        return _complain_of_words(error)
    except Exception as error:
        return console.complain_of(error)
    if code == _INTERRUPTED:  # which Typer makes of Ctrl-C, without a message
        console.err.print("upmri: interrupted", style="red")
    return code or 0


def _complain_of_words(error: Any) -> int:
    """Print what is wrong with the words of the command line as one line; Typer would frame it in several."""
    if message := error.format_message().rstrip("."):  # empty where Typer has shown the help
        command = "upmri" if error.ctx is None else error.ctx.command_path
        console.complain(InputError(f"{message}; see {command} --help"))
    return 2
