"""What a scan holds, as a dictionary: size, sampling, calibration lines, noise, and notes for the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Any

from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Scan, slice_of
from upmri.physics.coils import estimate_noise
from upmri.physics.epi import lines_alternate
from upmri.physics.espirit import FEW_LINES, MIN_LINES
from upmri.physics.frames import places
from upmri.physics.map_quality import assess, worst
from upmri.physics.maps import copy_removed, found_maps, named
from upmri.physics.masks import calibration_lines, calibration_region
from upmri.physics.partial_fourier import recognise
from upmri.physics.sampling_patterns import describe_mask


def info(scan: Scan | Any, *, axes: str | None = None) -> dict[str, Any]:
    """Describe a scan. Of a file, only the headers and the middle slice are read; the next ones if it has no samples.

    Parameters
    ----------
    scan
        A file of any supported format, a :class:`~upmri.Scan`, or complex k-space as a NumPy array or tensor,
        ([slice,] coil, readout, phase).
    axes
        Names of the axes of an array in a file, as of :func:`upmri.load`.

    Returns
    -------
    dict
        JSON values. What differs between slices is that of the middle slice, or of the sampled slice nearest to it.

        - ``name``, ``file`` (None if it is not one), ``format``
        - ``series``, [places, frames] of a dynamic scan, or None
        - ``slices``, ``coils``, ``matrix`` [readout, phase], ``spacing`` in mm [readout, phase, slice] or None
        - ``mask``, "lines" or "2-D", and ``acceleration``
        - ``recognised``, in words: the kind of scan and of mask, then partial Fourier, an asymmetric echo, echo-planar
          readouts where there are any
        - ``calibration``, the fully sampled block around the centre of k-space, [readout, phase]
        - ``noise``, σ₀ or None, and ``noise_from``, where it is from
        - ``maps_from``, where its coil maps are from, or would be when it is reconstructed, ``maps_unexplained``, the
          share of the data around DC that they leave unexplained, and ``maps_quality``, "good", "doubtful" or "poor";
          None where they cannot be estimated
        - ``maps``, ``reference``, ``geometry``: whether coil maps, a reference image and the position and orientation
          in the patient are known
        - ``meta``, whatever else the file holds
        - ``notes``, a list of sentences: what may surprise or prevent a reconstruction

    Examples
    --------
    >>> import numpy as np, upmri
    >>> facts = upmri.info(np.ones((8, 64, 48), np.complex64))
    >>> facts["coils"], facts["matrix"], facts["acceleration"]
    (8, [64, 48], 1.0)
    """
    if isinstance(scan, str | PathLike):
        from upmri.formats import open_source

        with open_source(scan, axes=axes) as source:  # type: ignore[arg-type]
            return _describe(*_nearest_sampled(source.read, source.slices, scan), source.slices, source.format, scan)
    kind = "Scan" if isinstance(scan, Scan) else "tensor" if isinstance(scan, Tensor) else "NumPy array"
    whole = scan if isinstance(scan, Scan) else Scan(kspace=scan)
    return _describe(*_nearest_sampled(partial(slice_of, whole), len(whole)), len(whole), kind)


def _nearest_sampled(
    read: Callable[[int], Scan], slices: int, file: str | PathLike[str] | None = None
) -> tuple[Scan, int]:
    """Return the sampled slice that is nearest to the middle one, and its number."""
    for index in sorted(range(slices), key=lambda index: abs(index - slices // 2)):
        if bool((found := read(index)).mask.any()):
            return found, index
    raise InputError("expected samples in at least one slice; nothing was sampled", field="mask", path=file)


def _describe(
    middle: Scan, index: int, slices: int, kind: str, file: str | PathLike[str] | None = None
) -> dict[str, Any]:
    where = "the middle slice" if index == slices // 2 else f"slice {index}"
    moved = [] if index == slices // 2 else [f"Nothing was sampled in the middle slice: slice {index} is described."]
    rows, columns = calibration_region(middle.mask[0], middle.matrix[0])
    noise, noise_from, notes = _noise(middle, where)
    mapped, more = _maps(middle, slices)
    series, found = _series(middle, slices)
    calibration = [rows.stop - rows.start, columns.stop - columns.start]
    return {
        "name": middle.name,
        "file": None if file is None else str(file),
        "format": kind,
        "recognised": _recognised(middle, slices),
        "slices": slices,
        "series": series,
        "coils": middle.coils,
        "matrix": list(middle.matrix),
        "spacing": None if middle.spacing is None else list(middle.spacing),
        "mask": "lines" if middle.mask.shape[1] == 1 else "2-D",
        "acceleration": round(middle.acceleration, 3),
        "calibration": calibration,
        "noise": noise,
        "noise_from": noise_from,
        **mapped,
        "maps": middle.maps is not None,
        "reference": middle.reference is not None,
        "geometry": "geometry" in middle.meta,
        "meta": middle.meta,
        "notes": moved + found + notes + _notes(middle) + _order(middle, slices, kind) + more,
    }


def _recognised(middle: Scan, slices: int) -> list[str]:
    """Name the kind of scan and of mask, and what is special about the way in which k-space was acquired."""
    axes = middle.meta.get("axes")
    positions = axes.get("readout", 0) if isinstance(axes, dict) else 0
    if positions:
        frames = f", {slices // positions} frames" if slices > positions else ""
        kind = f"3-D with two phase encodings, cut along its readout into {positions} slices{frames}"
    else:
        kind = "2-D" if middle.mask.shape[1] == 1 else "2-D, or slices of a 3-D scan"
    epi = middle.meta.get("echo-planar")
    if epi is None and lines_alternate(middle):
        epi = "every second line backwards and not marked so: give the same scan without phase encoding as --navigators"
    found = [kind, describe_mask(middle.mask[0], middle.matrix[0])]
    found += [f"echo-planar readouts, {epi}"] if isinstance(epi, str) else []
    return found + [str(side) for side in recognise(middle.mask[0], middle.kspace[0])]


def _series(middle: Scan, slices: int) -> tuple[list[int] | None, list[str]]:
    """Return the numbers of places and of frames of a dynamic scan, and a note that names it."""
    place_of = places(middle.meta, slices)
    if place_of is None:
        return None, []
    count = max(place_of) + 1
    frames = max(place_of.count(place) for place in range(count))
    where = "one place" if count == 1 else f"each of {count} places"
    missing = count * frames - slices
    gaps = f", of which {missing} {'is' if missing == 1 else 'are'} not in the file" if missing else ""
    return [count, frames], [
        f"A dynamic scan: {frames} frames of {where}{gaps}. The method cine reconstructs frames together; so do the "
        "classical llr, l+s and tv-t."
    ]


def _noise(middle: Scan, where: str) -> tuple[float | None, str | None, list[str]]:
    """Return σ₀ to four digits, where it is from, and a note if it is not known."""
    if middle.noise is not None:
        return float(f"{middle.noise:.4g}"), "scan", []
    try:
        sigma = float(f"{estimate_noise(middle).item():.4g}")
        kind = "calibration lines" if calibration_lines(middle.mask[0], middle.matrix[0]) >= 3 else "lines"
        return sigma, f"{kind} of {where}", []
    except InputError as error:
        return None, None, [f"The noise level is not known and cannot be estimated: {error.message}."]


def _maps(middle: Scan, slices: int) -> tuple[dict[str, Any], list[str]]:
    """Return where coil maps are from and how well they suit the middle slice, and notes."""
    try:
        if middle.maps is not None:
            maps, way, copies = middle.maps, middle.meta.get("maps_from", "given"), [copy_removed(middle.meta)]
        else:
            chosen = found_maps(middle.kspace, middle.mask)
            maps, way, copies = chosen.maps, named(chosen.ways), chosen.copies
        found = worst(assess(middle.kspace, middle.mask, maps, copies))
    except InputError as error:
        return {"maps_from": None, "maps_unexplained": None, "maps_quality": None}, [f"No coil maps: {error.message}."]
    share, verdict = (None, None) if found is None else (float(f"{found.unexplained:.3g}"), found.verdict)
    notes = []
    if way == "joint estimation" and places(middle.meta, slices) is not None:
        notes.append("There are several frames: if their average has calibration lines, coil maps are from it instead.")
    if found is not None and found.copied:
        notes.append(f"The coil maps are {verdict}: {found.reason}.")
    elif verdict in ("doubtful", "poor"):
        notes.append(
            f"The coil maps are {verdict}: {share:.1%} of the data around the centre are not explained by them."
        )
    return {"maps_from": way, "maps_unexplained": share, "maps_quality": verdict}, notes


def _notes(middle: Scan) -> list[str]:
    notes = []
    nominal = middle.meta.get("nominal_acceleration")
    if nominal is not None:
        notes.append(f"The file states {nominal}× acceleration, which does not count the calibration lines.")
    if bool(middle.mask.all()):
        notes.append("All of k-space was sampled.")
    lines = calibration_lines(middle.mask[0], middle.matrix[0])
    if middle.maps is None and MIN_LINES <= lines < FEW_LINES:
        notes.append(f"There are only {lines} calibration lines: the image can show wrong structure.")
    if middle.coils == 1:
        notes.append("There is one coil: parallel imaging needs several.")
    return notes


def _order(middle: Scan, slices: int, kind: str) -> list[str]:
    """Return a note for an array of four axes without names that looks like a 3-D scan."""
    if not kind.startswith("NumPy") or slices == 1 or middle.mask.shape[1] == 1 or "axes" in middle.meta:
        return []
    return [
        f"The array is read as {slices} slices of {middle.coils} coils, and its mask is 2-D. If it is a 3-D scan with "
        "two phase encodings, name its axes, as in --axes coil,readout,phase,partition."
    ]
