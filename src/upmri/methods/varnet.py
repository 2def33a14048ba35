"""VarNet (Hammernik et al. 2018): cascades, each with a U-Net of its own, learnt from full images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.methods.cascades import Cascades
from upmri.methods.learned import OneEvaluation
from upmri.methods.supervised import relative_error
from upmri.training.data import Batch


@dataclass(frozen=True)
class VarNetLesson(Cascades):
    """The squared error against the truth, ‖f(A*y) − x‖² / ‖x‖² → min, of complex images (the paper has magnitudes).

    Parameters
    ----------
    cascades, width
        Of the network: how many cascades, and channels of each U-Net's first level.
    """

    supervised = True

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The error relative to the truth, (slice,)."""
        return relative_error(network, batch)


@dataclass(frozen=True)
class Varnet(OneEvaluation):
    """One evaluation of the network.

    Parameters
    ----------
    model
        A file of weights trained with ``method: varnet``.
    """

    name = "varnet"
    summary = "cascades with a U-Net each and exact data consistency, learnt from full images"
    needs = "full images"
    lesson = VarNetLesson
