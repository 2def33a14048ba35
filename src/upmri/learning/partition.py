"""What learning by splitting the data shares: which samples are given, which judge, and the error on those.

Ω is what a scan sampled. All masks are bool and of the shape of the scan's, (1 or H, W) each, unless it is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from upmri.flow.objective import no_filter, projected_loss
from upmri.physics.masks import calibration_region
from upmri.physics.sense import SenseOperator

Kind = Literal["columns", "points"]
Density = Literal["uniform", "gaussian"]

# Lines (and, of points, rows) at the centre that are always given.
_CENTRE = 4
# Deviation of the Gaussian density, as a share of an axis.
_SPREAD = 0.25


@dataclass(frozen=True)
class Partition:
    """Ω = Θ ∪ Λ, disjoint (Yaman et al. 2020): |Λ| = ρ |Ω|, drawn without replacement; the centre stays in Θ.

    Parameters
    ----------
    judged
        ρ.
    kind
        ``columns``: whole lines, where the scan has lines, so that Θ is such a mask as Ω. ``points``: single points of
        k-space, as published.
    density
        Of what is drawn: ``uniform``, or ``gaussian`` around DC with a deviation of a quarter of each axis.
    """

    judged: float = 0.4
    kind: Kind = "columns"
    density: Density = "uniform"

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return Θ and Λ; of the shape (H, W) for points, whatever the mask's."""
        if self.kind == "points":
            mask = mask.expand(readout, -1)
        free = (mask & ~_middle(mask)).flatten().nonzero().flatten()
        likely = torch.ones(mask.shape)
        if self.density == "gaussian":
            for axis, length in enumerate(mask.shape):
                if length > 1:
                    at = (torch.arange(length) - length // 2) / (_SPREAD * length)
                    likely *= torch.exp(-at.square() / 2).reshape(-1, 1) if axis == 0 else torch.exp(-at.square() / 2)
        count = min(len(free), max(1, round(self.judged * int(mask.sum()))))
        judged = torch.zeros_like(mask, memory_format=torch.contiguous_format)
        if count:
            picked = torch.multinomial(likely.flatten()[free], count, generator=generator)
            judged.view(-1)[free[picked]] = True
        return mask & ~judged, judged


@dataclass(frozen=True)
class SecondMask:
    """Λ of the family of Ω, drawn anew: every line outside the calibration region with probability p̃, all within it.

    Ω ∩ Λ is given and Ω∖Λ judges. With p the probability that a scan sampled a line, one that was not given is in Ω∖Λ
    with probability p (1−p̃)/(1−p p̃), so that errors weighted by (Millard and Chiew 2023)

        w = √((1−p p̃)/(p (1−p̃)))

    add up, in the mean, to the error on all that was not given, sampled or not.

    Parameters
    ----------
    kept
        p̃.
    """

    kept: float = 0.5

    def draw(self, mask: Tensor, readout: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return Ω∩Λ and Ω∖Λ; the latter may happen to be empty."""
        aside = torch.rand(mask.shape, generator=generator) >= self.kept
        judged = mask & outside(mask, readout) & aside
        return mask & ~judged, judged

    def weight(self, mask: Tensor, readout: int) -> float:
        """Return w, with p as this mask has it: the share of the lines outside the calibration region it sampled.

        It is one number, for masks that are of even density there. (A line beside the calibration region is never
        sampled, or it would belong to it; as it is counted, the sampled ones stand for it, too.)
        """
        outer = outside(mask, readout)
        # Where nothing outside was sampled, its weight is that of nothing: any number will do.
        p = max(1, int((mask & outer).sum())) / max(1, int(outer.sum()))
        return float(((1 - p * self.kept) / (p * (1 - self.kept))) ** 0.5)


def outside(mask: Tensor, readout: int) -> Tensor:
    """What lies outside the calibration region; outside the middle of it, if it is all that was sampled."""
    rows, columns = calibration_region(mask, readout)
    outer = torch.ones_like(mask, memory_format=torch.contiguous_format)
    outer[rows if len(mask) > 1 else slice(None), columns] = False
    return outer if (mask & outer).any() else ~_middle(mask)


def split(
    draw: Callable[[Tensor, int, torch.Generator], tuple[Tensor, Tensor]],
    masks: Tensor,
    readout: int,
    generators: Sequence[torch.Generator],
) -> tuple[Tensor, Tensor]:
    """Draw what is given and what judges for every slice, by one generator each, (slice, 1 or H, W), on the CPU."""
    parts = [draw(mask, readout, generator) for mask, generator in zip(masks, generators, strict=True)]
    given, judged = (torch.stack(part) for part in zip(*parts, strict=True))
    return given, judged


def misfit(image: Tensor, maps: Tensor, mask: Tensor, kspace: Tensor) -> Tensor:
    """‖M (F S x − y)‖² of each slice, (slice,), over all coils; no graph but that of the image."""
    operator = SenseOperator(maps, mask)
    return projected_loss(image, operator, operator.adjoint(kspace), no_filter) + energy(mask, kspace)


def energy(mask: Tensor, kspace: Tensor) -> Tensor:
    """‖M y‖² of each slice, (slice,)."""
    return (kspace * mask[:, None]).abs().square().sum((1, 2, 3))


def _middle(mask: Tensor) -> Tensor:
    middle = torch.zeros_like(mask, memory_format=torch.contiguous_format)
    middle[
        tuple(slice(None) if n == 1 else slice(n // 2 - _CENTRE // 2, n // 2 + _CENTRE // 2) for n in mask.shape)
    ] = True
    return middle
