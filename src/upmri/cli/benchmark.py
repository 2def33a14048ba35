"""`upmri benchmark`: tables and figures that compare methods on many scans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from upmri.cli import console
from upmri.cli.many import Cluster, several
from upmri.cli.options import COMPARE, Device, Quiet, Trusted, app
from upmri.core.errors import InputError

if TYPE_CHECKING:
    from upmri.evaluation.benchmark.plan import BenchmarkConfig
    from upmri.evaluation.benchmark.store import Store


@app.command(
    "benchmark",
    panel=COMPARE,
    examples=[
        "upmri benchmark mine.yaml",
        "upmri benchmark mine.yaml --set accelerations=[4] -o results",
        "upmri benchmark mine.yaml --redraw",
    ],
)
def benchmark_command(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.yaml", help="Scans and methods to compare.", readable=False)
    ],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in accelerations=[4].")
    ] = None,
    target: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results.", readable=False)] = None,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Only write tables and figures of the results that exist.")
    ] = False,
    timing: Annotated[bool, typer.Option("--timing", help="Measure time and memory for one image instead.")] = False,
    device: Device = "auto",
    cluster: Cluster = None,
    quiet: Quiet = False,
    trusted: Trusted = False,  # noqa: ARG001
) -> None:
    """Compare methods on many scans. After an interruption it continues; several processes share the work."""
    from upmri.evaluation.benchmark import summary
    from upmri.evaluation.benchmark.plan import read_config
    from upmri.evaluation.benchmark.run import DATABASE, run_benchmark, variants
    from upmri.evaluation.benchmark.store import Store

    try:
        plan = read_config(config, tuple(changes or ()))
        variants(plan)  # a wrong setting is reported before anything is read
    except InputError as error:
        raise error if error.field == "--set" else error.within(path=config) from error
    folder = Path(plan.output) if target is None else target
    if redraw and not timing and not (folder / DATABASE).exists():
        raise InputError("there are no results to draw; run without --redraw first", path=folder)
    with console.warnings_shown(quiet=quiet):
        if timing:
            _measure_times(plan, folder, device, quiet)
            return
        if redraw:
            store = Store(folder / DATABASE)
        elif cluster is not None:
            store = _spread(plan, folder, cluster, device, quiet)
        else:
            store = run_benchmark(plan, folder, device=device, progress=not quiet)
        paths = summary.write_summary(store, plan, folder)
        left = summary.missing(store, plan)
        store.close()
    if not quiet:
        console.say(f"{folder}: {', '.join(path.name for path in paths)}")
        if left:
            console.say(f"{left} results are missing: another process computes them, or --redraw was given.")


def _spread(plan: BenchmarkConfig, folder: Path, cluster: str, device: str, quiet: bool) -> Store:
    from upmri.cluster.dask_engine import dask_engine
    from upmri.evaluation.benchmark.by_workers import spread_benchmark

    with dask_engine(cluster, device) as engine:
        where = "auto" if several(device) else device  # each worker has its own
        return spread_benchmark(plan, folder, engine.results, device=where, progress=not quiet)


def _measure_times(plan: BenchmarkConfig, folder: Path, device: str, quiet: bool) -> None:
    from upmri.core.device import device_name
    from upmri.evaluation.benchmark.timing import machine_load, measure, timing_csv, timing_markdown
    from upmri.formats import atomic

    title = f"320×320, 16 coils, 4×, {device_name(device)}; before: {machine_load(device)}"
    found = measure(plan, device)
    atomic.make_folder(folder)
    for name, text in (("timing.md", timing_markdown(found, title)), ("timing.csv", timing_csv(found))):
        with atomic.staged(folder / name, overwrite=True) as stage:
            stage.write_text(text, encoding="utf-8")
        if not quiet:
            console.say(str(folder / name))
