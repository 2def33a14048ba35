"""Commands that show and make scans: `demo`, `info`, `simulate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from upmri.cli import console, many
from upmri.cli.many import Cluster, Shard
from upmri.cli.options import START, Axes, Json, MaxGib, Overwrite, Quiet, Seed, Trusted, app, byte_limit
from upmri.core.errors import InputError

if TYPE_CHECKING:
    from upmri.cli.simulate_work import SimulateWork


@app.command("demo", panel=START, examples=["upmri demo", "upmri demo --out /tmp/demo"])
def demo_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the table and the figures.", readable=False)] = Path(
        "demo"
    ),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Reconstruct a real head, undersampled 4× and 8× in simulation, with every classical method and upmri."""
    from upmri.cli.demo import CAUTION, run_demo

    with console.warnings_shown(quiet=quiet):
        rows = run_demo(folder, progress=not quiet and not as_json)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif not quiet:
        table = console.table("acceleration", "method", "PSNR (dB)", "SSIM", "NMSE", "s / slice")
        for row in rows:
            scores = (f"{row['psnr']:.2f}", f"{row['ssim']:.3f}", f"{row['nmse']:.4f}", f"{row['seconds']:.2f}")
            name = row["method"] if row["model"] is None else f"{row['method']} ({row['model']})"
            table.add_row(f"{row['acceleration']:g}×", Text(name), *scores)
        console.out.print(table)
        console.say(CAUTION)
        console.say(
            "The image is real (256 × 256 pixels, part of matplotlib); coils, phase and noise are simulated, coil maps "
            f"estimated by ESPIRiT. Table, figures and report pages: {folder}"
        )


@app.command(
    "info", panel=START, examples=["upmri info scan.h5", "upmri info kspace.npy --axes coil,readout,phase,partition"]
)
def info_command(
    scan: Annotated[Path, typer.Argument(help="A scan of any supported format.", readable=False)],
    axes: Axes = None,
    as_json: Json = False,
    trusted: Trusted = False,  # noqa: ARG001
) -> None:
    """Show what a scan holds: matrix, coils, acceleration, calibration lines, noise. Reads headers and one slice."""
    from upmri.evaluation.info import info

    with console.warnings_shown(quiet=False):
        facts = info(scan, axes=axes)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        console.listing(_lines(facts))


def _lines(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return one line for each entry of :func:`upmri.info`, with units; the last entries are lists of lines."""
    readout, lines = facts["calibration"]
    series = facts["series"]
    noise = "unknown" if facts["noise"] is None else f"{facts['noise']:.3g} (from the {facts['noise_from']})"
    shown: dict[str, Any] = {
        "matrix": f"{_product(facts['matrix'])} ({'phase × partition' if _is_volume(facts) else 'readout × phase'})",
        "spacing": "unknown" if facts["spacing"] is None else f"{_product(facts['spacing'])} mm",
        "mask": facts["mask"],
        "acceleration": f"{facts['acceleration']:.2f}×",
        "recognised": "; ".join(facts["recognised"]),
        "calibration": f"{lines} line{'s' * (lines != 1)} of {readout} samples" if lines else "none",
        "series": "{1} frames of {0} place{2}".format(*series, "s" * (series[0] != 1)) if series else None,
        "noise": noise,
        "maps_from": "unknown" if facts["maps_from"] is None else facts["maps_from"],
        "maps_quality": _quality(facts),
        **{key: "yes" if facts[key] else "no" for key in ("maps", "reference", "geometry")},
    }
    pairs = [
        (key, shown.get(key, value))
        for key, value in facts.items()
        if key not in ("noise_from", "maps_unexplained", "meta", "notes") and (key, value) != ("series", None)
    ]
    pairs += [(f"meta {key}", _shortened(key, value)) for key, value in facts["meta"].items()]
    return pairs + [("note", note) for note in facts["notes"]]


def _shortened(key: str, value: Any) -> Any:
    """Return an entry of ``meta``; of frames that are listed one by one, which may be hundreds, the number."""
    listed = key == "frames" and isinstance(value, list)
    return f"{len(value)}, listed one by one in --json" if listed else value


def _is_volume(facts: dict[str, Any]) -> bool:
    axes = facts["meta"].get("axes")
    return isinstance(axes, dict) and "readout" in axes


def _quality(facts: dict[str, Any]) -> str:
    share = facts["maps_unexplained"]
    return "unknown" if share is None else f"{facts['maps_quality']} ({share:.1%} of the data unexplained)"


def _product(numbers: Sequence[float]) -> str:
    return " × ".join(f"{number:g}" for number in numbers)


@app.command(
    "simulate",
    panel=START,
    examples=[
        "upmri simulate image.nii.gz scan.h5 --accel 8",
        "upmri simulate images scans --coils 8",
        "upmri simulate volume.npy scan.h5 --pattern poisson --elliptic",
    ],
)
def simulate_command(
    image: Annotated[
        Path,
        typer.Argument(
            help="Images: .nii, .nii.gz, or .npy as (slice, row, column); or a folder of such files.", readable=False
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="The scan to write, .h5; of a folder, a folder.", readable=False)
    ],
    coils: Annotated[int, typer.Option(help="Number of receive coils.")] = 16,
    accel: Annotated[float, typer.Option(help="Acceleration R; W/R lines, calibration lines included.")] = 4,
    acs: Annotated[
        int | None,
        typer.Option(help="Number of calibration lines, by default 0.32·W/R; side of the block of a 2-D pattern."),
    ] = None,
    pattern: Annotated[
        str,
        typer.Option(help="lines, or of a volume with two phase encodings: poisson, caipi, separable."),
    ] = "lines",
    elliptic: Annotated[
        bool, typer.Option("--elliptic", help="Leave out the corners of k-space (2-D patterns).")
    ] = False,
    noise: Annotated[float, typer.Option(help="σ₀, where the image's 99.9th percentile is 1.")] = 0.01,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    max_gib: MaxGib = None,
    shard: Shard = None,
    cluster: Cluster = None,
    quiet: Quiet = False,
    trusted: Trusted = False,  # noqa: ARG001
) -> None:
    """Make an undersampled multi-coil scan of an image, or of each image in a folder."""
    from upmri.cli.simulate_work import SimulateWork

    limit = byte_limit(max_gib)
    work = SimulateWork(
        coils=coils,
        acceleration=accel,
        acs=acs,
        noise=noise,
        seed=seed,
        pattern=pattern,
        elliptic=elliptic,
        limit=limit,
    )
    if image.is_dir():
        _simulate_folder(work, image, target, shard=shard, cluster=cluster, overwrite=overwrite, quiet=quiet)
        return
    if shard is not None or cluster is not None:
        raise InputError("--shard and --cluster are for a folder of images", path=image)
    made = work.simulate(image, target, seed=seed, overwrite=overwrite)
    if not quiet:
        size = f"{made['slices']} slices, {coils} coils, {made['height']} × {made['width']}"
        console.say(f"{target}: {size}, {made['acceleration']:.2f}×")


def _simulate_folder(
    work: SimulateWork,
    folder: Path,
    target: Path,
    *,
    shard: str | None,
    cluster: str | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    from upmri.cluster.inputs import expand
    from upmri.cluster.perform import FileTask
    from upmri.formats import atomic

    found, wrong = expand([folder], images=True)
    ends = [console.complain_of(error) for error in wrong]
    if not found:
        raise console.Ended(2)
    pairs = [(path, (target / f"{name}.h5").absolute()) for path, name in found]
    for place in {target.absolute(), *(out.parent for _, out in pairs)}:
        atomic.make_folder(place)
    tasks = [
        FileTask(str(out.relative_to(target.absolute())), (str(path.absolute()),), str(out)) for path, out in pairs
    ]
    many.run(
        work, tasks, target.absolute(), label="simulate", shard=shard, cluster=cluster, overwrite=overwrite, quiet=quiet
    )
    if ends:
        raise typer.Exit(2)
