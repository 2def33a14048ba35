"""A reconstruction network of many light U-Nets, each used once, with exact data consistency in between."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from upmri.networks.cnn import UNet
from upmri.networks.unrolled import Unrolled


class Cascaded(Unrolled):
    """:class:`Unrolled` with a network of its own for each block: K light U-Nets in full resolution, without attention.

    In trials of four minutes it was ahead of the large U-Net that all blocks share, and behind a light one that is used
    as often (docs/benchmark.md): that one is to replace both.

    Parameters
    ----------
    cascades, width
        K, and channels of a U-Net's first level; it has three, of 1, 2 and 3 times as many.
    damping
        λ₁ at the start; it is learnt.
    """

    def __init__(self, *, cascades: int = 10, width: int = 24, damping: float = 0.02) -> None:
        nn.Module.__init__(self)
        self.networks = nn.ModuleList(_Timed(width, inputs=5) for _ in range(cascades))
        self.log_damping = nn.Parameter(torch.tensor(damping).log())

    def stages(self) -> Iterable[nn.Module]:
        """The network of each block."""
        return self.networks


class _Timed(UNet):
    """The U-Net with t as one more channel."""

    def forward(self, x: Tensor, t: Tensor) -> Tensor:  # type: ignore[override]
        """Evaluate, in the precision of the weights."""
        times = t[:, None, None, None].expand(-1, 1, *x.shape[-2:])
        return super().forward(torch.cat([x, times.to(x.dtype)], 1).to(self.out.weight.dtype))
