"""Find coils that would spoil an image: dead, noisy and spiking ones.

A coil counts as faulty only if it does harm: if the image without it is clearly better. What is unusual but harmless
stays, such as a virtual coil of a compressed array that holds nothing but noise as strong as that of the others. All
comparisons are made between the coils of one slice, so no unit and no noise level has to be known.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from upmri.physics.fourier import ifft2c

# Fewest coils that can be compared.
_FEWEST = 3
# Share of the samples, the farthest from DC, that show the noise.
_OUTER = 0.2
# A weak coil has this share of the usual energy, and of the energy of the next coil: in a compressed array, where
# energy falls off step by step, none is weak.
_WEAK = 1e-6
_GAP = 1e-3
# With given maps a coil is dead below this share of the energy that its map promises.
_PROMISED = 0.03
_MATTERS = 0.1  # if that is at least this share of the mean energy
_EVERY = 4  # pixel of a map, which is smooth, that gives its size
# A noisy coil raises the variance of the image's noise to this multiple, ...
_HARM = 4.0
# ... noise is this share of its energy, more than this multiple of the usual share, ...
_NOISE_SHARE = 0.05
_NOISE_EXCESS = 10.0
# ... it has hardly any signal, or not this multiple of the usual one: a higher gain amplifies signal, too; ...
_PURE = 0.7
_GAIN = 30.0
# ... and other coils do not explain more than the rest of it.
_UNEXPLAINED = 0.7
# A spike holds this share of the energy of all coils and samples.
_SPIKE_SHARE = 0.005
# Its |y|² is this multiple of the usual one around it (of all samples if fewer are around), and there the other
# coils have less than this share of what they have at the centre of k-space, each relative to the coil.
_STANDS_OUT = 100.0
_FEWEST_AROUND = 20
_CONFIRMED = 0.01
_AROUND = (16, 4)  # half the height and width of what is around
_NEAR = 2  # signal that stands out may lie this many samples and lines apart in different coils
# Half the width of the centre of k-space, as a share and in samples, where signal itself stands out.
_CENTRE = 1 / 32
_CENTRE_SAMPLES = 4


def faulty_coils(kspace: Tensor, maps: Tensor | None = None, mask: Tensor | None = None) -> dict[int, str]:
    """Find coils of one slice that would spoil its image; return the fault of each by number.

    ``dead``: 0 throughout, far weaker than all others, or far weaker than the given maps promise. ``noisy``: with
    white noise that other coils do not have. ``spiking``: with single samples that neither their neighbours nor other
    coils explain; near DC they look like signal. Fewer than three coils are not compared, and faults of more
    than half of the coils are not reported, as then it is not known what is usual.

    Noise is harmful if it rules the image. An image combined of coils with energy E_c (per sample) and noise σ_c² has
    the noise Σ E_c σ_c² / (Σ E_c)²; a noisy coil is one that makes this four times as large.

    Parameters
    ----------
    kspace, maps
        K-space and coil maps of length 1, (coil, readout, phase).
    mask
        Samples, bool (1 or readout, phase); without it all of k-space is searched for them.
    """
    full, (radius, centre) = kspace, _places(kspace.shape[1], kspace.shape[2])
    if mask is not None and not bool(mask.any(0).all()):  # lines that were sampled, side by side
        lines = mask.any(0).nonzero().flatten()
        kspace, radius, centre = kspace[..., lines], radius[:, lines], centre[:, lines]
    low, high = torch.view_as_real(kspace).aminmax()
    scale = torch.maximum(-low, high).clamp_min(torch.finfo(low.dtype).tiny)
    kspace = kspace / scale  # squares stay in the range of numbers
    power = kspace.real.square() + kspace.imag.square()
    energy = power.sum((1, 2)).double()
    live = energy > 0
    faults: dict[int, str] = {}
    rest = live.nonzero().flatten()
    # A coil with a large fault hides smaller ones, so the others are compared again without it.
    while len(rest) >= _FEWEST:
        whole = len(rest) == len(kspace)
        some = (kspace, power, energy) if whole else (kspace[rest], power[rest], energy[rest])
        found = _compare(*some, radius, centre)
        if not found and maps is not None:  # faults of other kinds would spoil the image that is compared
            found = dict.fromkeys(_below_maps(full, maps, some[2], rest), "dead")
        if not found:
            break
        faults |= {int(rest[c]): fault for c, fault in found.items()}
        rest = rest[[c for c in range(len(rest)) if c not in found]]
    zeros = dict.fromkeys((~live).nonzero().flatten().tolist(), "dead")
    return dict(sorted((zeros | faults if 2 * len(faults) <= int(live.sum()) else zeros).items()))


def _places(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Squared distance from DC, 1/4 at the ends of both axes, and whether a sample is at the centre of k-space."""
    offsets = [torch.arange(n) - n // 2 for n in (height, width)]
    y, x = (offset / n for offset, n in zip(offsets, (height, width), strict=True))
    inner = [offset.abs() <= max(_CENTRE_SAMPLES, math.ceil(_CENTRE * len(offset))) for offset in offsets]
    return y[:, None].square() + x.square(), inner[0][:, None] & inner[1]


def _compare(kspace: Tensor, power: Tensor, energy: Tensor, radius: Tensor, centre: Tensor) -> dict[int, str]:
    """Faults by number of coils, none of which is 0 throughout: y and |y|² (coil, readout, line), Σ|y|² (coil,)."""
    sampled = power.sum(0) > 0
    dead = _weak(energy)
    spiking = _spiking(power, energy, sampled, centre) & ~dead
    noisy = _noisy(kspace, energy, sampled, radius) & ~dead & ~spiking
    faults = {"dead": dead, "spiking": spiking, "noisy": noisy}
    return {c: fault for fault, which in faults.items() for c in which.nonzero().flatten().tolist()}


def _weak(energy: Tensor) -> Tensor:
    """Coils far below the usual energy and below the next one, bool (coil,)."""
    ordered, order = energy.sort()
    below = (ordered[:-1] < _WEAK * energy.median()) & (ordered[:-1] < _GAP * ordered[1:])
    weak = torch.zeros_like(energy, dtype=torch.bool)
    if bool(below.any()):
        weak[order[: int(below.nonzero().max()) + 1]] = True
    return weak


def _below_maps(kspace: Tensor, maps: Tensor, energy: Tensor, rest: Tensor) -> list[int]:
    """Positions in ``rest`` of coils with far less energy than Σ |S_c x|² of the combined image x."""
    few = torch.view_as_real(maps[:, ::_EVERY, ::_EVERY][rest]).square().sum((1, 2, 3))
    suspect = (energy < _PROMISED * energy.mean()) & (few > _MATTERS * few.mean())  # a weak map promises little
    if not bool(suspect.any()):
        return []
    maps, size = maps[rest], energy.mean()
    image = (maps.conj() * ifft2c(kspace[rest])).sum(0).abs().square()
    promised = (maps.abs().square() * image).sum((1, 2), dtype=torch.float64)
    promised = promised * (size / promised.mean().clamp_min(torch.finfo(promised.dtype).tiny))
    dead = suspect & (promised > _MATTERS * size) & (energy < _PROMISED * promised)
    return dead.nonzero().flatten().tolist()


def _noisy(kspace: Tensor, energy: Tensor, sampled: Tensor, radius: Tensor) -> Tensor:
    """Coils whose noise would rule the image, bool (coil,)."""
    at = sampled.flatten().nonzero().flatten()
    count = max(4 * len(kspace), int(_OUTER * len(at)))
    if len(at) < 2 * count:
        return torch.zeros(len(kspace), dtype=torch.bool)
    farthest = at[radius.flatten()[at].topk(count, sorted=False).indices]
    outer = kspace.flatten(1)[:, farthest].to(torch.complex128)
    noise = outer.abs().square().median(1).values / math.log(2)  # |e|² of noise is exponential; spikes do not count
    energy = energy / len(at)
    share = (noise / energy).clamp_max(1)
    signal = energy * (1 - share)
    suspect = (share > _NOISE_SHARE) & (share > _NOISE_EXCESS * share.sort().values[len(share) // 4])
    suspect &= (share > _PURE) | (signal < _GAIN * signal.median())
    if not bool(suspect.any()):
        return suspect
    suspect &= _unexplained(outer) > _UNEXPLAINED
    # The noise of the image from the other coils, and from these and one suspect.
    weight, product = energy[~suspect].sum(), (energy * noise)[~suspect].sum()
    harm = (product + energy * noise) / (weight + energy).square() / (product / weight.square())
    return suspect & (harm > _HARM)


def _unexplained(samples: Tensor) -> Tensor:
    """Share of each coil's power, (coil,), that no linear combination of the other coils gives: 1/(R⁻¹)_cc."""
    coils, count = samples.shape
    unit = samples / samples.norm(dim=1, keepdim=True).clamp_min(1e-300)
    correlation = unit @ unit.mH
    correlation += 1e-9 * torch.eye(coils, dtype=correlation.dtype)  # coils may depend on each other exactly
    share = 1 / torch.linalg.inv(correlation).diagonal().real
    return share * count / (count - coils + 1)


def _spiking(power: Tensor, energy: Tensor, sampled: Tensor, centre: Tensor) -> Tensor:
    """Coils with spikes, bool (coil,)."""
    inner = power[:, centre].sum(1)
    spiking = torch.zeros(len(power), dtype=torch.bool)
    for coil, row, line in (power > _SPIKE_SHARE * energy.sum()).nonzero().tolist():
        if not spiking[coil] and not centre[row, line]:
            spiking[coil] = _stands_out(power, sampled, inner, coil, row, line)
    return spiking


def _stands_out(power: Tensor, sampled: Tensor, inner: Tensor, coil: int, row: int, line: int) -> bool:
    """Whether a sample is far above those around it, and other coils have far less there than at the centre."""

    def window(height: int, width: int) -> tuple[slice, slice]:
        return slice(max(0, row - height), row + height + 1), slice(max(0, line - width), line + width + 1)

    rows, lines = window(*_AROUND)
    around = power[coil, rows, lines][sampled[rows, lines]]
    if len(around) < _FEWEST_AROUND:
        around = power[coil][sampled]
    spike = power[coil, row, line]
    if spike < _STANDS_OUT * around.median():  # further spikes do not move the median
        return False
    rows, lines = window(_NEAR, _NEAR)
    near = power[:, rows, lines].amax((1, 2))
    return bool((near.sum() - near[coil]) * inner[coil] < _CONFIRMED * spike * (inner.sum() - inner[coil]))
