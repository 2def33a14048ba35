"""Echo-planar readouts: the phase between forward and backward ones, which makes ghosts, and samples on the ramps.

Backward readouts are flipped first. What is left between the two directions are a delay and an offset of the phase. In
the image along the readout that is a phase linear in x: θ(x) = a + b x. Reference readouts, acquired without phase
encoding, show it directly. Half of θ is taken from the backward readouts and given to the forward ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.printable import slices_like
from upmri.core.scan import Scan, as_scan
from upmri.physics.fourier import fft1c, ifft1c

_REFINEMENTS = 3
# Smallest similarity of neighbouring readouts after every second one was flipped, and by how much it must exceed that
# without flipping, for readouts to count as alternating.
_SIMILAR, _MORE = 0.7, 0.1
# Readouts around the centre that are compared, and singular values left out in regridding, relative to the largest.
_COMPARED, _SMALL = 16, 0.02
# Most samples, and pixels: the matrix of regridding is computed by a singular value decomposition.
_MOST = 1024


@dataclass(frozen=True)
class GhostPhase:
    """θ(x) = constant + slope · x, in radians: phase of backward less that of forward readouts, x from the centre."""

    constant: float = 0.0
    slope: float = 0.0

    def correct(self, readouts: Tensor, reverse: bool | Tensor) -> Tensor:
        """Return readouts (…, sample) without θ; ``reverse`` says which of them were acquired backwards."""
        x = torch.arange(readouts.shape[-1], device=readouts.device) - readouts.shape[-1] // 2
        half = 0.5 * (self.constant + self.slope * x)
        backward = torch.as_tensor(reverse, device=readouts.device)
        factor = torch.polar(torch.ones_like(half), torch.where(backward[..., None], -half, half))
        return fft1c(ifft1c(readouts) * factor.to(readouts.dtype))


def ghost_phase(readouts: Tensor, reverse: Tensor) -> GhostPhase:
    """Find θ from reference readouts in the order of their acquisition, backward ones flipped.

    Each is compared with the mean of its two neighbours, which cancels a phase that drifts along the train; of two
    readouts alone one is compared with the other. The slope is from the phase between neighbouring positions, which
    needs no unwrapping, refined by least squares weighted with the signal.

    Parameters
    ----------
    readouts
        K-space (readout, coil, sample).
    reverse
        Which were acquired backwards, bool (readout,).
    """
    if not bool((reverse[1:] != reverse[:-1]).any()):
        raise InputError("expected reference readouts of both directions, one after the other", field="navigators")
    between = _between(ifft1c(readouts.to(torch.complex128)), reverse)
    x = torch.arange(len(between), dtype=torch.float64) - len(between) // 2
    slope = float((between[1:] * between[:-1].conj()).sum().angle())
    weight, constant = between.abs(), 0.0
    for _ in range(_REFINEMENTS):
        rest = between * torch.exp(-1j * slope * x)
        constant = float(rest.sum().angle())
        angle = (rest * torch.exp(torch.tensor(-1j * constant))).angle()
        centre = (weight * x).sum() / weight.sum().clamp_min(1e-300)
        spread = (weight * (x - centre) ** 2).sum().clamp_min(1e-300)
        slope += float((weight * (x - centre) * angle).sum() / spread)
    constant = float((between * torch.exp(-1j * slope * x)).sum().angle())
    return GhostPhase(constant, slope)


def _between(images: Tensor, reverse: Tensor) -> Tensor:
    """Products backward · conj(forward) of neighbours, summed over coils and readouts: (sample,)."""
    turns = reverse[1:] != reverse[:-1]
    inner = turns[1:] & turns[:-1]
    if bool(inner.any()):
        middle, around, backward = images[1:-1][inner], (images[:-2] + images[2:])[inner] / 2, reverse[1:-1][inner]
    else:
        middle, around, backward = images[1:][turns], images[:-1][turns], reverse[1:][turns]
    products = torch.linalg.vecdot(around, middle, dim=1)
    return torch.where(backward[:, None], products, products.conj()).sum(0)


def alternates(readouts: Tensor) -> bool:
    """Whether every second of the readouts (readout, coil, sample) runs backwards, though nothing marks it."""
    if len(readouts) < 4:
        return False
    plain, flipped = (ifft1c(part).abs() for part in (readouts, readouts.flip(-1)))
    even = plain[:-1:2]
    before, after = (_similarity(even, part[1::2][: len(even)]) for part in (plain, flipped))
    return after > _SIMILAR and after > before + _MORE


def _similarity(one: Tensor, other: Tensor) -> float:
    return float((one * other).sum() / (one.square().sum() * other.square().sum()).sqrt().clamp_min(1e-30))


def lines_alternate(scan: Scan) -> bool:
    """Whether every second line around the centre of k-space of the first slice runs backwards, unmarked."""
    lines = _lines(scan, 0)
    middle = len(lines) // 2
    return alternates(lines[max(0, middle - _COMPARED // 2) : middle + _COMPARED // 2])


def correct_ghosts(scan: Scan | Tensor | NDArray[Any], navigators: Scan | Tensor | NDArray[Any]) -> Scan:
    """Return an echo-planar scan without its ghosts, with the phase that another scan without phase encoding shows.

    Both scans have the same train of readouts: every second one is backward. Where the file did not mark backward
    readouts, which the reference readouts show, they are flipped, too.

    Parameters
    ----------
    scan
        Echo-planar scan, or its k-space ([slice,] coil, readout, phase).
    navigators
        The same without phase encoding, of one slice or of as many as the scan.

    Examples
    --------
    >>> import upmri
    >>> scan = upmri.correct_ghosts(upmri.load("epi.dat"), upmri.load("epi_nophase.dat"))  # doctest: +SKIP
    """
    scan, navigators = as_scan(scan), as_scan(navigators)
    if (navigators.coils, navigators.matrix[0]) != (scan.coils, scan.matrix[0]):
        raise InputError(
            f"expected readouts of {scan.coils} coils and {scan.matrix[0]} samples, as the scan has, got "
            f"{navigators.coils} coils and {navigators.matrix[0]} samples",
            field="navigators",
        )
    if len(navigators) not in (1, len(scan)):
        raise InputError(f"expected {slices_like(len(scan))}, got {len(navigators)}", field="navigators")
    kspace = scan.kspace.clone()
    for i in scan.mask.flatten(1).any(1).nonzero().flatten().tolist():
        reference = _lines(navigators, i if len(navigators) > 1 else 0)
        backward = torch.arange(len(reference)) % 2 == 1
        lines = _lines(scan, i)
        if alternates(reference):
            reference, lines = (_flip_odd(part) for part in (reference, lines))
        phase = ghost_phase(reference, backward)
        where = scan.mask[i].any(0)
        kspace[i][..., where] = phase.correct(lines.transpose(0, 1), torch.arange(len(lines)) % 2 == 1).mT
    done = f"ghosts corrected with {int(navigators.mask[0].any(0).sum())} reference readouts of {navigators.name}"
    # Readouts are whole lines, also where some of their samples happened to be 0.
    return replace(scan, kspace=kspace, mask=scan.mask.any(1, keepdim=True), meta=scan.meta | {"echo-planar": done})


def _lines(scan: Scan, number: int) -> Tensor:
    """Sampled lines of a slice, (line, coil, sample)."""
    return scan.kspace[number][..., scan.mask[number].any(0)].permute(2, 0, 1)


def _flip_odd(lines: Tensor) -> Tensor:
    lines = lines.clone()
    lines[1::2] = lines[1::2].flip(-1)
    return lines


@dataclass(frozen=True)
class Ramp:
    """A readout gradient that is sampled while it rises and falls; times in µs, ``delay`` from its begin."""

    rise: float
    flat: float
    fall: float
    delay: float
    dwell: float
    samples: int
    shape: Literal["trapezoid", "sine"] = "trapezoid"

    def __post_init__(self) -> None:
        end = self.delay + self.dwell * self.samples
        times = (self.rise, self.flat, self.fall, self.delay)
        if not (all(0 <= t < 1e6 for t in times) and self.dwell > 0 and 2 <= self.samples <= _MOST):
            raise InputError(f"expected times of 0 or more, in µs, and 2 to {_MOST} samples", field="ramp")
        if end > self.rise + self.flat + self.fall + self.dwell:
            raise InputError(f"samples end at {end:g} µs, after the gradient", field="ramp")

    @property
    def regular(self) -> bool:
        """Whether all samples are on the flat top."""
        return self.delay >= self.rise and self.delay + self.dwell * self.samples <= self.rise + self.flat

    @property
    def positions(self) -> Tensor:
        """Place of each sample as a share of the sampled part of k-space, from −½ to ½, (samples,)."""
        times = self.delay + self.dwell * (torch.arange(2 * self.samples + 1, dtype=torch.float64) / 2)
        area = self._area(times)  # at the begin, the middle and the end of each sample
        return (area[1::2] - self._area(times[self.samples :][:1])) / (area[-1] - area[0])

    def _area(self, t: Tensor) -> Tensor:
        """Area of the gradient up to times t, of which the flat top is 1."""
        up, top = t.clamp(0, self.rise), (t - self.rise).clamp(0, self.flat)
        down = (t - self.rise - self.flat).clamp(0, self.fall)
        if self.shape == "sine":
            quarter = 2 / math.pi
            rise = quarter * self.rise * (1 - torch.cos(up / max(self.rise, 1e-9) / quarter))
            return rise + top + quarter * self.fall * torch.sin(down / max(self.fall, 1e-9) / quarter)
        return up**2 / 2 / max(self.rise, 1e-9) + top + down - down**2 / 2 / max(self.fall, 1e-9)

    def regridding(self, length: int, field: int | None = None) -> Tensor:
        """Matrix (length, samples) from samples to a regular grid over the same part of k-space.

        The signal is that of the middle ``field`` out of ``length`` pixels, s = E ρ with
        E[j, x] = exp(−2πi k_j x/length)/√length: the grid has F E⁺ s, which is exact where the samples determine ρ.
        """
        field = length if field is None else field
        if field > _MOST:
            raise InputError(f"expected at most {_MOST} pixels along the readout, got {field}", field="ramp")
        x = torch.arange(field, dtype=torch.float64) - field // 2
        encode = torch.exp(-2j * math.pi * self.positions[:, None] * x) / math.sqrt(length)
        image = torch.zeros(length, self.samples, dtype=torch.complex128)
        first = length // 2 - field // 2
        image[first : first + field] = torch.linalg.pinv(encode, rtol=_SMALL)
        return fft1c(image, 0).to(torch.complex64)
