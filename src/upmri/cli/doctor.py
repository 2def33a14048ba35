"""`upmri doctor`: what this installation can do, and what is missing or broken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from upmri.cli import console
from upmri.cli.options import START, Json, app
from upmri.core import fork_server

if TYPE_CHECKING:
    from upmri.cli.installation import Diagnosis


@app.command("doctor", panel=START, examples=["upmri doctor", "upmri doctor --json"])
def doctor_command(as_json: Json = False) -> None:
    """Test the installation: packages, accelerators, compile cache, cluster; exit status 1 if it cannot reconstruct."""
    from upmri.cli.diagnosis import examine

    found = examine()
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        console.listing(_lines(found))
        for finding in found.problems:
            console.warn(f"{finding.what}; {finding.remedy}")
        if found.healthy:
            console.say("Everything that reconstruction needs is installed.")
    if not found.healthy:
        raise typer.Exit(1)


def _lines(found: Diagnosis) -> list[tuple[str, str]]:
    from upmri.cli.diagnosis import FEATURES

    threads = "" if found.threads is None else f", torch uses {found.threads} thread{'s' * (found.threads != 1)}"
    lines = [
        ("upmri", f"{found.upmri}, Python {found.python}, {found.system}"),
        ("packages", ", ".join(f"{p.name} {p.version or 'missing'}" for p in found.packages)),
        ("CPU", f"{found.cores} core{'s' * (found.cores != 1)}{threads}"),
    ]
    for i, device in enumerate(found.devices):
        works = "" if device["error"] is None else ", cannot be used"
        if device.get("seconds") is not None:
            works = f", reconstructs a slice in {device['seconds']:.2f} s, the first in {device['first_seconds']:.1f} s"
        lines.append((f"cuda:{i}", f"{device['name']}, {device['free_gib']:g} of {device['gib']:g} GiB free{works}"))
    if not found.devices:
        why = "none found" if found.cuda else "none: this torch is built for the CPU only"
        lines.append(("accelerator", why if found.threads is not None else "unknown"))
    lines += [] if found.compile_cache is None else [("compile cache", found.compile_cache)]
    if found.memory_gib is not None:
        free = "" if found.free_memory_gib is None else f"{found.free_memory_gib:g} of "
        lines.append(("memory", f"{free}{found.memory_gib:g} GiB{' free' * bool(free)}"))
    for extra, packages in found.extras.items():
        installed = bool(packages) and all(p.version for p in packages)
        state = ", ".join(f"{p.name} {p.version}" for p in packages) if installed else f"pip install 'upmri[{extra}]'"
        lines.append((f"extra {extra}", f"{FEATURES[extra]}: {state}"))
    lines += [] if found.cluster is None else [("cluster", found.cluster)]
    limits = f"in a process with limits: {', '.join(found.protections) or 'none'}"
    lines.append(
        ("files are read", limits if fork_server.wanted() else "in this process (UPMRI_TRUSTED=1, or no fork)")
    )
    lines.append(("weights", ", ".join(found.weights) or "none"))
    lines += list(found.environment.items())
    named = [name for name, installed in found.programs.items() if installed]
    lines.append(("for tests only", ", ".join(named) or "none of the programs that tests compare with"))
    return lines
