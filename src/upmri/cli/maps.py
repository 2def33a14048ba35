"""`upmri maps`: coil maps of a scan as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from upmri.cli import console
from upmri.cli.options import RECONSTRUCT, Axes, Json, MaxGib, Overwrite, Quiet, Reference, Trusted, app, byte_limit
from upmri.core.errors import InputError


@app.command(
    "maps",
    panel=RECONSTRUCT,
    examples=["upmri maps scan.h5 -o maps.cfl", "upmri maps scan.h5 -o maps.npy --reference gre.h5"],
)
def maps_command(
    scan: Annotated[Path, typer.Argument(help="A scan of any supported format.", readable=False)],
    target: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="File to write: .npy, .cfl (for BART), or .h5 (the scan with its maps).", readable=False
        ),
    ],
    reference: Reference = None,
    axes: Axes = None,
    slices: Annotated[str | None, typer.Option(help="Slices to estimate, as in 3:7.")] = None,
    overwrite: Overwrite = False,
    max_gib: MaxGib = None,
    quiet: Quiet = False,
    as_json: Json = False,
    trusted: Trusted = False,  # noqa: ARG001
) -> None:
    """Write the coil maps of a scan: its own, or estimated in the best way that it offers."""
    from upmri.cli.given_files import read_scan
    from upmri.formats import atomic, check_maps_target, guard, load, save_maps
    from upmri.physics.map_quality import assess, worst
    from upmri.physics.maps import copy_removed, estimate_maps

    check_maps_target(target, overwrite=overwrite)
    atomic.check_not_input(target, [scan] if reference is None else [scan, reference])
    limit = byte_limit(max_gib)
    with console.warnings_shown(quiet=quiet):
        loaded = load(scan, slices, axes, max_bytes=limit)
        other = read_scan(reference, limit, axes)
        with guard.naming(scan):
            try:
                mapped = loaded if loaded.maps is not None and other is None else estimate_maps(loaded, other)
            except InputError as error:  # of the reference or, where this is None, of the scan
                raise error.within(path=reference if error.field == "reference" else None) from error
            assert mapped.maps is not None  # noqa: S101
            found = worst(assess(mapped.kspace, mapped.mask, mapped.maps, [copy_removed(mapped.meta)] * len(mapped)))
        save_maps(mapped, target, overwrite=overwrite)
    facts = {
        "out": str(target),
        "slices": len(mapped),
        "maps_from": mapped.meta.get("maps_from", "given"),
        "maps_unexplained": None if found is None else float(f"{found.unexplained:.3g}"),
        "maps_quality": None if found is None else found.verdict,
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    elif not quiet:
        verdict = "" if found is None else f": {found.verdict}, {found.reason}"
        console.say(f"{target}: {len(mapped)} slice{'s' * (len(mapped) != 1)}, from {facts['maps_from']}{verdict}")
