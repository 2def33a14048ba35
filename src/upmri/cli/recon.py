"""`upmri recon`: from scans to images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upmri.cli import console, many
from upmri.cli.options import (
    OUTPUT,
    RECONSTRUCT,
    SCAN,
    SETTINGS,
    Axes,
    Device,
    Json,
    MaxGib,
    Mirrors,
    Overwrite,
    Quiet,
    Reference,
    Seed,
    Trusted,
    app,
    byte_limit,
    complete_method,
    complete_model,
)
from upmri.core.errors import InputError
from upmri.methods import DEFAULT

if TYPE_CHECKING:
    from upmri.cli.recon_work import ReconWork

_LARGE = 4 << 30  # bytes of a scan from which several workers reconstruct its slices


@app.command(
    "recon",
    panel=RECONSTRUCT,
    examples=[
        "upmri recon scan.h5",
        "upmri recon scan.h5 --dry-run",
        "upmri recon scan.h5 -m sense -o image.dcm",
        "upmri recon scan.h5 --samples 8 --report",
        "upmri recon scan.h5 --adapt -o result.h5",
        "upmri recon scans -o images --cluster local",
    ],
)
def recon_command(
    scans: Annotated[
        list[Path] | None,
        typer.Argument(metavar="SCAN", help="Scans of any supported format, or folders of them.", readable=False),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", "-m", help="One of `upmri methods`.", autocompletion=complete_method)
    ] = DEFAULT,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Weights: one of `upmri models`, or a file; by default those that suit the scan.",
            autocompletion=complete_model,
        ),
    ] = None,
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt", help="Adapt the weights to each scan first; it stops by held-out lines (see the docs)."
        ),
    ] = False,
    samples: Annotated[
        int,
        typer.Option(help="Number of images to draw; more than 1 adds their standard deviation (.h5, .dcm, NIfTI)."),
    ] = 1,
    slices: Annotated[str | None, typer.Option(help="Slices to reconstruct, as in 3:7.")] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write (.nii.gz, .nii, .h5, .npy, .cfl, .png, .dcm), or a folder.",
            readable=False,
        ),
    ] = None,
    with_report: Annotated[bool, typer.Option("--report", help="Write a report page as well: OUT.html.")] = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only say what would be done: read headers, one slice and the files given beside it, write nothing.",
        ),
    ] = False,
    maps: Annotated[
        Path | None,
        typer.Option(
            help="Coil maps: .npy or .cfl of maps, or a scan that has some (.h5, .npz).",
            rich_help_panel=SCAN,
            readable=False,
        ),
    ] = None,
    reference: Reference = None,
    axes: Axes = None,
    navigators: Annotated[
        Path | None,
        typer.Option(
            help="The same echo-planar scan without phase encoding, to correct ghosts with.",
            rich_help_panel=SCAN,
            readable=False,
        ),
    ] = None,
    adapt_steps: Annotated[
        int | None, typer.Option(help="Most steps of --adapt; 90 by default.", rich_help_panel=SETTINGS)
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Number of iterations of an iterative method, or of evaluations of a draw.", rich_help_panel=SETTINGS
        ),
    ] = None,
    damping: Annotated[
        float | None,
        typer.Option("--lambda", help="Regularisation λ; by default from the noise level.", rich_help_panel=SETTINGS),
    ] = None,
    mirrors: Mirrors = False,
    refine: Annotated[
        bool,
        typer.Option(
            "--refine-maps",
            help="Refine coil maps with a first image and reconstruct again: often better at 8×, 2 to 3 times slower.",
            rich_help_panel=SETTINGS,
        ),
    ] = False,
    partial_fourier: Annotated[
        bool,
        typer.Option(
            "--partial-fourier/--no-partial-fourier",
            help="Fill the side of k-space that partial Fourier or an asymmetric echo left out, where recognised.",
            rich_help_panel=SETTINGS,
        ),
    ] = True,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Measure the gain over SENSE on held-out lines of one slice with much signal: eight reconstructions.",
            rich_help_panel=SETTINGS,
        ),
    ] = False,
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds",
            help="Bound the error by held-out lines, with 90 % confidence: four further reconstructions of each slice.",
            rich_help_panel=SETTINGS,
        ),
    ] = False,
    seed: Seed = 0,
    keep_phase: Annotated[
        bool, typer.Option("--complex", help="Keep the phase in NIfTI.", rich_help_panel=OUTPUT)
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Measure the stages of the reconstruction, and print their seconds.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    device: Device = "auto",
    max_gib: MaxGib = None,
    trusted: Trusted = False,  # noqa: ARG001
    shard: many.Shard = None,
    cluster: many.Cluster = None,
    merge: many.Merge = False,
) -> None:
    """Reconstruct scans, slice by slice; by default into SCAN.nii.gz in the current folder."""
    from upmri.cli.recon_lines import result_line, say_weights
    from upmri.cli.recon_targets import file_tasks, make_folders, pair_targets, without_existing
    from upmri.cli.recon_work import ReconWork

    if not scans and not merge:
        raise InputError("expected at least one", field="SCAN")
    folder = target or Path()
    if merge:
        pairs, ends = pair_targets(scans or [], target)
        many.merge(file_tasks(pairs, folder), folder, quiet=quiet, as_json=as_json)
        _end(ends)
        return
    settings: dict[str, Any] = {
        "model": model, "steps": steps, "samples": None if samples == 1 else samples, "adapt": adapt or None,
        "adapt_steps": adapt_steps,
        "mirrors": mirrors or None, "refine_maps": refine or None, "damping": damping,
        "partial_fourier": None if partial_fourier else False, "bounds": bounds or None,
    }  # fmt: skip
    if maps is not None and reference is not None:
        raise InputError("expected --maps or --reference, got both", field="--maps")
    others = [other for other in (model, maps, reference, navigators) if other is not None]
    work = ReconWork(
        method=method, settings=settings, maps=maps, reference=reference, navigators=navigators,
        axes=axes, slices=slices, check=check,
        keep_phase=keep_phase, with_report=with_report, overwrite=overwrite, seed=seed, device=device,
        limit=byte_limit(max_gib), inputs=tuple(map(Path, others)),
    )  # fmt: skip
    with console.warnings_shown(quiet=quiet):
        work.check_settings()  # a wrong setting is reported before anything is read
    pairs, ends = pair_targets(scans or [], target)
    if dry_run:
        with console.warnings_shown(quiet=quiet):
            _end(ends + _show_plans(work, pairs, shard, quiet=quiet, as_json=as_json))
        return
    spread = shard is not None or cluster is not None or many.several(device)
    if not spread:  # workers have devices of their own
        work.check_here()
    make_folders(pairs, target)
    if spread:
        from upmri.cli.recon_join import JoinWork

        if not folder.is_dir():
            raise InputError("expected a folder for all results", field="--out")
        work = replace(work.absolute(), split_above=_LARGE if shard is None else None)
        many.run(
            work, file_tasks(pairs, folder), folder.absolute(), label=method, shard=shard, cluster=cluster,
            device=device, overwrite=overwrite, joiner=JoinWork(work), quiet=quiet, as_json=as_json,
        )  # fmt: skip
        _end(ends)
        return
    results, total = [], len(pairs)
    if total > 1 and not overwrite:
        pairs = without_existing(pairs)
        if len(pairs) < total and not quiet and not as_json:
            console.say(f"{total - len(pairs)} of {total} images exist already: left as they are without --overwrite")
    for path, destination in pairs:
        seconds: dict[str, float] = {}
        try:
            rec = work.reconstruct(
                path, destination, progress=not quiet and not as_json, quiet=quiet, seconds=seconds if profile else None
            )
        except Exception as error:  # of an error in upmri itself, too: the other scans are still done
            ends.append(console.complain_of(error, path))
            continue
        except KeyboardInterrupt as error:
            if total == 1:
                raise
            again = "the same command without --overwrite" if overwrite else "the same command"
            console.complain(RuntimeError(f"interrupted at {path}; {again} continues with it"))
            raise console.Ended(130) from error
        stages = {"stages": {name: round(value, 4) for name, value in seconds.items()}} if profile else {}
        results.append(work.summary(path, destination, rec) | stages)
        if not quiet and not as_json:
            console.say(result_line(results[-1]))
            if rec.bounds is not None:
                console.say(rec.bounds.sentence)
            if whole := sum(seconds.values()):
                console.listing((f"  {name}", f"{s:.3f} s, {s / whole:.0%}") for name, s in seconds.items())
    if as_json:
        typer.echo(json.dumps(results, indent=2))
    elif not quiet:
        say_weights(results)
    _end(ends)


def _show_plans(
    work: ReconWork, pairs: list[tuple[Path, Path]], shard: str | None, *, quiet: bool, as_json: bool
) -> list[int]:
    """Say what would be done with each scan; return the exit statuses of those that would be an error."""
    from upmri.cli.dry_run import plan, plan_lines
    from upmri.cluster.shards import of_shard, parse_shard

    if many.several(work.device):
        work = replace(work, device="auto")
    work.check_here()
    plans, ends = [], []
    for path, destination in pairs if shard is None else of_shard(pairs, *parse_shard(shard)):
        try:
            plans.append(plan(work, path, destination))
        except Exception as error:
            ends.append(console.complain_of(error, path))
            continue
        if not as_json and not quiet:
            console.listing(plan_lines(plans[-1]))
    if as_json:
        typer.echo(json.dumps(plans, indent=2))
    elif not quiet:
        console.say("Nothing was reconstructed or written.")
    return ends


def _end(statuses: list[int]) -> None:
    """End with the exit status of all scans: 1 if one of them was an error in upmri itself, 2 if one was bad input."""
    if any(statuses):
        raise typer.Exit(1 if 1 in statuses else 2)
