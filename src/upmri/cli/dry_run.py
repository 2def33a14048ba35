"""`upmri recon --dry-run`: what would be done with each scan, from its header, one slice and the files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from upmri.cli.recon_work import ReconWork
from upmri.core.errors import InputError

if TYPE_CHECKING:
    from upmri.core.scan import Scan
    from upmri.formats import Source


def plan(work: ReconWork, path: Path, destination: Path) -> dict[str, Any]:
    """Return what a reconstruction of a scan would do; nothing is written. Wrong input is the error it would be then.

    Parameters
    ----------
    work
        Options of the reconstruction.
    path, destination
        The scan, and the file to write.
    """
    from upmri import formats
    from upmri.core.device import device_name, pick_device
    from upmri.inference.batches import slices_at_once
    from upmri.inference.choice import build_method, candidates
    from upmri.physics.maps import planned_maps

    if destination.parent.is_dir():  # otherwise the folder is made, and nothing in it can be in the way
        work.check_targets(path, destination)
    method = build_method(work.method, **work.settings)
    device = pick_device(work.device)
    with formats.open_source(path, axes=work.axes, max_bytes=work.limit) as source:
        wanted = source.indices(work.slices)
        middle = len(wanted) // 2
        scan = source.read(wanted[middle])
        _check_content(work, source, scan, middle)
        together = min(len(wanted), slices_at_once(device, scan))
        images = len(wanted) * scan.kspace[0, 0].nbytes
        given = {"--maps": work.maps, "--reference": work.reference}
        maps = next((f"{name} {file}" for name, file in given.items() if file), planned_maps(scan, source.slices))
        return {
            "scan": str(path),
            "format": source.format,
            "slices": len(wanted),
            "of_slices": source.slices,
            "coils": source.coils,
            "matrix": list(source.matrix),
            "acceleration": round(scan.acceleration, 3),
            "method": method.name,
            "settings": {key: value for key, value in work.settings.items() if value is not None and key != "model"},
            "weights": list(candidates(method)),
            "maps_from": maps,
            "device": device_name(work.device),
            "slices_at_once": together,
            "bytes_read_at_once": together * source.slice_bytes,
            "bytes_limit": work.limit,
            "bytes_of_images": images * (1 + (work.settings.get("samples") or 0)),
            "writes": [str(file) for file in work.files(destination)],
        }


def _check_content(work: ReconWork, source: Source, scan: Scan, number: int) -> None:
    """Read the files beside the scan, and do with one of its slices what a reconstruction does first with each."""
    if not bool(scan.mask.any()) and not any(bool(one.mask.any()) for one in source.each(work.slices)):
        raise InputError("expected samples in at least one slice; nothing was sampled", field="mask")
    if any((work.maps, work.reference, work.navigators)):
        with work.naming_files():
            work.mapped(source, averages=False).read(number)


def plan_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the plan of a scan as names and text."""
    of_all = "" if facts["slices"] == facts["of_slices"] else f" of {facts['of_slices']}"
    size = " × ".join(map(str, facts["matrix"]))
    count = f"{facts['slices']}{of_all} slice{'s' * (facts['of_slices'] != 1)}"
    weights = facts["weights"]
    learned = f", weights {weights[0]}" if len(weights) == 1 else ""
    if len(weights) > 1:
        learned = f", weights chosen by held-out lines from {', '.join(weights)}"
    settings = "".join(f", {name} {value}" for name, value in facts["settings"].items())
    many = facts["slices_at_once"]
    return [
        (facts["scan"], facts["format"]),
        ("  scan", f"{count}, {facts['coils']} coils, {size}, {facts['acceleration']:.2f}×"),
        ("  method", f"{facts['method']}{learned}{settings}"),
        ("  coil maps", facts["maps_from"]),
        ("  device", f"{facts['device']}, {many} slice{'s' * (many != 1)} at once"),
        (
            "  memory",
            f"{_bytes(facts['bytes_read_at_once'])} read at once (at most {_bytes(facts['bytes_limit'])}), images "
            f"{_bytes(facts['bytes_of_images'])}",
        ),
        ("  writes", ", ".join(facts["writes"])),
    ]


def _bytes(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**29 else f"{count / 2**20:.1f} MiB"
