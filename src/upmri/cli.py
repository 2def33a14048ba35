"""The command line: parse, call a verb, show. Nothing here computes, and nothing here loads torch before it must."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from upmri import __version__, console, memory
from upmri.errors import InputError
from upmri.methods import DEFAULT

if TYPE_CHECKING:
    from upmri.scan import Reconstruction

app = typer.Typer(
    name="upmri",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Reconstruct accelerated multi-coil MRI without fully sampled training data.\n\n"
    "Start with `upmri demo`, then `upmri info SCAN` and `upmri recon SCAN` with a scan of your own.",
    epilog="Not for clinical use. With --debug, an error shows its whole traceback.",
)

Json = Annotated[bool, typer.Option("--json", help="Print machine-readable results.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there already.")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(f"upmri {__version__}")
        raise typer.Exit


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the table and the figures.")] = Path("demo"),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Reconstruct a real brain, undersampled 4× and 8× in simulation, with every method; show how well each does."""
    from upmri import demo as show

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
    nominal = middle.meta.get("nominal_acceleration")
    named = "" if nominal is None else f" (nominally {console.plain(nominal)}×, calibration lines not counted)"
    lines = [
        ("format", facts["format"]),
        ("slices", str(source.slices)),
        ("coils", str(middle.coils)),
        ("matrix", f"{height} × {width} (readout × phase)"),
        ("voxel", "unknown" if middle.spacing is None else " × ".join(f"{s:g}" for s in middle.spacing) + " mm"),
        ("sampling", f"{facts['mask']}, {facts['acceleration']:.2f}× accelerated{named}"),
        ("calibration", f"{columns.stop - columns.start} lines of {rows.stop - rows.start} samples"),
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


@app.command()
def recon(
    scans: Annotated[list[Path], typer.Argument(metavar="SCAN…", help="Scans of any supported format.")],
    method: Annotated[str, typer.Option("--method", "-m", help="One of `upmri methods`.")] = DEFAULT,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="Weights: one of `upmri models`, or a file; by default what suits best."
        ),
    ] = None,
    slices: Annotated[str | None, typer.Option(help="Which slices, as in 3:7.")] = None,
    steps: Annotated[int | None, typer.Option(help="Iterations, where the method has them.")] = None,
    samples: Annotated[int, typer.Option(help="Give so many images, and their deviation (.h5, .dcm, NIfTI).")] = 1,
    adapt: Annotated[int | None, typer.Option(help="Steps of training on each slice itself, first.")] = None,
    damping: Annotated[
        float | None, typer.Option("--lambda", help="Regularisation; from the noise by default.")
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write (.nii.gz, .nii, .h5, .npy, .cfl, .png, .dcm), or a folder."),
    ] = None,
    keep_phase: Annotated[bool, typer.Option("--complex", help="Keep the phase in NIfTI.")] = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    max_gib: Annotated[float | None, typer.Option(help="Most to read at once; half of free memory if unsaid.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Reconstruct scans, slice by slice; by default into SCAN.nii.gz in the current folder."""
    from upmri import formats
    from upmri.methods import build, reconstruct_slices

    settings: dict[str, Any] = {
        "model": model, "steps": steps, "samples": None if samples == 1 else samples, "adapt": adapt, "damping": damping
    }  # fmt: skip
    build(method, **settings)  # a wrong setting is told before anything is read
    limit = formats.MAX_BYTES if max_gib is None else int(max_gib * 2**30)
    results, failed = [], False
    for path, destination in zip(scans, _targets(scans, target), strict=True):
        try:
            formats.check_target(destination, overwrite=overwrite, complex=keep_phase, deviations=samples > 1)
            with formats.open_source(path, max_bytes=limit) as source:
                rec = reconstruct_slices(
                    source.each(slices), len(source.indices(slices)), method,
                    seed=seed, device=device, progress=not quiet and not as_json, **settings
                )  # fmt: skip
            rec.save(destination, overwrite=overwrite, complex=keep_phase)
        except InputError as error:
            named = str(path) in str(error) or str(destination) in str(error)
            console.complain(error if named else InputError(f"{path}: {error}"))
            failed = True
            continue
        results.append(_summary(path, destination, rec))
        if not quiet and not as_json:
            console.say(_line(results[-1]))
    if as_json:
        typer.echo(json.dumps(results, indent=2))
    if failed:
        raise typer.Exit(2)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What to train, on what, and how.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as in train.coils=8.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the output folder's checkpoint.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train a method on undersampled scans, and print where its weights are. With several GPUs: torchrun -m upmri …."""
    from upmri.training.config import read_config
    from upmri.training.loop import DivergedError
    from upmri.training.loop import train as run

    try:
        told = read_config(config, tuple(changes or ()))
    except InputError as error:
        named = str(error).startswith((str(config), "--set"))
        raise error if named else InputError(f"{config}: {error}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if quiet else "default", UserWarning)
            warnings.showwarning = console.warn
            path = run(told, resume=resume, progress=not quiet)
    except DivergedError as error:
        console.complain(error)
        raise typer.Exit(1) from error
    if not quiet and os.environ.get("RANK", "0") == "0":
        typer.echo(path)


@app.command("methods")
def methods_(as_json: Json = False) -> None:
    """List the methods, what each needs and what it does."""
    from upmri import methods

    kinds = {name: methods.find(name) for name in methods.names()}
    facts: list[dict[str, Any]] = [
        {
            "name": name,
            "needs": kind.needs,
            "evaluations": kind.evaluations,
            "weights": None if kind.lesson is None else list(methods.at_hand(name)),
            "what": kind.summary,
        }
        for name, kind in kinds.items()
    ]
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    lines = []
    for fact in facts:
        lines.append((fact["name"], fact["what"]))
        if fact["weights"] is not None:
            count = f"{fact['evaluations']} evaluation{'s' * (fact['evaluations'] != 1)}"
            held = console.plain(fact["weights"]) or "train it"
            lines.append(("", f"learns from {fact['needs']}, {count}, weights: {held}"))
    console.listing(lines)


@app.command()
def models(as_json: Json = False) -> None:
    """List the weights that come with the package: what each was trained on, and what was measured of it."""
    from upmri import weights

    facts: list[dict[str, Any]] = []
    for name in weights.names():
        card = weights.card(name)
        facts.append(
            {
                "name": name,
                "method": card.get("method"),
                "megabytes": round(weights.find(name).stat().st_size / 1e6, 1),
                "about": card.get("about"),
                "seconds": weights.seconds(card),
                "figures": card.get("figures"),
                "licence": card.get("licence"),
            }
        )
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    elif facts:
        lines: list[tuple[str, Any]] = []
        for fact in facts:
            lines += [
                (fact["name"], f"{fact['method']}, {fact['megabytes']} MB"),
                ("  trained on", fact["about"]),
                ("  for", fact["seconds"] and f"{fact['seconds']:g} s"),
                ("  measured", fact["figures"]),
                ("  licence", fact["licence"]),
            ]
        console.listing(lines)
    else:
        console.say("No weights come with this installation; `upmri train` makes some.")


def _targets(scans: list[Path], target: Path | None) -> list[Path]:
    """Where each scan's image goes: the file that was named, or a file a scan in the folder that was."""
    from upmri.formats import suffixes

    names = [f"{path.name.split('.')[0] or path.name}.nii.gz" for path in scans]
    if target is not None and target.name.lower().endswith(suffixes()):
        if len(scans) > 1:
            raise InputError(f"--out: {target} is one file for {len(scans)} scans; give a folder")
        return [target]
    if target is not None and target.suffix and not target.is_dir():
        raise InputError(f"--out: {target} is neither a folder nor a name that ends in {', '.join(suffixes())}")
    if len(set(names)) < len(names):
        raise InputError("SCAN: two scans of the same name would be written to the same file; do them one by one")
    folder = target or Path()
    folder.mkdir(parents=True, exist_ok=True)
    return [folder / name for name in names]


def _summary(path: Path, destination: Path, rec: Reconstruction) -> dict[str, Any]:
    from upmri.evaluation import evaluate

    summary = {
        "scan": str(path),
        "out": str(destination),
        "method": rec.method,
        "settings": rec.settings,
        "slices": len(rec),
        "seconds": round(rec.seconds, 3),
    }
    return summary if rec.reference is None else summary | evaluate(rec)


def _line(result: dict[str, Any]) -> str:
    scores = f", PSNR {result['psnr']:.2f} dB, SSIM {result['ssim']:.3f}" if "psnr" in result else ""
    slices = f"{result['slices']} slice{'s' * (result['slices'] != 1)}"
    model = result["settings"].get("model")
    weights = "" if model is None else f" with weights {model}"
    gain = result["settings"].get("held_out")
    weights += "" if gain is None else f" ({gain:+.1f} dB over SENSE on held-out lines)"
    return f"{result['out']}: {slices} by {result['method']}{weights} in {result['seconds']:.1f} s{scores}"


def main() -> None:
    """Run the command line: exit 2 is bad input, 1 the program's own failure."""
    # On a machine that is busy with other work, threads that spin while they wait make torch many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    memory.keep_freed()
    try:
        # --debug is understood anywhere, also before it is known which command is meant.
        app(args=[word for word in sys.argv[1:] if word != "--debug"], prog_name="upmri")
    except InputError as error:
        console.complain(error)
        sys.exit(2)
    except KeyboardInterrupt:
        console.err.print("upmri: interrupted", style="red")
        sys.exit(130)
    except Exception as error:
        console.complain(RuntimeError(f"{type(error).__name__}: {error} (a fault of the program; --debug shows where)"))
        if console.debugging():
            raise
        sys.exit(1)


if __name__ == "__main__":
    main()
