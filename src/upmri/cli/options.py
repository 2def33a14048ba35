"""The application, and the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

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
    def command(self, name: str | None = None, **options: Any) -> Callable[[_Function], _Function]:
        return super().command(name, **{"cls": _Command} | options)


app = _Application(
    name="upmri",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Reconstruct accelerated multi-coil MRI without fully sampled training data.\n\n"
    "Start with `upmri demo`, then `upmri info SCAN` and `upmri recon SCAN` with a scan of your own.",
    epilog="Not for clinical use. With --debug, an error shows its whole traceback.",
)

Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist already.")]
Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same result.")]
Mirrors = Annotated[bool, typer.Option("--mirrors", help="Average over the scan's mirror images: better, 4× slower.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
