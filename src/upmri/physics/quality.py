"""Repair scans before they are reconstructed: maps of a wrong length, and coils that would spoil the image."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.physics.faulty_coils import faulty_coils

# Allowed deviation of (Σ|S_c|²)^½ from 1, share of the object where it may be larger, and what counts as 0.
_DEVIATION = 0.05
_SHARE = 0.05
_ZERO = 1e-6
# About as many rows show whether maps have the length 1.
_ROWS = 64


@dataclass(frozen=True)
class Notes:
    """What was wrong with a scan; slices and coils count from 0.

    Attributes
    ----------
    empty
        Slices without samples.
    left_out
        Fault of each coil that was left out, by slice and coil.
    normalised
        Smallest and largest (Σ|S_c|²)^½ of the maps that were normalised, by slice.
    """

    empty: list[int] = field(default_factory=list)
    left_out: dict[int, dict[int, str]] = field(default_factory=dict)
    normalised: dict[int, tuple[float, float]] = field(default_factory=dict)


def repair(scan: Scan) -> tuple[Scan, Notes]:
    """Return the scan with coil maps that obey Σ|S_c|² ∈ {0, 1} and without faulty coils, and what was wrong.

    Maps whose length (Σ|S_c|²)^½ is within 5 % of 1 in 95 % of the object are right, and stay. Others are divided by
    their length; the image then has the units that it has with estimated maps. Maps that are 0 in a slice with samples
    are an error.

    A coil of :func:`upmri.physics.faulty_coils.faulty_coils` is left out: its k-space and map become 0 in the slices
    where it is faulty, so that the shape of the scan stays. The maps of other coils stay as they are, and with them
    the units of the image.
    """
    notes = Notes()
    notes.empty.extend((~_sampled(scan.mask)).nonzero().flatten().tolist())
    maps = None if scan.maps is None else _normalised(scan.maps, notes)
    for i, kspace in enumerate(scan.kspace):
        if i not in notes.empty:
            faults = faulty_coils(kspace, None if maps is None else maps[i], scan.mask[i])
            notes.left_out.update({i: faults} if faults else {})
    if notes.normalised:
        scan = replace(scan, maps=maps)
    return (_without(scan, notes.left_out) if notes.left_out else scan), notes


def _sampled(mask: Tensor) -> Tensor:
    return mask.flatten(1).any(1)


def _normalised(maps: Tensor, notes: Notes) -> Tensor:
    """Return maps (slice, coil, readout, phase) of length 1 or 0, and note where this was not so."""
    unit = torch.stack([torch.stack(torch.view_as_real(one).aminmax()).abs().max() for one in maps])
    zero = [i for i in (unit == 0).nonzero().flatten().tolist() if i not in notes.empty]
    if zero:
        where = f" of slice {', '.join(map(str, zero[:8]))}" if len(maps) > 1 else ""
        raise InputError(f"expected Σ|S_c|² of 1 in the object, found 0 in all pixels{where}", field="maps")
    unit = torch.where(unit > 0, unit, 1)[:, None, None, None]
    step = max(1, maps.shape[2] // _ROWS)
    length, inside = _length(maps[:, :, ::step], unit)
    wrong = (inside & ((length - 1).abs() > _DEVIATION)).flatten(1).sum(1) > _SHARE * inside.flatten(1).sum(1)
    if not bool(wrong.any()):
        return maps
    length, inside = _length(maps, unit)
    for i in wrong.nonzero().flatten().tolist():
        found = length[i][inside[i]]
        notes.normalised[i] = (found.min().item(), found.max().item())
    fixed = torch.where(inside, maps / torch.where(inside, length, 1), 0).to(maps.dtype)
    return torch.where(wrong[:, None, None, None], fixed, maps)


def _length(maps: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """(Σ|S_c|²)^½ of each pixel, (slice, 1, readout, phase), and where it is not 0; ``unit`` is their order of size."""
    scaled = torch.view_as_real(maps) / unit[..., None]  # squares of maps as given may leave the range of numbers
    length = scaled.square().sum(1, keepdim=True).sum(-1).sqrt()
    return length.double() * unit, length > _ZERO * length.amax((1, 2, 3), keepdim=True)


def _without(scan: Scan, left_out: dict[int, dict[int, str]]) -> Scan:
    """Return the scan with 0 for these coils, by slice."""
    kspace, maps = scan.kspace.clone(), None if scan.maps is None else scan.maps.clone()
    for i, coils in left_out.items():
        kspace[i, list(coils)] = 0
        if maps is not None:
            maps[i, list(coils)] = 0
    filled = (kspace != 0).any(1)
    lines = filled.any(1, keepdim=True)
    # A spike where nothing was sampled is no sample, and lines without it are whole lines again.
    mask = scan.mask & (lines if scan.mask.shape[1] == 1 else filled)
    if bool((mask == mask.any(1, keepdim=True)).all()):
        mask = mask.any(1, keepdim=True)
    return replace(scan, kspace=kspace, maps=maps, mask=mask)
