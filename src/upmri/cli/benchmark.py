"""`upmri benchmark`: the paper's tables and figures, on data at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from upmri.cli import console
from upmri.cli.options import Device, Quiet, app
from upmri.core.errors import InputError

if TYPE_CHECKING:
    from upmri.evaluation.benchmark.plan import BenchmarkConfig


@app.command()
def benchmark(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="Which scans, and which methods.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as in accelerations=[4].")
    ] = None,
    target: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results.")] = None,
    redraw: Annotated[bool, typer.Option("--redraw", help="Only draw what is there.")] = False,
    timing: Annotated[bool, typer.Option("--timing", help="Measure seconds and memory of an image instead.")] = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Compare methods on many scans. Broken off, it goes on where it was; several processes share the work."""
    from upmri.evaluation.benchmark import summary
    from upmri.evaluation.benchmark.plan import read_config
    from upmri.evaluation.benchmark.run import DATABASE, run, variants
    from upmri.evaluation.benchmark.store import Store

    try:
        told = read_config(config, tuple(changes or ()))
        variants(told)  # a wrong setting is told before anything is read
    except InputError as error:
        named = str(error).startswith((str(config), "--set"))
        raise error if named else InputError(f"{config}: {error}") from error
    folder = Path(told.output) if target is None else target
    if timing:
        _time(told, folder, device, quiet)
        return
    if redraw and not (folder / DATABASE).exists():
        raise InputError(f"{folder}: there are no results to draw; run without --redraw first")
    store = Store(folder / DATABASE) if redraw else run(told, folder, device=device, progress=not quiet)
    paths = summary.write(store, told, folder)
    left = summary.missing(store, told)
    store.close()
    if not quiet:
        console.say(f"{folder}: {', '.join(path.name for path in paths)}")
        if left:
            console.say(f"{left} results are still to come: another process is at them, or they were not asked for.")


def _time(config: BenchmarkConfig, folder: Path, device: str, quiet: bool) -> None:
    from upmri.evaluation.benchmark.timing import company, long_csv, markdown, measure
    from upmri.methods import device_name

    title = f"320×320, 16 coils, 4×, {device_name(device)}; before: {company(device)}"
    found = measure(config, device)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in ((folder / "timing.md", markdown(found, title)), (folder / "timing.csv", long_csv(found))):
        path.write_text(text)
        if not quiet:
            console.say(str(path))
