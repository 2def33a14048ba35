"""What a report shows: the results of one scan side by side, their scores, and how each was made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from upmri.core import geometry
from upmri.core.errors import InputError
from upmri.core.printable import one_line
from upmri.core.scan import Reconstruction, Scan
from upmri.evaluation.report.coil_views import IN_FILE
from upmri.evaluation.report.pictures import (
    Measured,
    Pairs,
    Picture,
    draw_image,
    draw_result,
    draw_scan,
    magnitude_of,
    times,
    white_of,
)
from upmri.evaluation.report.statements import statements_of
from upmri.formats.source import SliceSelection
from upmri.physics.frames import places

Result = Reconstruction | str | Path

_MOST = 400  # largest number of metadata entries that are listed


@dataclass(frozen=True, eq=False)
class Study:
    """The content of a page: pictures, measured k-space, and facts as pairs of text."""

    title: str
    shape: tuple[int, int, int]
    spacing: tuple[float, float, float] | None
    white: float
    deviation: float
    pictures: list[Picture]
    measured: Measured | None
    facts: Pairs
    meta: Pairs
    maps_from: str  # where the coil maps that are shown are from
    affine: list[list[float]] | None  # from (row, column, slice) to mm in the patient, three rows of four numbers
    next_frame: list[int] | None  # of each slice of a dynamic scan, the slice that shows its place next


def gather_study(
    results: Iterable[Result] | Result,
    scan: Scan | str | Path | None = None,
    slices: SliceSelection = None,
    axes: str | None = None,
) -> Study:
    """Check that results belong to one scan, and compute what a page shows of them."""
    named = _read([results] if isinstance(results, Reconstruction | str | Path) else list(results))
    first = named[0][1]
    shape = (first.image.shape[0], first.image.shape[1], first.image.shape[2])
    for name, rec in named:
        if rec.image.shape != first.image.shape:
            raise InputError(
                f"expected {times(shape)} for {name} as for {named[0][0]}, got {times(rec.image.shape)}; "
                "a report shows results of one scan",
                field="results",
            )
    measured, found = (None, None) if scan is None else draw_scan(scan, slices, shape, axes)
    meta = next((rec.meta for _, rec in named if rec.meta), {})
    reference = _reference(named, found)
    spacing = _spacing(named)
    shown = first.image if reference is None else reference
    white = white_of(magnitude_of(shown))
    pictures = [] if reference is None else [draw_image("reference", reference, white, is_reference=True)]
    for label, (name, rec) in zip(_labels(named), named, strict=True):
        details = ([] if name == label else [("file", one_line(name))]) + _how_made(rec)
        pictures.append(draw_result(label, rec, reference, white, details=details, statements=statements_of(rec)))
    title = next((one_line(rec.name) for _, rec in named if rec.name), "")
    return Study(
        title=title or "Reconstruction",
        shape=shape,
        spacing=spacing,
        white=white,
        deviation=max((white_of(rec.std.numpy()) for _, rec in named if rec.std is not None), default=white / 10),
        pictures=pictures,
        measured=measured,
        facts=_facts(shape, spacing) + ([] if measured is None else measured.facts),
        meta=_listed(meta),
        maps_from="" if measured is None else _maps_from(measured, [rec for _, rec in named]),
        affine=_affine(spacing, meta),
        next_frame=_next_frame(meta, shape[0]),
    )


def _read(results: Sequence[Result]) -> list[tuple[str, Reconstruction]]:
    """Return the name and the reconstruction of each result."""
    from upmri.formats import load_reconstruction

    if not results:
        raise InputError("expected at least one reconstruction", field="results")
    named = []
    for index, result in enumerate(results):
        if isinstance(result, str | Path):
            named.append((Path(result).name, load_reconstruction(result)))
        elif isinstance(result, Reconstruction):
            named.append((one_line(result.method) or f"result {index + 1}", result))
        else:
            raise InputError(f"expected reconstructions or .h5 files, got {type(result).__name__}", field="results")
    return named


def _labels(named: Sequence[tuple[str, Reconstruction]]) -> list[str]:
    """Return the name of each panel: the method and, if needed, whether it was adapted, weights, file or a number."""
    labels = [one_line(rec.method) or name for name, rec in named]
    adapted = [_adapted(rec) for _, rec in named]
    labels = [label + more if labels.count(label) > 1 else label for label, more in zip(labels, adapted, strict=True)]
    models = [one_line(Path(str(rec.settings.get("model") or "")).stem) for _, rec in named]
    for details in (models, [Path(name).stem for name, _ in named]):
        labels = [
            f"{label} ({more})" if labels.count(label) > 1 and more not in label else label
            for label, more in zip(labels, details, strict=True)
        ]
    labels = [f"{label} {index + 1}" if labels.count(label) > 1 else label for index, label in enumerate(labels)]
    return labels


def _adapted(rec: Reconstruction) -> str:
    facts = rec.settings.get("adaptation")
    return ", adapted" if isinstance(facts, dict) and facts.get("steps") else ""


def _reference(named: Sequence[tuple[str, Reconstruction]], scanned: Tensor | None) -> Tensor | None:
    """Return the one reference of all results, or else that of the scan; an error if they differ."""
    known = [(name, rec.reference) for name, rec in named if rec.reference is not None]
    if not known:
        return scanned
    first, reference = known[0]
    for name, other in known[1:]:
        if np.abs(magnitude_of(other) - magnitude_of(reference)).max() > 1e-3 * magnitude_of(reference).max():
            raise InputError(
                f"the reference of {name} is not that of {first}; a report shows results of one scan", field="results"
            )
    return reference


def _spacing(named: Sequence[tuple[str, Reconstruction]]) -> tuple[float, float, float] | None:
    known = [(name, rec.spacing) for name, rec in named if rec.spacing is not None]
    for name, spacing in known:
        if not np.allclose(spacing, known[0][1], rtol=1e-3):
            raise InputError(
                f"the voxels of {name} are {times(spacing)} mm, those of {known[0][0]} {times(known[0][1])} mm; "
                "a report shows results of one scan",
                field="results",
            )
    return known[0][1] if known else None


def _facts(shape: tuple[int, int, int], spacing: tuple[float, float, float] | None) -> Pairs:
    slices, height, width = shape
    facts = [("slices", str(slices)), ("matrix", f"{height} × {width}")]
    return facts if spacing is None else [*facts, ("voxel", f"{times(spacing)} mm")]


def _maps_from(measured: Measured, recs: Sequence[Reconstruction]) -> str:
    """Return where the coil maps that are shown are from, and which others the results used: those of an option."""
    shown = measured.coils.maps_from
    used = {one_line(rec.settings["maps_from"]) for rec in recs if rec.settings.get("maps_from")}
    others = sorted(way for way in used if way not in shown and not (way == "given" and shown == IN_FILE))
    return f"{shown}; not shown: {', '.join(others)}, which results used" if shown and others else shown


def _affine(spacing: tuple[float, float, float] | None, meta: dict[str, Any]) -> list[list[float]] | None:
    """Return where voxels are in the patient, None if that is not known."""
    try:
        matrix = None if spacing is None else geometry.affine(spacing, meta)
    except InputError:  # a geometry that is wrong is none
        return None
    return None if matrix is None else matrix[:3].tolist()


def _how_made(rec: Reconstruction) -> Pairs:
    """Return how a result was made: method, versions, time, weights and their hash, and every setting."""
    slices = len(rec)
    pairs = [("method", one_line(rec.method) or "unknown"), ("made with", one_line(rec.versions) or "unknown")]
    if rec.seconds:
        pairs.append(
            ("time", f"{rec.seconds:.3g} s" + (f", {rec.seconds / slices:.3g} s for each slice" * (slices > 1)))
        )
    settings = dict(rec.settings)
    if settings.get("model") is not None:
        # Only the name of the file: its folder may hold the name of a person or a machine.
        pairs.append(("weights", one_line(Path(str(settings.pop("model"))).name)))
    if settings.get("sha256") is not None:
        pairs.append(("weights' SHA-256", one_line(settings.pop("sha256"))))
    return pairs + _listed(settings)


def _listed(values: dict[str, Any]) -> Pairs:
    """Return values as pairs of text, limited in length and number."""
    try:
        pairs = [(one_line(key), one_line(value)) for key, value in values.items() if value is not None]
    except RecursionError:
        return [("…", "nested too deeply to be shown")]
    return pairs if len(pairs) <= _MOST else [*pairs[:_MOST], ("…", f"{len(pairs) - _MOST} more")]


def _next_frame(meta: dict[str, Any], slices: int) -> list[int] | None:
    """Return, for each slice, the next one of the same place, after the last its first; None without frames."""
    place_of = places(meta, slices)
    if place_of is None:
        return None
    following = range(1, slices + 1)
    return [
        next(other % slices for other in (i + step for step in following) if place_of[other % slices] == place_of[i])
        for i in range(slices)
    ]
