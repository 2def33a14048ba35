"""Noise of the coils and their number: whitening, compression, and an estimate of the noise level."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.physics.masks import calibration_region

_LINES = 48  # lines around DC that are enough to estimate the noise
_OUTER = 0.01  # share of k-space, farthest from DC, whose power is a bound on that of the noise
_FEWEST_OUTER = 64  # samples of it
_SAME = 1e-6  # smallest eigenvalue of the correlations between coils


@dataclass(frozen=True)
class _Search:
    """A search for noise.

    ``patch`` is (readout, line), and at most 1/``fit`` of what it slides over; ``quiet`` is the share of directions
    and ``end`` the share of the readout, at each end, where they are looked for.
    """

    patch: tuple[int, int] = (3, 3)
    quiet: float = 1 / 4
    end: float = 1 / 4
    fit: int = 3


_ALONG_READOUT = _Search((24, 1), 1 / 20, 1 / 3, 2)
_EVERY_LINE = _Search((6, 1), 1 / 10)  # of lines without neighbours
_SEARCHES = {  # by the number of coils; of more coils the first
    1: (_ALONG_READOUT, _Search((16, 3), 1 / 20, 1 / 3, 2), _Search((16, 8), 1 / 20, 1 / 3, 2)),
    2: (_Search(), _Search((4, 8), fit=2), _ALONG_READOUT),
    3: (_Search(), _ALONG_READOUT),
}


def noise_covariance(readouts: Tensor) -> Tensor:
    """Ψ = E[e e*] (coil, coil) of noise-only samples (coil, …); any not finite are left out, with a warning."""
    samples = readouts.flatten(1)
    finite = torch.isfinite(torch.view_as_real(samples)).all(2).all(0)
    if not bool(finite.all()):
        wrong = len(finite) - int(finite.sum())
        warnings.warn(f"{wrong} of {len(finite)} noise samples are not finite and are left out", stacklevel=2)
        samples = samples[:, finite]
    if samples.shape[1] < 2 * samples.shape[0]:
        raise InputError(
            f"{samples.shape[1]} noise samples are too few for {samples.shape[0]} coils; expected twice as many",
            field="readouts",
        )
    covariance = samples @ samples.mH / samples.shape[1]
    scale = covariance.diagonal().real.rsqrt()
    correlation = covariance * scale[:, None] * scale
    known = bool(torch.isfinite(torch.view_as_real(correlation)).all())  # not so if a coil has no noise at all
    if not known or bool(torch.linalg.eigvalsh(correlation).min() < _SAME):
        raise InputError(
            "the noise of a coil is 0, or the same as that of others; leave such coils out", field="readouts"
        )
    return covariance


def whiten(kspace: Tensor, covariance: Tensor) -> Tensor:
    """Mix the coils of (…, coil, H, W) so that their noise is independent with σ₀ = 1: L⁻¹ y, Ψ = L L*."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if bool(failed):
        raise InputError(
            "expected a positive definite matrix; are two coils the same, or has one no signal?", field="covariance"
        )
    flat = torch.linalg.solve_triangular(factor.to(kspace.dtype), kspace.flatten(-2), upper=False)
    return flat.unflatten(-1, kspace.shape[-2:])


def compress(scan: Scan, coils: int) -> Scan:
    """Replace the coils by the given number of virtual ones that hold the most energy (SVD, one for all slices).

    The mixing is unitary, so independent noise of equal strength stays so.
    """
    if not 1 <= coils <= scan.coils:
        raise InputError(f"expected 1 to {scan.coils} virtual coils, got {coils}", field="coils")
    samples = scan.kspace.transpose(0, 1).flatten(1)
    mixing = torch.linalg.eigh(samples @ samples.mH)[1].flip(1)[:, :coils].mH  # (virtual, coil)

    def mix(coils_first: Tensor) -> Tensor:
        return torch.einsum("vc,nchw->nvhw", mixing, coils_first)

    # Virtual maps keep their direction but lose length: Σ|S|² = 1 is restored, and the k-space model with it.
    maps = None if scan.maps is None else _normalised(mix(scan.maps))
    return replace(scan, kspace=mix(scan.kspace), maps=maps)


def _normalised(maps: Tensor) -> Tensor:
    length = maps.abs().square().sum(1, keepdim=True).sqrt()
    return torch.where(length > 0, maps / length.clamp_min(1e-30), 0)


def estimate_noise(scan: Scan) -> Tensor:
    """σ₀ of each slice, (slice,), from its calibration lines, or all its lines; 0 for a slice without samples.

    Neighbouring samples of all coils obey linear relations, so patches of the calibration lines leave directions with
    hardly any signal, least of all far out in the readout. They are found at one end of the readout and the power
    along them is measured at the other, so that the choice of the quietest directions does not lower the estimate; then
    the ends change places. Coils whose k-space is 0 do not count.

    Without calibration lines, patches along each line show such directions, too: within 3 % on simulated validation
    scans (4 to 16 coils, every second line or random ones).

    One or two coils leave few such relations: those of an object that does not fill the field of view. Long patches
    show them, along all sampled lines where the air is at the ends of the readout, in the calibration lines where it is
    in the corners. So do the samples farthest from DC, whatever the object fills. What is left of the signal only adds
    power, so the lowest estimate is taken. Of one coil it is within 15 % of σ₀ from 0.002 on (of an image that peaks at
    1) with ten or more calibration lines and some air; without air it is too large, in tight
    cuts of validation heads 1.0 to 1.5 times σ₀ at 0.03, and 1.1 to 3.3 times at 0.01.
    """
    return torch.stack([_noise(k, m) for k, m in zip(scan.kspace, scan.mask, strict=True)])


def _noise(kspace: Tensor, mask: Tensor) -> Tensor:
    kspace = kspace[(kspace != 0).flatten(1).any(1)]
    if not len(kspace):
        return torch.zeros(())
    rows, columns = calibration_region(mask, kspace.shape[1])
    spare = max(0, columns.stop - columns.start - _LINES)
    centre = kspace[:, rows, columns.start + (spare + 1) // 2 : columns.stop - spare // 2]
    every = kspace[..., mask[0]] if len(mask) == 1 else centre
    lines = mask.any(0) & (mask == mask.any(1, keepdim=True) & mask.any(0)).all()  # none if they differ in their rows
    searches = _SEARCHES.get(len(kspace), (_Search(),))
    found = [_power(every if search.patch[1] == 1 else centre, search) for search in searches]
    powers = [power for power in found if power is not None]
    if len(powers) < len(found):
        powers = [power for power in (_power(kspace[..., lines], _EVERY_LINE),) if power is not None]
    if not powers:
        raise InputError(
            "σ₀ cannot be estimated without whole lines or a fully sampled block of 3 × 3 around DC; give noise with "
            "the scan, or, if it has such lines, its axes in the order (slice, coil, readout, phase)",
            field="noise",
        )
    if len(kspace) in _SEARCHES and (outer := _outer_power(kspace, mask)) is not None:
        powers.append(outer)
    return torch.stack(powers).min().clamp_min(0).sqrt()


def _power(block: Tensor, search: _Search) -> Tensor | None:
    """Mean power |e|² of (coil, readout, line) along its quiet directions; None where no patch has a place."""
    block = block[:, (block != 0).any(2).any(0)]  # an asymmetric echo leaves readout samples empty
    end = int(search.end * block.shape[1])
    room = (end, block.shape[2])
    size = tuple(min(wanted, length // search.fit) for wanted, length in zip(search.patch, room, strict=True))
    if 0 in size:
        return None
    ends = [_patch_covariance(part, size) for part in (block[:, :end], block[:, -end:])]
    both = [_quiet_power(found, measured, search.quiet) for found, measured in (ends, ends[::-1])]
    return torch.stack(both).mean()


def _outer_power(kspace: Tensor, mask: Tensor) -> Tensor | None:
    """Mean power of the samples farthest from DC, where little is left of the signal; None where there are too few."""
    sampled = mask & (kspace != 0).any(0)
    rows, columns = (torch.linspace(-1, 1, length).square() for length in kspace.shape[1:])
    distance = (rows[:, None] + columns)[sampled]
    count = max(_FEWEST_OUTER, int(_OUTER * sampled.numel()))
    if len(distance) < 4 * count:
        return None
    return kspace[:, sampled][:, distance.topk(count).indices].abs().square().mean()


def _patch_covariance(block: Tensor, size: tuple[int, ...]) -> Tensor:
    patches = block.unfold(1, size[0], 1).unfold(2, size[1], 1)  # (coil, i, j, kr, kp)
    patches = patches.permute(0, 3, 4, 1, 2).flatten(0, 2).flatten(1)  # (coil·K, i·j)
    return patches @ patches.mH / patches.shape[1]


def _quiet_power(found: Tensor, measured: Tensor, share: float) -> Tensor:
    """Mean power of one covariance along the quietest of the other's directions."""
    vectors = torch.linalg.eigh(found)[1]
    quiet = vectors[:, : max(1, int(share * vectors.shape[1]))]
    return (quiet.conj() * (measured @ quiet)).real.sum(0).mean()
