"""Judging an image without the truth: by lines of the scan that it was made without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.flow.objective import no_filter, projected_loss
from upmri.learning.lines import SplitLaw, folds
from upmri.physics.sense import SenseOperator


@dataclass(frozen=True)
class HeldOut:
    """Scans of which some lines were put aside.

    Attributes
    ----------
    operator, adjoint
        A_Θ and A_Θ*y of the lines that are left, (slice, H, W).
    judge
        A_Λ of the lines put aside.
    """

    operator: SenseOperator
    adjoint: Tensor
    judge: SenseOperator
    _target: Tensor
    _energy: Tensor

    @classmethod
    def draw(
        cls, maps: Tensor, mask: Tensor, kspace: Tensor, generators: Sequence[torch.Generator], share: float = 0.2
    ) -> HeldOut:
        """Put a share of the lines of each slice aside, by one generator a slice.

        Calibration lines stay: a scan that is to be reconstructed has them, so what they would say is beside the point.
        """
        law, lines = SplitLaw(judged=(share, share), calibration=0), mask.cpu()
        aside = [law.draw(m, kspace.shape[-2], g)[2] for m, g in zip(lines, generators, strict=True)]
        return cls._without(maps, mask, kspace, torch.stack(aside).to(mask.device))

    @classmethod
    def in_turn(
        cls, maps: Tensor, mask: Tensor, kspace: Tensor, generators: Sequence[torch.Generator], turns: int
    ) -> Iterator[HeldOut]:
        """Put every line aside once, a few at a time; calibration lines stay."""
        dealt = [folds(m, kspace.shape[-2], turns, g) for m, g in zip(mask.cpu(), generators, strict=True)]
        for aside in torch.stack(dealt, 1).to(mask.device):
            if aside.any():
                yield cls._without(maps, mask, kspace, aside)

    @classmethod
    def _without(cls, maps: Tensor, mask: Tensor, kspace: Tensor, judged: Tensor) -> HeldOut:
        given, judge = SenseOperator(maps, mask & ~judged), SenseOperator(maps, judged)
        energy = (kspace * judged[:, None]).abs().square().sum((1, 2, 3))
        return cls(given, given.adjoint(kspace), judge, judge.adjoint(kspace), energy)

    def error(self, image: Tensor) -> Tensor:
        """‖A_Λ x − y_Λ‖² of each slice, (slice,)."""
        return projected_loss(image, self.judge, self._target, no_filter) + self._energy
