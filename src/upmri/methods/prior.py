"""A trained network with everything needed to use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from upmri.methods.base import Objective
from upmri.methods.registry import find_method
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem


class Prior(nn.Module):
    """An image prior: maps an operator, A*y and a noise level to the image.

    It has no preferred units: operator, A*y and σ₀ enter in the units of the data, are divided by the 99.9th
    percentile of |A*y| of each slice, so that images peak near 1 as in training, and the image is multiplied by it
    again. So ``prior(A, c·b, c·σ) = c·prior(A, b, σ)``. The largest eigenvalue of N = A*A should be near 1, as for a
    :class:`~upmri.physics.SenseOperator` with Σ|S_c|² = 1; ``operator / operator.norm() ** 0.5`` makes it so.

    Parameters
    ----------
    network
        Trained network, or a function in its place.
    objective
        Objective it was trained with.
    method
        Name of the method it belongs to.
    source
        Name or file it was read from.
    card
        Facts about its training.
    digest
        SHA-256 of its file.

    Examples
    --------
    >>> import torch, upmri
    >>> scan = upmri.simulate(torch.ones(1, 32, 32), coils=4, acceleration=2)
    >>> operator = upmri.physics.SenseOperator(scan.maps, scan.mask)
    >>> prior = upmri.prior("brain")
    >>> prior(operator, operator.H(scan.kspace), scan.noise).shape
    torch.Size([1, 32, 32])
    """

    def __init__(
        self,
        network: nn.Module | Callable[..., Tensor],
        objective: Objective,
        method: str,
        *,
        source: str = "",
        card: Mapping[str, Any] | None = None,
        digest: str = "",
    ) -> None:
        super().__init__()
        self.network = network if isinstance(network, nn.Module) else _Function(network)
        self.objective, self.method, self.source = objective, method, source
        self.card, self.digest = dict(card or {}), digest

    def forward(self, operator: Operator, adjoint: Tensor, sigma: float | Tensor, frames: int = 1) -> Tensor:
        """Return the image (slice, H, W) of A*y, with the default settings of the method.

        Parameters
        ----------
        operator, adjoint
            A, and A*y, (slice, H, W).
        sigma
            Noise level σ₀ of the data, one number or (slice,).
        frames
            Number of consecutive slices that are frames of one place, for methods over time.
        """
        problem = Problem.from_adjoint(operator, adjoint, sigma, frames=frames)
        method = find_method(self.method)(model=self)  # type: ignore[call-arg]  # learned methods have it
        return method.reconstruct(problem) * problem.scale[:, None, None]

    def with_network(self, network: nn.Module) -> Prior:
        """Return a prior with another network, such as an adapted one, and the same facts; itself for the same one."""
        if network is self.network:
            return self
        return Prior(
            network, self.objective, self.method, source=self.source, card=self.card, digest=self.digest
        ).eval()


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any) -> Tensor:
        return self._function(*args)
