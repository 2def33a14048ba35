"""What every method gets and what every method is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from upmri.core.scan import Scan
from upmri.physics.coils import estimate_noise
from upmri.physics.espirit import estimate_maps
from upmri.physics.sense import SenseOperator

if TYPE_CHECKING:
    from upmri.training.data import Batch


@dataclass(frozen=True)
class Problem:
    """Some slices of a scan with coil maps, on the device, scaled so that the image's peak is about 1.

    The scale of a slice is the 99.9th percentile of |A*y|: from the undersampled data alone, undone at the end. What a
    method does not ask for is not computed.
    """

    scan: Scan
    device: torch.device
    generator: torch.Generator

    @cached_property
    def operator(self) -> SenseOperator:
        """A, of these slices."""
        assert self.scan.maps is not None  # noqa: S101  `reconstruct` has seen to it
        return SenseOperator(self.scan.maps.to(self.device), self.scan.mask.to(self.device))

    @cached_property
    def scale(self) -> Tensor:
        """The scan's units per unit of the problem, (slice,)."""
        peak = self._combined.abs().flatten(1).quantile(0.999, dim=1)
        return torch.where(peak > 0, peak, 1)

    @cached_property
    def adjoint(self) -> Tensor:
        """A*y, (slice, H, W)."""
        return self._combined / self.scale[:, None, None]

    @cached_property
    def kspace(self) -> Tensor:
        """y, (slice, coil, H, W)."""
        return self.scan.kspace.to(self.device) / self.scale[:, None, None, None]

    @cached_property
    def sigma(self) -> Tensor:
        """σ₀ on this scale, (slice,): what the scan says, or an estimate from its calibration lines."""
        noise = self.scan.noise
        sigma = estimate_noise(self.scan) if noise is None else torch.full((len(self.scan),), noise)
        return sigma.to(self.device) / self.scale

    @cached_property
    def _combined(self) -> Tensor:
        return self.operator.adjoint(self.scan.kspace.to(self.device))


@dataclass(frozen=True)
class Estimate:
    """An image (slice, H, W); where several were drawn, (n, slice, H, W), and the deviation of its magnitude."""

    image: Tensor
    samples: Tensor | None = None
    std: Tensor | None = None


@dataclass(frozen=True)
class Lesson(ABC):
    """How a method's network is made and taught. Subclasses are frozen dataclasses that weights carry with them."""

    # Whether it learns from full images: scans without a reference are refused before it begins.
    supervised = False

    @abstractmethod
    def network(self) -> nn.Module:
        """A network with fresh weights."""

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """Loss of each slice, (slice,)."""

    @abstractmethod
    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:
        """The image (slice, H, W) of the samples that A has of y, (slice, coil, H, W): what validation looks at."""

    def calibrate(self, network: nn.Module, batches: Iterable[Batch]) -> dict[str, Any]:  # noqa: ARG002
        """What is to be fitted on validation scans, without their truth, once the network is done."""
        return {}


@dataclass(frozen=True)
class Method(ABC):
    """A way to an image. Subclasses are frozen dataclasses: their fields are their settings, with defaults."""

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[str] = "nothing"
    evaluations: ClassVar[int] = 0
    lesson: ClassVar[type[Lesson] | None] = None
    # The method whose weights it takes, where they are not its own.
    weights_of: ClassVar[str | None] = None

    def fit(self, problem: Problem) -> Method:  # noqa: ARG002
        """Settle what was left open, before the first slice of a scan: which weights, for example."""
        return self

    @abstractmethod
    def reconstruct(self, problem: Problem) -> Tensor:
        """Image (slice, H, W) in the units of the problem."""

    def estimate(self, problem: Problem) -> Estimate:
        """The image with all that the method can tell about it."""
        return Estimate(self.reconstruct(problem))

    @property
    def settings(self) -> dict[str, Any]:
        """What shaped the image."""
        return asdict(self)


@torch.no_grad()
def apply(
    method: Method, scan: Scan, device: torch.device, seed: int, *, settle: bool = False
) -> tuple[Method, Estimate]:
    """Reconstruct some slices of a scan; return the method as it was settled, and the estimate in the scan's units.

    Parameters
    ----------
    method, scan
        What is done, and to what; coil maps are estimated where there are none.
    device
        Where it is done; the estimate is on the CPU.
    seed
        Of what the method draws.
    settle
        Let the method settle first what was left open (:meth:`Method.fit`).
    """
    mapped = estimate_maps(scan) if scan.maps is None else scan
    problem = Problem(mapped, device, torch.Generator().manual_seed(seed))
    if settle:
        method = method.fit(problem)
        problem.generator.manual_seed(seed)  # whatever was drawn to settle it
    made, scale = method.estimate(problem), problem.scale[:, None, None]
    parts = (made.image, made.samples, made.std)
    return method, Estimate(*(None if part is None else (part * scale).cpu() for part in parts))  # type: ignore[arg-type]
