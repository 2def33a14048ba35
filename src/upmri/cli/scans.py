"""Commands that look at scans and make them: `demo`, `info`, `simulate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from upmri.cli import console
from upmri.cli.options import Json, Overwrite, Quiet, Seed, app
from upmri.core.errors import InputError


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the table and the figures.")] = Path("demo"),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Reconstruct a real brain, undersampled 4× and 8× in simulation, with every classical method and upmri."""
    from upmri.cli import demo as show

    rows = show.run(folder, progress=not quiet and not as_json)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif not quiet:
        table = console.table("acceleration", "method", "PSNR (dB)", "SSIM", "NMSE", "s / slice")
        for row in rows:
            scores = (f"{row['psnr']:.2f}", f"{row['ssim']:.3f}", f"{row['nmse']:.4f}", f"{row['seconds']:.2f}")
            name = row["method"] if row["model"] is None else f"{row['method']} ({row['model']})"
            table.add_row(f"{row['acceleration']:g}×", Text(name), *scores)
        console.out.print(table)
        console.say(f"Simulated coils, phase and noise; maps by ESPIRiT. Pictures and table: {folder}")


@app.command()
def info(scan: Annotated[Path, typer.Argument(help="A scan of any supported format.")], as_json: Json = False) -> None:
    """Tell what is in a scan: matrix, coils, acceleration, calibration lines, noise. Reads headers and one slice."""
    from upmri import formats
    from upmri.physics.coils import estimate_noise
    from upmri.physics.masks import calibration_region

    with formats.open_source(scan) as source:
        middle = source.read(source.slices // 2)
        facts: dict[str, Any] = {"file": str(scan), "format": source.format, "slices": source.slices}
    rows, columns = calibration_region(middle.mask[0], middle.matrix[0])
    facts |= {
        "coils": middle.coils,
        "matrix": list(middle.matrix),
        "spacing_mm": middle.spacing,
        "mask": "lines" if middle.mask.shape[1] == 1 else "2-D",
        "acceleration": round(middle.acceleration, 3),
        "calibration": [rows.stop - rows.start, columns.stop - columns.start],
        "maps": middle.maps is not None,
        "reference": middle.reference is not None,
        "meta": middle.meta,
    }
    try:
        noise = middle.noise if middle.noise is not None else estimate_noise(middle).item()
        facts["noise"] = float(f"{noise:.4g}")
    except InputError:
        facts["noise"] = None
    facts["noise_from"] = "file" if middle.noise is not None else "calibration lines of the middle slice"
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    height, width = middle.matrix
    central = columns.stop - columns.start
    nominal = middle.meta.get("nominal_acceleration")
    named = "" if nominal is None else f" (nominally {console.plain(nominal)}×, calibration lines not counted)"
    lines = [
        ("format", facts["format"]),
        ("slices", str(source.slices)),
        ("coils", str(middle.coils)),
        ("matrix", f"{height} × {width} (readout × phase)"),
        ("voxel", "unknown" if middle.spacing is None else " × ".join(f"{s:g}" for s in middle.spacing) + " mm"),
        ("sampling", f"{facts['mask']}, {facts['acceleration']:.2f}× accelerated{named}"),
        ("calibration", f"{central} line{'s' * (central != 1)} of {rows.stop - rows.start} samples"),
        ("noise σ₀", "unknown" if facts["noise"] is None else f"{facts['noise']:.3g} (from the {facts['noise_from']})"),
        ("inside", ", ".join([name for name in ("maps", "reference") if facts[name]]) or "k-space only"),
        ("geometry", "known" if "geometry" in middle.meta else "unknown"),
    ]
    known = ("nominal_acceleration", "geometry")
    lines += [(console.plain(key), console.plain(value)) for key, value in middle.meta.items() if key not in known]
    table = Table(show_header=False, box=None, title=Text(console.plain(str(scan))), title_justify="left")
    for key, value in lines:
        table.add_row(Text(key), Text(value))
    console.out.print(table)


@app.command()
def simulate(
    image: Annotated[Path, typer.Argument(help="Images: .nii, .nii.gz, or .npy as (slice, row, column).")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The scan to write, .h5.")],
    coils: Annotated[int, typer.Option(help="Receive coils.")] = 16,
    accel: Annotated[float, typer.Option(help="Acceleration R; W/R lines, calibration lines included.")] = 4,
    acs: Annotated[int | None, typer.Option(help="Calibration lines; 0.32·W/R when not given.")] = None,
    noise: Annotated[float, typer.Option(help="σ₀, where the image's 99.9th percentile is 1.")] = 0.01,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Make an undersampled multi-coil scan of an image."""
    from upmri.formats import load_images
    from upmri.physics.simulate import simulate as run

    scan = run(load_images(image), coils=coils, acceleration=accel, acs=acs, noise=noise, seed=seed)
    scan.save(target, overwrite=overwrite)
    if not quiet:
        height, width = scan.matrix
        console.say(f"{target}: {len(scan)} slices, {coils} coils, {height} × {width}, {scan.acceleration:.2f}×")
