"""Checks of measured data: coil maps that cannot be right, and coils that are dead, noisy or spiking."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as nnf
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Scan

# Maps: allowed deviation of (Σ|S_c|²)^½ from 1, share of the object where it may be larger, and what counts as 0.
_DEVIATION = 0.05
_SHARE = 0.05
_ZERO = 1e-6
# Coils: number of strongest samples that give a coil's signal, share of the readout at each end that gives its noise,
# and fewest coils that can be compared.
_STRONGEST = 64
_END = 0.125
_FEWEST = 3
# A dead coil has less than this share of the usual signal, or no more signal than noise where every other coil has
# some, and the usual one much. In a compressed array, where signal fades from coil to coil, none is dead.
_SILENT = 1e-3
_NO_SIGNAL = 1.5
_SOME_SIGNAL = 6.0
_MUCH_SIGNAL = 15.0
# A noisy coil has these multiples of the usual noise, and of the usual noise relative to the signal.
_NOISY = 4.0
_UNCLEAR = 2.5
# A spike is above these multiples of the coil's noise, and of its neighbourhood and the same place in the usual coil.
_ABOVE_NOISE = 30.0
_ABOVE_OTHERS = 10.0
_NEIGHBOURHOOD = (33, 9)
# Half the width of the centre of k-space, as a share and in samples, where signal itself may stand out.
_CENTRE = 1 / 16
_CENTRE_SAMPLES = 4
_RAYLEIGH_MEDIAN = math.sqrt(math.log(2))  # of |e|, E|e|² = 1


def check_maps(scan: Scan) -> tuple[Scan, str | None]:
    """Return the scan with coil maps that obey Σ|S_c|² ∈ {0, 1}, and what was wrong with them, None if nothing was.

    Maps whose length (Σ|S_c|²)^½ is within 5 % of 1 in 95 % of the object are right, and are not changed. Others are
    divided by their length. The image then has the units that it has with estimated maps: those of the root of the sum
    of squares of the coil images. Maps that are 0 everywhere in a slice with samples are an error.
    """
    if scan.maps is None:
        return scan, None
    length = scan.maps.to(torch.complex128).abs().square().sum(1, keepdim=True).sqrt()
    peak = length.amax((1, 2, 3), keepdim=True)
    zero = ((peak.flatten() == 0) & scan.mask.flatten(1).any(1)).nonzero().flatten().tolist()
    if zero:
        where = f" of slices {', '.join(map(str, zero[:8]))}" if len(scan) > 1 else ""
        raise InputError(f"expected Σ|S_c|² of 1 in the object, found 0 in all pixels{where}", field="maps")
    inside = (length > _ZERO * peak) & (peak > 0)
    wrong = inside & ((length - 1).abs() > _DEVIATION)
    if bool((wrong.flatten(1).sum(1) <= _SHARE * inside.flatten(1).sum(1)).all()):
        return scan, None
    low, high = length[inside].min().item(), length[inside].max().item()
    maps = torch.where(inside, scan.maps / torch.where(inside, length, 1), 0).to(torch.complex64)
    return replace(scan, maps=maps), f"expected (Σ|S_c|²)^½ of 1 in the object, found {low:.3g} to {high:.3g}"


def leave_out_coils(scan: Scan) -> tuple[Scan, dict[int, str]]:
    """Return the scan without the coils that are bad in any of its slices, and their faults; see :func:`bad_coils`.

    Maps of the other coils are not changed, so that the image keeps its units.
    """
    faults: dict[int, str] = {}
    for kspace in scan.kspace:
        faults = bad_coils(kspace) | faults
    if not faults or len(faults) == scan.coils:
        return scan, {}
    kept = [c for c in range(scan.coils) if c not in faults]
    kspace, maps = scan.kspace[:, kept], None if scan.maps is None else scan.maps[:, kept]
    filled = (kspace != 0).any(1)  # a spike where nothing was sampled is no sample
    mask = scan.mask & (filled.any(1, keepdim=True) if scan.mask.shape[1] == 1 else filled)
    return replace(scan, kspace=kspace, maps=maps, mask=mask), dict(sorted(faults.items()))


def bad_coils(kspace: Tensor) -> dict[int, str]:
    """Find coils of one slice, (coil, readout, phase), that would spoil its image; return the fault of each by number.

    ``dead``: 0 throughout, or no signal where other coils have much. ``noisy``: far more noise than other coils, in
    itself and relative to the signal. ``spiking``: single samples that stand out from the noise, from their
    neighbourhood and from the same place in other coils, and that would change the image by half the noise or more.
    Coils are compared with the median of those that are not 0; fewer than three of them are not compared. Faults of
    more than half of them are not reported, as then it is not known what is usual.
    """
    live = (kspace != 0).flatten(1).any(1)
    faults = dict.fromkeys((~live).nonzero().flatten().tolist(), "dead")
    if int(live.sum()) >= _FEWEST:
        numbers = live.nonzero().flatten().tolist()
        compared = _compare(kspace[live].abs())
        if 2 * len(compared) <= len(numbers):
            faults |= {numbers[c]: fault for c, fault in compared.items()}
    return dict(sorted(faults.items()))


def _compare(magnitude: Tensor) -> dict[int, str]:
    """Faults of coils (coil, readout, phase), none of which is 0 throughout."""
    sampled = (magnitude > 0).any(0)
    signal, noise = _signal(magnitude, sampled), _noise(magnitude, sampled)
    contrast = signal / noise
    noisy = (noise > _NOISY * noise.median()) & (contrast * _UNCLEAR < contrast.median())
    unseen = (contrast < _NO_SIGNAL) & ~noisy
    distinct = bool((contrast[~unseen & ~noisy] > _SOME_SIGNAL).all()) and bool(contrast.median() > _MUCH_SIGNAL)
    dead = (unseen & distinct) | (signal < _SILENT * signal.median())
    well = ~(dead | noisy)
    spiking = torch.zeros_like(dead)
    spiking[well] = _spikes(magnitude[well], sampled, signal[well], noise[well])
    faults = {"dead": dead, "noisy": noisy, "spiking": spiking}
    return {c: fault for fault, found in faults.items() for c in found.nonzero().flatten().tolist()}


def _signal(magnitude: Tensor, sampled: Tensor) -> Tensor:
    """Median magnitude of each coil where all coils together are strongest, (coil,)."""
    together = (magnitude / magnitude.mean((1, 2), keepdim=True)).sum(0)
    strongest = together.flatten().topk(min(_STRONGEST, int(sampled.sum()))).indices
    return _positive(magnitude.flatten(1)[:, strongest].median(1).values)


def _noise(magnitude: Tensor, sampled: Tensor) -> Tensor:
    """Level of each coil at the ends of the readout, (coil,); the median is blind to spikes."""
    rows = sampled.any(1).nonzero().flatten()
    end = max(1, int(_END * len(rows)))
    ends = torch.cat([rows[:end], rows[-end:]])
    return _positive(magnitude[:, ends][:, sampled[ends]].median(1).values / _RAYLEIGH_MEDIAN)


def _spikes(magnitude: Tensor, sampled: Tensor, signal: Tensor, noise: Tensor) -> Tensor:
    """Coils with spikes, bool (coil,)."""
    # A spike A changes N samples' image by A/√N in each pixel.
    floor = max(_ABOVE_NOISE, math.sqrt(int(sampled.sum())) / 2) * noise[:, None, None]
    high = magnitude > floor
    relative = magnitude / signal[:, None, None]
    places = high.any(0)
    usual = relative[:, places].median(0).values
    if len(signal) < _FEWEST or not bool((high[:, places] & (relative[:, places] > _ABOVE_OTHERS * usual)).any()):
        return high.new_zeros(len(signal))
    # The centre of k-space may lie one or two samples apart in different coils.
    usual = relative.median(0).values
    outside = ~_around_peak(usual)
    usual = nnf.max_pool2d(usual[None], 5, 1, 2)[0]
    count = _box_sum(sampled[None].to(magnitude)) - 1
    around = (_box_sum(magnitude) - magnitude) / count.clamp_min(1)
    stands_out = (magnitude > _ABOVE_OTHERS * around) & (relative > _ABOVE_OTHERS * usual)
    return (high & stands_out & outside).flatten(1).any(1)


def _box_sum(values: Tensor) -> Tensor:
    """Sum over the neighbourhood of each sample of (coil, readout, phase)."""
    rows, columns = _NEIGHBOURHOOD
    return nnf.avg_pool2d(values, _NEIGHBOURHOOD, 1, (rows // 2, columns // 2), divisor_override=1)


def _around_peak(level: Tensor) -> Tensor:
    """The centre of k-space, bool (readout, phase): a box around the highest level."""
    row, column = divmod(int(level.argmax()), level.shape[1])
    box = torch.zeros_like(level, dtype=torch.bool)
    reach = [max(_CENTRE_SAMPLES, int(_CENTRE * length)) for length in level.shape]
    box[max(0, row - reach[0]) : row + reach[0] + 1, max(0, column - reach[1]) : column + reach[1] + 1] = True
    return box


def _positive(level: Tensor) -> Tensor:
    return level.clamp_min(torch.finfo(level.dtype).tiny)
