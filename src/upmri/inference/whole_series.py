"""Dynamic scans by methods that see time: the frames of each place together, one place after another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

import torch

from upmri.core.errors import InputError
from upmri.core.parallel import in_threads
from upmri.core.scan import Scan
from upmri.core.stages import stage
from upmri.inference.batches import kind
from upmri.inference.scan_session import Session, among
from upmri.methods.base import Estimate
from upmri.physics.coils import estimate_noise
from upmri.physics.frames import Average, places
from upmri.physics.maps import found_maps, scan_with_maps
from upmri.physics.problem import Problem
from upmri.physics.quality import repair


def frames_of_places(meta: dict[str, object], count: int) -> list[list[int]]:
    """Return the numbers of the slices of each place, by the ``meta`` of a scan of ``count`` slices.

    One slice alone is a series of one frame. Several slices that are not named as frames of anything are refused.
    """
    if count == 1:
        return [[0]]
    place_of = places(meta, count)
    if place_of is None:
        raise InputError(
            f"nothing says which of the {count} slices are frames of one place, which a method over time needs; name "
            "the axes of an array, as in --axes frame,coil,readout,phase, or give the scan "
            'meta={"axes": {"frame": …, "slice": …}}',
            field="meta",
        )
    return [[i for i, place in enumerate(place_of) if place == wanted] for wanted in range(max(place_of) + 1)]


def in_series(
    session: Session, read: Callable[[int], Scan], count: int
) -> Generator[tuple[Sequence[int], list[Scan], Estimate]]:
    """Yield the slices of each place by their numbers, and their images; only one series is in memory.

    Parameters
    ----------
    session
        Session with a dynamic method.
    read
        Function that returns one slice by its number.
    count
        Number of slices.
    """
    series = frames_of_places(read(0).meta, count)
    _warn_of_one_frame(session.method.name, [len(numbers) for numbers in series])
    for numbers in series:
        with stage("reading"):
            scans = [read(number) for number in numbers]
        yield numbers, scans, reconstruct_frames(session, scans, numbers)


def _warn_of_one_frame(method: str, lengths: Sequence[int]) -> None:
    """Warn where a place has one frame, by the number of frames of each."""
    alone = lengths.count(1)
    if alone:
        given = "one was given" if len(lengths) == 1 else f"{alone} of {len(lengths)} places have one"
        warnings.warn(one_frame(method, given), stacklevel=5)


def one_frame(method: str, given: str = "one was given") -> str:
    """What is wrong with one frame for a method over time."""
    return f"{method} needs several frames of one place, and {given}; upmri is better for one frame"


def reconstruct_frames(session: Session, scans: Sequence[Scan], numbers: Sequence[int] | None = None) -> Estimate:
    """Reconstruct the frames of one place together; frames without samples are 0, and are not used.

    Parameters
    ----------
    session
        Session with a dynamic method.
    scans
        Frames in the order of time, one slice each.
    numbers
        Their numbers in the scan, where frames of other places are between them.
    """
    if len({kind(scan) for scan in scans}) > 1:
        raise InputError("expected frames of one shape, all with maps or none", field="kspace")
    with stage("coil check"):
        repaired = in_threads(repair, scans)
    for i, (scan, notes) in enumerate(repaired):
        session.findings.note(len(scan), notes, None if numbers is None else numbers[i])
    sampled = torch.tensor([bool(scan.mask.any()) for scan in scans])
    if not bool(sampled.any()):
        return Estimate(torch.zeros(len(scans), *scans[0].matrix, dtype=scans[0].kspace.dtype))
    used = [scan for (scan, _), some in zip(repaired, sampled.tolist(), strict=True) if some]
    made = session.estimate(_problem(used, session.device, session.seed))
    return among(made, sampled)


def _problem(scans: Sequence[Scan], device: torch.device, seed: int) -> Problem:
    """The problem of a series: one noise level, and one set of maps, from the average over time if there is none."""
    if any(scan.noise is None for scan in scans):
        level = float(torch.cat(in_threads(estimate_noise, scans)).median())
        scans = [replace(scan, noise=level) for scan in scans]
    if scans[0].maps is None:
        with stage("coil maps"):
            average = Average()
            for scan in scans:
                average.add(0, scan.kspace[0].to(device), scan.mask[0].to(device))
            kspace, mask = average(0)
            found = found_maps(kspace[None], mask[None])
        way = "average over time" if found.ways[0] == "calibration lines" else found.ways[0]
        scans = [scan_with_maps(scan, found.maps.cpu(), way, found.copies[0]) for scan in scans]
    return Problem.from_scans(scans, device, seed, frames=len(scans))
