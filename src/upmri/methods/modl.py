"""MoDL (Aggarwal, Mani and Jacob 2019): an unrolled network learnt from full images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from upmri.methods.learned import OneEvaluation
from upmri.methods.supervised import relative_error
from upmri.methods.unrolls import Unrolls
from upmri.training.data import Batch


@dataclass(frozen=True)
class MoDLLesson(Unrolls):
    """The squared error against the truth, ‖f(A*y) − x‖² / ‖x‖² → min, all K unrolls at once.

    The paper first teaches one unroll and begins the K with it. Here the CNN begins at zero instead, where K unrolls
    are as tame as one; ``begin`` of a training run does as the paper does (the weights do not depend on K).

    Parameters
    ----------
    unrolls, layers, width
        Of the network: K, and the layers and channels of its CNN.
    damping
        λ at the start.
    """

    supervised = True

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The error relative to the truth, (slice,)."""
        return relative_error(network, batch)


@dataclass(frozen=True)
class Modl(OneEvaluation):
    """One evaluation of the network.

    Parameters
    ----------
    model
        A file of weights trained with ``method: modl``.
    """

    name = "modl"
    summary = "an unrolled CNN with exact data consistency, learnt from full images"
    needs = "full images"
    lesson = MoDLLesson
