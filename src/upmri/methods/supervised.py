"""What reconstruction networks learnt from full images share: the error against the truth."""

from __future__ import annotations

from torch import Tensor, nn

from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


def relative_error(network: nn.Module, batch: Batch) -> Tensor:
    """‖f(A*y) − x‖² / ‖x‖² of each slice, (slice,): none counts for more because it is brighter."""
    reference = batch.truth
    operator = SenseOperator(batch.maps, batch.mask)
    image: Tensor = network(operator, operator.adjoint(batch.kspace))
    return (image - reference).abs().square().sum((1, 2)) / reference.abs().square().sum((1, 2))
