"""`upmri recon`: from scans to images."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upmri.cli import console
from upmri.cli.options import Axes, Device, Json, Mirrors, Overwrite, Quiet, Reference, Seed, Trusted, app, byte_limit
from upmri.core.errors import InputError
from upmri.methods import DEFAULT

if TYPE_CHECKING:
    from upmri.core.scan import Reconstruction


@app.command("recon")
def recon_command(
    scans: Annotated[list[Path], typer.Argument(metavar="SCAN", help="Scans of any supported format.")],
    method: Annotated[str, typer.Option("--method", "-m", help="One of `upmri methods`.")] = DEFAULT,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Weights: one of `upmri models`, or a file; by default those that suit the scan.",
        ),
    ] = None,
    maps: Annotated[
        Path | None,
        typer.Option(help="Coil maps: .npy or .cfl of maps, or a scan that has some (.h5, .npz)."),
    ] = None,
    reference: Reference = None,
    axes: Axes = None,
    navigators: Annotated[
        Path | None,
        typer.Option(help="The same echo-planar scan without phase encoding, to correct ghosts with."),
    ] = None,
    slices: Annotated[str | None, typer.Option(help="Slices to reconstruct, as in 3:7.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of iterations, for iterative methods.")] = None,
    samples: Annotated[
        int,
        typer.Option(help="Number of images to draw; more than 1 adds their standard deviation (.h5, .dcm, NIfTI)."),
    ] = 1,
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt", help="Adapt the weights to each scan first; it stops by held-out lines (see the docs)."
        ),
    ] = False,
    mirrors: Mirrors = False,
    refine: Annotated[
        bool,
        typer.Option(
            "--refine-maps", help="Refine the coil maps with a first image, and reconstruct again: better, 3× slower."
        ),
    ] = False,
    partial_fourier: Annotated[
        bool,
        typer.Option(
            "--partial-fourier/--no-partial-fourier",
            help="Fill the side of k-space that partial Fourier or an asymmetric echo left out, where recognised.",
        ),
    ] = True,
    damping: Annotated[
        float | None, typer.Option("--lambda", help="Regularisation λ; by default from the noise level.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Measure the gain over SENSE on held-out lines of the first slice: eight reconstructions."
        ),
    ] = False,
    target: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write (.nii.gz, .nii, .h5, .npy, .cfl, .png, .dcm), or a folder."),
    ] = None,
    keep_phase: Annotated[bool, typer.Option("--complex", help="Keep the phase in NIfTI.")] = False,
    with_report: Annotated[bool, typer.Option("--report", help="Write a report page as well: OUT.html.")] = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    max_gib: Annotated[
        float | None, typer.Option(help="Most GiB to read at once; by default half of the free memory.")
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Measure the stages of the reconstruction, and print their seconds.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    trusted: Trusted = False,  # noqa: ARG001
) -> None:
    """Reconstruct scans, slice by slice; by default into SCAN.nii.gz in the current folder."""
    from upmri import formats
    from upmri.core.stages import measured, stage
    from upmri.evaluation import report
    from upmri.formats import atomic, nifti
    from upmri.inference.choice import build_method
    from upmri.inference.mapped import MappedSlices
    from upmri.inference.reconstruct import reconstruct_slices

    settings: dict[str, Any] = {
        "model": model, "steps": steps, "samples": None if samples == 1 else samples, "adapt": adapt or None,
        "mirrors": mirrors or None, "refine_maps": refine or None, "damping": damping,
        "partial_fourier": None if partial_fourier else False,
    }  # fmt: skip
    with console.warnings_shown(quiet=quiet):
        build_method(method, **settings)  # a wrong setting is reported before anything is read
    limit = byte_limit(max_gib)
    inputs = [*scans, *(Path(other) for other in (model, maps, reference, navigators) if other is not None)]
    if maps is not None and reference is not None:
        raise InputError("expected --maps or --reference, got both", field="--maps")
    given = None if maps is None else formats.load_maps(maps, max_bytes=limit)
    other_scan = None if reference is None else formats.load(reference, max_bytes=limit)
    echoes = None if navigators is None else formats.load(navigators, max_bytes=limit)
    results, failed = [], False
    for path, destination in zip(scans, _targets(scans, target), strict=True):
        try:
            formats.check_target(destination, overwrite=overwrite, complex=keep_phase, deviations=samples > 1)
            report_path = destination.with_name(f"{destination.name.split('.')[0]}.html")
            atomic.check_not_input(destination, inputs)
            if samples > 1:
                atomic.check_not_input(nifti.std_path(destination), inputs)
            if with_report:
                report.check_report(report_path, overwrite=overwrite)
                atomic.check_not_input(report_path, inputs)
            seconds: dict[str, float] = {}
            with measured(seconds) if profile else nullcontext():
                with stage("opening"):
                    source = formats.open_source(path, axes=axes, max_bytes=limit)
                with source, console.warnings_shown(quiet=quiet):
                    each = MappedSlices(source, slices, maps=given, reference=other_scan, navigators=echoes)
                    rec = reconstruct_slices(
                        each, len(each), method, read=each.read,
                        check=check, seed=seed, device=device, progress=not quiet and not as_json, **settings
                    )  # fmt: skip
                with stage("writing"):
                    rec.save(destination, overwrite=overwrite, complex=keep_phase)
            if with_report:
                with console.warnings_shown(quiet=quiet):
                    report.write_report(rec, report_path, scan=path, slices=slices, axes=axes, overwrite=overwrite)
        except InputError as error:
            console.complain(error.within(path=path))
            failed = True
            continue
        stages = {"stages": {name: round(value, 4) for name, value in seconds.items()}} if profile else {}
        results.append(_summary(path, destination, rec) | stages)
        if not quiet and not as_json:
            console.say(_line(results[-1]))
            for name, value in seconds.items():
                console.say(f"  {name:18} {value:8.3f} s  {value / sum(seconds.values()):4.0%}")
    if as_json:
        typer.echo(json.dumps(results, indent=2))
    if failed:
        raise typer.Exit(2)


def _targets(scans: list[Path], target: Path | None) -> list[Path]:
    """Return the output file of each scan: the file that was named, or one file for each scan in a folder."""
    from upmri.formats import atomic, suffixes

    names = [f"{path.name.split('.')[0] or path.name}.nii.gz" for path in scans]
    if target is not None and target.name.lower().endswith(suffixes()):
        if len(scans) > 1:
            raise InputError(f"expected a folder for {len(scans)} scans, got one file, {target}", field="--out")
        return [target]
    if target is not None and target.suffix and not target.is_dir():
        raise InputError(
            f"expected a folder or a name that ends in {', '.join(suffixes())}, got {target}", field="--out"
        )
    if len(set(names)) < len(names):
        raise InputError(
            "two scans have the same name and would be written to the same file; reconstruct them one by one",
            field="SCAN",
        )
    folder = target or Path()
    atomic.make_folder(folder)
    return [folder / name for name in names]


def _summary(path: Path, destination: Path, rec: Reconstruction) -> dict[str, Any]:
    from upmri.evaluation import evaluate

    summary = {
        "scan": str(path),
        "out": str(destination),
        "method": rec.method,
        "settings": rec.settings,
        "versions": rec.versions,
        "slices": len(rec),
        "seconds": round(rec.seconds, 3),
    }
    return summary if rec.reference is None else summary | evaluate(rec)


def _line(result: dict[str, Any]) -> str:
    scores = f", PSNR {result['psnr']:.2f} dB, SSIM {result['ssim']:.3f}" if "psnr" in result else ""
    slices = f"{result['slices']} slice{'s' * (result['slices'] != 1)}"
    model = result["settings"].get("model")
    weights = "" if model is None else f" with weights {model}"
    gain = result["settings"].get("held_out_gain")
    quality = result["settings"].get("maps_quality")
    if quality in ("doubtful", "poor"):
        scores += f"; coil maps ({result['settings']['maps_from']}): {quality}"
    weights += "" if gain is None else f" ({gain:+.1f} dB over SENSE on held-out lines)"
    found = result["settings"].get("recognised")
    if found and "partial_fourier" in result["settings"]:
        scores += f"; {found}: {'used' if result['settings']['partial_fourier'] else 'not used'}"
    made = result["settings"].get("adaptation")
    if made is not None:
        weights += f", adapted in {made['seconds']:.1f} s ({made['gain']:+.2f} dB on held-out lines)"
    return f"{result['out']}: {slices} by {result['method']}{weights} in {result['seconds']:.1f} s{scores}"
