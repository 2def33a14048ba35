"""What ``torch.nn.Module`` classes of other packages need to hold an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from upmri.physics.operator import Operator


class HoldsOperator:
    """Mix-in for a module with an attribute ``operator``, which moves with it to devices and precisions."""

    operator: Operator

    def _apply(self, move: Callable[[Tensor], Tensor], *args: Any, **options: Any) -> Self:
        operator = self.operator
        probe = move(torch.zeros(0, dtype=operator.dtype.to_real(), device=operator.device))
        if probe.device != operator.device or probe.dtype != operator.dtype.to_real():
            self.operator = operator.to(probe.device).to(probe.dtype)
        return super()._apply(move, *args, **options)  # type: ignore[misc]
