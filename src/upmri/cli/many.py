"""Commands on many files by many processes: shards, devices, clusters; one bar, and one summary of the folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from upmri.cli import console
from upmri.cli.options import MANY
from upmri.core.errors import InputError
from upmri.core.progress import bar

if TYPE_CHECKING:
    from upmri.cluster.engine import Engine
    from upmri.cluster.perform import FileTask, Outcome, Work

Shard = Annotated[
    str | None,
    typer.Option(
        metavar="I/N|auto",
        help="Do every N-th only, from the I-th on; auto: I and N of a Slurm array.",
        rich_help_panel=MANY,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="Do it by the workers of a Dask cluster: local, local:4, ADDRESS or slurm:FILE (see the docs).",
        rich_help_panel=MANY,
    ),
]
Merge = Annotated[
    bool,
    typer.Option(
        "--merge",
        help="Only write table, JSON and index page of the folder --out, of all shards.",
        rich_help_panel=MANY,
    ),
]


def several(device: str) -> bool:
    """Return whether a text names several devices."""
    return device == "all" or "," in device


@contextmanager
def engine_for(shard: str | None, cluster: str | None, device: str) -> Iterator[Engine]:
    """Yield the engine that these options ask for; options that contradict each other are an error."""
    from upmri.cluster.dask_engine import dask_engine
    from upmri.cluster.engine import OnDevices, Serial
    from upmri.cluster.place import devices

    if shard is not None and cluster is not None:
        raise InputError("expected --shard or --cluster, got both", field="--shard")
    if cluster is not None:
        with dask_engine(cluster, device) as engine:
            yield engine
    elif several(device):
        yield OnDevices(_checked(devices(device)))
    else:
        yield Serial()


def run(
    work: Work,
    tasks: Sequence[FileTask],
    folder: Path,
    *,
    label: str,
    shard: str | None,
    cluster: str | None,
    device: str = "auto",
    overwrite: bool = False,
    joiner: Work | None = None,
    quiet: bool,
    as_json: bool = False,
) -> None:
    """Do all tasks by the engine of these options, and show what became of them; a bad one is exit status 2.

    Parameters
    ----------
    work, tasks, folder, overwrite, joiner
        As of :func:`upmri.cluster.all_tasks.run_tasks`.
    label
        Label of the bar.
    shard, cluster, device
        Values of the options.
    quiet, as_json
        Whether nothing but errors is printed; whether the JSON is printed.
    """
    from upmri.cluster.all_tasks import run_tasks
    from upmri.cluster.shards import of_shard, parse_shard

    part = None if shard is None else parse_shard(shard)
    mine = tasks if part is None else of_shard(tasks, *part)
    try:
        with (
            engine_for(shard, cluster, device) as engine,
            bar(label, len(mine), shown=not quiet and not as_json) as advance,
        ):

            def ended(outcome: Outcome) -> None:
                if outcome.line:
                    console.complain(RuntimeError(outcome.line))
                advance()

            report = run_tasks(
                engine, work, mine, folder, overwrite=overwrite, patient=part is None, joiner=joiner, ended=ended
            )
    except KeyboardInterrupt as error:
        again = "the same command without --overwrite" if overwrite else "the same command"
        console.complain(RuntimeError(f"{folder}: interrupted; what is done is kept, and {again} does the rest"))
        raise console.Ended(130) from error
    counts = report.counts
    if not quiet and not as_json:
        words = [f"{counts['done']} done"]
        words += [f"{counts['finished']} finished before"] * bool(counts["finished"])
        words += [f"{counts['taken']} with other processes"] * bool(counts["taken"])
        words += [f"{len(report.wrong)} bad"] * bool(report.wrong)
        console.say(f"{folder}: {', '.join(words)}")
    if part is None:
        _summarise(folder, report.wrong, quiet=quiet, as_json=as_json)
    if report.wrong:
        raise typer.Exit(1 if counts["failed"] else 2)


def merge(tasks: Sequence[FileTask], folder: Path, *, quiet: bool, as_json: bool) -> None:
    """Join what the shards of a folder did; tasks that none of them did are named, and are exit status 2."""
    from upmri.cluster.records import TaskRecords

    records = TaskRecords(folder)
    if next(iter(records), None) is None:
        raise InputError("there are no records of shards; run them first", path=folder)
    missing = [task for task in tasks if records.read(task.name) is None]
    for task in missing:
        console.complain(InputError("is not done yet", path=task.inputs[0]))
    bad = _summarise(folder, {}, quiet=quiet, as_json=as_json)
    if missing or bad:
        raise typer.Exit(2)


def _summarise(folder: Path, wrong: dict[str, str], *, quiet: bool, as_json: bool) -> int:
    """Write table, JSON and page of a folder, and say so; return the number of bad records."""
    from upmri.cluster.folder_summary import summarise_folder

    totals = summarise_folder(folder, wrong)
    if as_json:
        with totals.files[0].open(encoding="utf-8") as file:
            for line in file:
                typer.echo(line, nl=False)
    elif not quiet:
        names = ", ".join(path.name for path in totals.files)
        console.say(f"{folder}: {totals.done} result{'s' * (totals.done != 1)}, {totals.bad} bad; {names}")
    return totals.bad


def _checked(names: list[str]) -> list[str]:
    from upmri.core.device import pick_device

    for name in names:
        pick_device(name)
    return names
