"""The application, and the options that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from upmri.core import fork_server
from upmri.core.checks import checked_seed
from upmri.core.errors import InputError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _without_type(parameters: list[Any]) -> list[Any]:
    """Show flags as ``--quiet`` instead of ``--quiet <bool>``: they take no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_type(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_type(super().get_params(ctx))


class _Application(typer.Typer):
    def command(  # type: ignore[override]
        self, name: str, *, panel: str, examples: Sequence[str]
    ) -> Callable[[_Function], _Function]:
        """Add a command to a group of `--help`; examples are shown below its options."""
        epilog = "\n".join(["Examples:", *(f"  {example}" for example in examples)]).replace("[", r"\[")
        return super().command(name, cls=_Command, rich_help_panel=panel, epilog=epilog)


# Groups of commands in `upmri --help`, and of the options of a command; the usual options are in no group.
START, RECONSTRUCT, COMPARE, LEARN, SCANNER = (
    "Start", "Reconstruct", "Compare", "Train and adapt", "Beside a scanner"
)  # fmt: skip
SCAN, SETTINGS, OUTPUT, MACHINE, MANY = (
    "Scan and coil maps", "Settings of the method", "Output", "Computer", "Many files"
)  # fmt: skip


app = _Application(
    name="upmri",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Reconstruct accelerated multi-coil MRI without fully sampled training data.\n\n"
    "Start with `upmri demo`, then `upmri info SCAN` and `upmri recon SCAN` with a scan of your own.",
    epilog="`upmri COMMAND --help` shows options and examples. With --debug, an error shows its whole traceback. "
    "Not for clinical use.",
)


def _choose_process(ctx: typer.Context, trusted: bool) -> bool:
    """Let this command read files in this process; or start the other one, which imports torch while this one does."""
    if ctx.resilient_parsing:  # only completes a line
        return trusted
    if trusted:
        before = os.environ.get("UPMRI_TRUSTED", "")
        os.environ["UPMRI_TRUSTED"] = "1"  # also for processes that this one starts
        ctx.call_on_close(lambda: os.environ.update(UPMRI_TRUSTED=before))
    elif fork_server.wanted():
        fork_server.start()
    return trusted


Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=OUTPUT)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist already.")]
Seed = Annotated[
    int,
    typer.Option(
        help="Random seed; the same seed gives the same result.",
        callback=lambda seed: checked_seed(seed, "--seed"),
        rich_help_panel=SETTINGS,
    ),
]
Mirrors = Annotated[
    bool,
    typer.Option(
        "--mirrors", help="Average over the scan's mirror images: better, 4× slower.", rich_help_panel=SETTINGS
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        help="K-space of a reference scan with the same coils and field of view, to estimate coil maps from.",
        rich_help_panel=SCAN,
        readable=False,
    ),
]
Axes = Annotated[
    str | None,
    typer.Option(
        help="Names of the axes of an array (.npy, .cfl, HDF5), in its order, as in coil,readout,phase,partition; "
        "also slice, frame, echo, repetition, contrast, set.",
        rich_help_panel=SCAN,
    ),
]


def _devices(incomplete: str) -> list[str]:
    return [name for name in ("auto", "cpu", "cuda", "all") if name.startswith(incomplete)]


def complete_method(incomplete: str) -> list[str]:
    """Return the methods whose names begin so, for the completion of a shell."""
    from upmri.methods.registry import method_names

    return [name for name in method_names() if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Return the available weights whose names begin so; a shell completes files by itself."""
    from upmri.weights.catalogue import weight_names

    return [name for name in weight_names() if name.startswith(incomplete)]


Device = Annotated[
    str,
    typer.Option(
        help="auto, cpu, cuda, cuda:1, …; `recon` takes several, cuda:0,cuda:1, or all.",
        rich_help_panel=MACHINE,
        autocompletion=_devices,
    ),
]
MaxGib = Annotated[
    float | None,
    typer.Option(help="Most GiB to read at once; by default half of the free memory.", rich_help_panel=MACHINE),
]


def above_zero(number: float, option: str, unit: float = 1) -> float:
    """Return the number of an option times its unit, which must be above 0 and finite; Typer accepts nan and inf."""
    value = number * unit
    if not 0 < value < math.inf:
        raise InputError(f"expected a number above 0, not infinite, got {number:g}", field=option)
    return value


def byte_limit(max_gib: float | None) -> int:
    """Return the value of ``--max-gib`` in bytes, by default half of the free memory."""
    from upmri.formats import MAX_BYTES

    return MAX_BYTES if max_gib is None else int(above_zero(max_gib, "--max-gib", 2**30))


# For every command that reads scans or images. The callback does all; commands need not look at the value.
Trusted = Annotated[
    bool,
    typer.Option(
        "--trusted",
        help="Read files in this process, without limits: for files of your own.",
        callback=_choose_process,
        rich_help_panel=MACHINE,
    ),
]
