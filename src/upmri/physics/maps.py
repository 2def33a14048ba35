"""Coil maps from what a scan offers: its calibration lines, a reference scan, its average over time, or its data alone.

========================  ============================================================================================
given                     maps of the scan itself
reference scan            ESPIRiT on another scan with the same coils
calibration lines         ESPIRiT on the fully sampled block around DC, if it has four lines or more in every slice
average over time         ESPIRiT on the average of the frames of each place, if that has such lines
joint estimation          image and maps together (NLINV) of slices without such lines
========================  ============================================================================================

The first of them that a scan offers is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.printable import slices_like
from upmri.core.scan import Scan, as_scan
from upmri.physics.espirit import MIN_LINES, central_block, check_espirit, espirit, find_maps
from upmri.physics.fourier import middle
from upmri.physics.frames import average_over_time, places
from upmri.physics.joint import joint_estimate
from upmri.physics.masks import calibration_lines, calibration_region

Way = Literal["given", "reference scan", "calibration lines", "average over time", "joint estimation"]


def estimate_maps(
    scan: Scan | Tensor | NDArray[Any], reference: Scan | Tensor | NDArray[Any] | None = None, **settings: Any
) -> Scan:
    """Give the scan coil maps, estimated in the best way that it offers.

    From the reference scan, if there is one; else from calibration lines, the fully sampled block around DC, if every
    slice has four of them or more; else, of frames that ``meta`` names, from the average over time, if that has such
    lines; else jointly with the image, from the undersampled data (:func:`upmri.physics.joint.joint_estimate`).

    Parameters
    ----------
    scan
        Scan whose maps are replaced, or its k-space ([slice,] coil, readout, phase). A slice without samples, among
        others with samples, gets maps of 0.
    reference
        Another scan with the same coils, of any matrix, with calibration lines: one slice for all of them, or as many.
        Its field of view is taken to be the same, and with the same centre, unless both scans have a spacing: then it
        may be larger.
    settings
        Settings of ESPIRiT, as of :func:`upmri.physics.espirit.find_maps`.

    Returns
    -------
    Scan
        With maps, Σ|S_c|² = 1 in the object and 0 outside; ``meta["maps_from"]`` is the way in which they were found,
        and ``meta["maps_copy"]``, of joint estimation alone, the share of the copy of the object that was removed from
        the worst slice, by which :func:`upmri.physics.map_quality.assess` judges them.

    Examples
    --------
    >>> import numpy as np, upmri
    >>> image = np.zeros((48, 48))
    >>> image[8:40, 12:36] = 1
    >>> scan = upmri.simulate(image, coils=4, acceleration=2)
    >>> measured = upmri.Scan(kspace=scan.kspace, mask=scan.mask)  # no maps
    >>> mapped = upmri.estimate_maps(measured)
    >>> mapped.maps.shape, mapped.meta["maps_from"]
    (torch.Size([1, 4, 48, 48]), 'calibration lines')
    """
    scan = as_scan(scan)
    check_espirit(**settings)
    if reference is not None:
        return scan_with_maps(scan, maps_of_reference(scan, as_scan(reference), **settings), "reference scan")
    if (average := _maps_of_average(scan, settings)) is not None:
        return scan_with_maps(scan, average, "average over time")
    found = found_maps(scan.kspace, scan.mask, **settings)
    return scan_with_maps(scan, found.maps, named(found.ways), max(found.copies))


def scan_with_maps(scan: Scan, maps: Tensor, way: str, copy: float = 0.0) -> Scan:
    """Return the scan with maps; its ``meta`` says where they are from, and the share of a copy that was removed."""
    meta = {key: value for key, value in scan.meta.items() if key != "maps_copy"} | {"maps_from": way}
    return replace(scan, maps=maps, meta=meta | ({"maps_copy": float(f"{copy:.3g}")} if copy else {}))


def copy_removed(meta: dict[str, Any]) -> float:
    """The share of the copy that was removed from jointly estimated maps, by a scan's ``meta``; 0 for other maps."""
    copy, way = meta.get("maps_copy"), meta.get("maps_from")
    known = isinstance(copy, int | float) and isinstance(way, str) and "joint estimation" in way
    return float(copy) if known else 0.0  # type: ignore[arg-type]


def planned_maps(scan: Scan, count: int) -> str:
    """Say where the maps of a scan of ``count`` slices will be from, by some of them, without estimating maps."""
    if scan.maps is not None:
        return str(scan.meta.get("maps_from", "given"))
    lines = min(calibration_lines(lines, scan.matrix[0]) for lines in scan.mask)
    if lines >= MIN_LINES:
        return f"calibration lines ({lines})"
    if places(scan.meta, count) is not None:
        return "average over time, if that has calibration lines, else joint estimation"
    return "joint estimation"


def with_average_maps(scan: Scan) -> Scan:
    """Return a scan without maps, some of whose frames have too few calibration lines, with maps of its average."""
    maps = None if scan.maps is not None else _maps_of_average(scan, {})
    return scan if maps is None else scan_with_maps(scan, maps, "average over time")


@dataclass(frozen=True)
class FoundMaps:
    """Maps that were found from slices alone.

    Attributes
    ----------
    maps
        Maps shaped like the data, 0 in slices without samples.
    ways
        How they were found, for each slice.
    copies
        Share of the copy of the object that was removed from those of each slice; 0 where none was looked for.
    """

    maps: Tensor
    ways: list[Way]
    copies: list[float]


def found_maps(kspace: Tensor, mask: Tensor, **settings: Any) -> FoundMaps:
    """Coil maps from each slice alone, on its device: by calibration lines, or by joint estimation without them.

    Parameters
    ----------
    kspace, mask
        Data (slice, coil, H, W), and sampled positions, bool (slice, 1 or H, W).
    settings
        Settings of ESPIRiT, as of :func:`upmri.physics.espirit.find_maps`.
    """
    sampled = mask.flatten(1).any(1).cpu()
    if not bool(sampled.any()):
        raise InputError("expected samples; nothing was sampled", field="kspace")
    few = sampled & torch.tensor([calibration_lines(lines, kspace.shape[-2]) < MIN_LINES for lines in mask])
    ways: list[Way] = ["joint estimation" if bool(joint) else "calibration lines" for joint in few]
    if not bool(few.any()):
        return FoundMaps(find_maps(kspace, mask, **settings), ways, [0.0] * len(ways))
    maps, copies = torch.zeros_like(kspace), torch.zeros(len(few))
    maps[few], shares = joint_estimate(kspace[few], mask[few])
    copies[few] = shares.float().cpu()
    rest = sampled & ~few
    if bool(rest.any()):
        maps[rest] = find_maps(kspace[rest], mask[rest], **settings)
    return FoundMaps(maps, ways, copies.tolist())


def maps_of_reference(scan: Scan, reference: Scan, **settings: Any) -> Tensor:
    """Coil maps of a scan, shaped like its k-space, by ESPIRiT from the calibration lines of another one."""
    if reference.coils != scan.coils:
        raise InputError(f"expected {scan.coils} coils, as the scan has, got {reference.coils}", field="reference")
    if len(reference) not in (1, len(scan)):
        raise InputError(f"expected {slices_like(len(scan))}, got {len(reference)}", field="reference")
    grid = _grid(scan, reference)
    maps = torch.stack(
        [_reference_slice(*one, grid, settings) for one in zip(reference.kspace, reference.mask, strict=True)]
    )
    return middle(maps, *scan.matrix).expand_as(scan.kspace).contiguous()


def named(ways: list[Any]) -> str:
    """Return the ways of several slices as text, each once."""
    return ", ".join(dict.fromkeys(ways))


def _maps_of_average(scan: Scan, settings: dict[str, Any]) -> Tensor | None:
    """Maps from the average over time, if some slice has too few calibration lines and the average has enough."""
    sampled = scan.mask.flatten(1).any(1)
    readout = scan.matrix[0]
    if all(calibration_lines(lines, readout) >= MIN_LINES for lines in scan.mask[sampled]):
        return None
    place_of = places(scan.meta, len(scan))
    if place_of is None:
        return None
    kspace, mask = average_over_time(scan, place_of)
    if any(calibration_lines(lines, readout) < MIN_LINES for lines in mask[mask.flatten(1).any(1)]):
        return None
    return find_maps(kspace, mask, **settings)[place_of]


def _grid(scan: Scan, reference: Scan) -> tuple[int, int]:
    """Size of a grid over the field of view of the reference scan with the pixels of the scan."""
    if scan.spacing is None or reference.spacing is None:
        return scan.matrix
    grid = []
    for n, pixel, count, length in zip(scan.matrix, scan.spacing, reference.matrix, reference.spacing, strict=False):
        wanted = round(count * length / pixel)
        if wanted < n - 1:  # a pixel less is rounding
            raise InputError(
                f"expected a field of view of {n * pixel:g} mm or more, as the scan has, got {count * length:g} mm",
                field="reference",
            )
        grid.append(max(wanted, n))
    return grid[0], grid[1]


def _reference_slice(kspace: Tensor, mask: Tensor, grid: tuple[int, int], settings: dict[str, Any]) -> Tensor:
    rows, columns = calibration_region(mask, kspace.shape[-2])
    options = dict(settings)
    block = central_block(kspace, rows, columns, options.pop("calibration", 24))
    try:
        return espirit(block, grid, **options)
    except InputError as error:
        raise InputError(error.message, field="reference") from error
