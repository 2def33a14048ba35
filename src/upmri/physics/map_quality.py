"""Do coil maps suit a scan? The share of its data around DC that they leave unexplained.

With every second line there is one error that no data show: maps and image that both hold a copy of the object, shifted
by half the field of view, explain them as well as the right ones. What joint estimation found of that copy, before it
removed as much of it as it could, is judged besides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as nnf
from torch import Tensor

from upmri.physics.fourier import centred, exponentials
from upmri.physics.masks import calibration_lines, calibration_region
from upmri.physics.sense import SenseOperator

Verdict = Literal["good", "doubtful", "poor"]

# Lines around DC that are compared, and the fewest positions of the image along each axis.
_LINES = 24
# Fewest calibration lines whose low-resolution images are still nearly multiples of the maps.
_FEWEST = 8
_POSITIONS = 48
# λ of the image whose data are compared where there are no calibration lines.
_DAMPING = 1e-3
# Unexplained share from which on maps are doubtful, and poor; with calibration lines, and without. On simulated
# validation scans (4 to 16 coils) right maps leave 0.015 at most, and 0.002 without
# lines. Maps shifted by 6 % of the field of view leave 0.024 to 0.063, and 0.002 (4 coils, random lines) to 0.08; those
# of another array 0.5 to 0.8, and 0.05 (4 coils) to 0.8. A shift by 3 % is often not found.
_DOUBTFUL, _POOR = (0.02, 0.01), (0.07, 0.04)
# Share of the copy from which on jointly estimated maps are doubtful, and poor. On a validation head (18 scans: every
# second line, 6 to 16 coils, σ₀ = 0.01) the images of those above 0.1 are 8 to 15 dB behind true maps, and others up
# to 6 dB.
_COPY_DOUBTFUL, _COPY_POOR = 0.04, 0.1
_WORDS: tuple[Verdict, ...] = ("good", "doubtful", "poor")


@dataclass(frozen=True)
class Quality:
    """How well maps suit the data.

    Attributes
    ----------
    unexplained
        Share of the data around DC that no image explains with these maps, 0 to 1.
    verdict
        How good they are, in a word.
    copy
        Share of the image that a copy of the object was when maps were estimated jointly from every second line.
    """

    unexplained: float
    verdict: Verdict
    copy: float = 0.0

    @property
    def copied(self) -> bool:
        """Whether the copy alone makes the maps as doubtful or poor as they are."""
        return self.verdict != "good" and self.verdict == _copy_verdict(self.copy)

    @property
    def reason(self) -> str:
        """What the verdict is about, in words."""
        if self.copied:
            return f"{self.copy:.1%} of the image were a copy of the object, of which some may remain"
        return f"{self.unexplained:.1%} of the data unexplained"


def severity(verdict: str) -> int:
    """Put verdicts in order: the larger, the worse."""
    return _WORDS.index(verdict) if verdict in _WORDS else 0


def assess(kspace: Tensor, mask: Tensor, maps: Tensor, copies: Sequence[float] | None = None) -> list[Quality | None]:
    """Return how well maps suit the data of each slice; None for slices without samples.

    With eight calibration lines or more: low-resolution coil images v of theirs, with a Hann window in k-space, are
    projected on the maps, Σ_r |v − S S* v|² / Σ_r |v|². What is outside the maps' support is not explained, except at
    its edge, to which low resolution spreads the object. Without: the SENSE image x of all lines,
    Σ |y − A x|² / Σ |y|² over the samples around DC.

    Parameters
    ----------
    kspace, maps
        (slice, coil, H, W), on one device.
    mask
        Sampled positions, bool (slice, 1 or H, W).
    copies
        Share of the copy that was removed from the maps of each slice, of :class:`upmri.physics.maps.FoundMaps`.
    """
    sampled = mask.cpu()
    lines = [calibration_lines(one, kspace.shape[-2]) for one in sampled]
    shares = [
        (_projection if count >= _FEWEST else _misfit)(*one)
        for count, *one in zip(lines, kspace, sampled, maps, strict=True)
    ]
    empty = (~sampled.flatten(1).any(1)).tolist()
    known = zip(empty, lines, torch.stack(shares).tolist(), copies or [0.0] * len(lines), strict=True)
    return [
        None if nothing else _judged(share, copy, calibrated=count >= _FEWEST) for nothing, count, share, copy in known
    ]


def worst(found: Iterable[Quality | None]) -> Quality | None:
    """Return the one with the worst verdict, and among them the one that leaves most unexplained."""
    given = (one for one in found if one is not None)
    return max(given, key=lambda one: (severity(one.verdict), one.unexplained), default=None)


def _judged(share: float, copy: float, *, calibrated: bool) -> Quality:
    doubtful, poor = (pair[0] if calibrated else pair[1] for pair in (_DOUBTFUL, _POOR))
    verdicts = (_verdict(share, doubtful, poor), _copy_verdict(copy))
    return Quality(share, max(verdicts, key=severity), copy)


def _copy_verdict(copy: float) -> Verdict:
    return _verdict(copy, _COPY_DOUBTFUL, _COPY_POOR)


def _verdict(share: float, doubtful: float, poor: float) -> Verdict:
    return "poor" if share >= poor else "doubtful" if share >= doubtful else "good"


def _projection(kspace: Tensor, mask: Tensor, maps: Tensor) -> Tensor:
    h, w = kspace.shape[-2:]
    rows, columns = calibration_region(mask, h)
    rows, columns = _around(h // 2, rows), _around(w // 2, columns)
    down, rows_shown = _waves(h, rows, kspace)
    across, columns_shown = _waves(w, columns, kspace)
    images = down @ kspace[:, rows, columns] @ across.mT
    shown = maps[:, rows_shown][..., columns_shown]
    reach = (_pixel(h, rows, rows_shown), _pixel(w, columns, columns_shown))
    images = images * ~_edge((shown != 0).any(0), reach)
    rest = images - shown * torch.linalg.vecdot(shown, images, dim=0)
    return _energy(rest) / _energy(images).clamp_min(1e-30)


def _pixel(length: int, samples: slice, shown: slice) -> int:
    """Size of a pixel of low resolution, in positions shown."""
    return round(length / (samples.stop - samples.start) / shown.step)


def _edge(inside: Tensor, reach: tuple[int, int]) -> Tensor:
    """Positions (H, W) outside the object to which low resolution spreads it."""
    size = (2 * reach[0] + 1, 2 * reach[1] + 1)
    wide = nnf.max_pool2d(inside[None, None].float(), size, stride=1, padding=reach)[0, 0] > 0
    return wide & ~inside


def _around(centre: int, block: slice) -> slice:
    """The part of a block that is near DC, as far on the one side as on the other where the block allows it."""
    return slice(max(block.start, centre - _LINES // 2), min(block.stop, centre + _LINES // 2 + 1))


def _waves(length: int, samples: slice, like: Tensor) -> tuple[Tensor, slice]:
    """Inverse DFT of some samples, with a Hann window, at some positions; and these positions."""
    shown = slice(0, length, max(1, length // _POSITIONS))
    positions = centred(length, like.device)
    frequencies = positions[samples]
    window = torch.cos(math.pi / 2 * frequencies / (frequencies.abs().max() + 1)).square()
    return (window * exponentials(positions[shown] / length, frequencies)).to(like.dtype), shown


def _misfit(kspace: Tensor, mask: Tensor, maps: Tensor) -> Tensor:
    operator = SenseOperator(maps[None], mask[None])
    data = kspace[None]
    image = operator.solve(operator.adjoint(data), _DAMPING)
    rest = data - operator.forward(image)
    near = tuple(slice(max(0, n // 2 - _LINES // 2), n // 2 + _LINES // 2 + 1) for n in kspace.shape[-2:])
    return _energy(rest[..., near[0], near[1]]) / _energy(data[..., near[0], near[1]]).clamp_min(1e-30)


def _energy(x: Tensor) -> Tensor:
    return torch.view_as_real(x).square().sum()
