"""The two interfaces of this package: a method turns a problem into images, an objective trains its network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor, nn

from upmri.core.bounds import Bounds
from upmri.physics.problem import Problem
from upmri.physics.tensors import of_shape


@dataclass(frozen=True)
class Estimate:
    """Result of a method for some slices, on the scale of the problem.

    Attributes
    ----------
    image
        (slice, H, W).
    samples
        Draws (n, slice, H, W), where several were made.
    std
        Standard deviation of the magnitude, (slice, H, W).
    bounds
        Bounds on the error, where they were asked for.
    """

    image: Tensor
    samples: Tensor | None = None
    std: Tensor | None = None
    bounds: Bounds | None = None

    def map(self, change: Callable[[Tensor], Tensor], change_bounds: Callable[[Bounds], Bounds]) -> Estimate:
        """Return the estimate with image, draws and deviation, (…, slice, H, W), and bounds changed alike."""
        samples, std = (None if part is None else change(part) for part in (self.samples, self.std))
        return Estimate(change(self.image), samples, std, None if self.bounds is None else change_bounds(self.bounds))


@dataclass(frozen=True)
class Objective(ABC):
    """Network and training loss of a method. Subclasses are frozen dataclasses; weights files carry their fields."""

    # Whether the loss needs full images: scans without a reference are refused before training begins.
    supervised = False

    @abstractmethod
    def network(self) -> nn.Module:
        """Return a network with fresh weights."""

    def begin(self, network: nn.Module, other: nn.Module) -> None:
        """Give the network the weights of another one, with which its training begins."""
        network.load_state_dict(other.state_dict())

    @abstractmethod
    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Loss of each slice, (slice,)."""

    def calibrate(self, network: nn.Module, problems: Iterable[Problem]) -> dict[str, Any]:  # noqa: ARG002
        """Values for the card, fitted on validation scans when training has ended.

        ``problems`` can be gone through several times.
        """
        return {}


@dataclass(frozen=True)
class Method(ABC):
    """A reconstruction method: a callable on a :class:`~upmri.physics.problem.Problem`.

    Subclasses are frozen dataclasses: their fields are the method's settings, with defaults.

    Attributes
    ----------
    name, summary, needs
        Name for users, one line about the method, and the training data it needs.
    evaluations
        Network evaluations for one image, with default settings.
    objective
        Class of its objective; None for methods without training.
    weights_of
        Name of the method whose weights it uses; None for its own.
    dynamic
        Whether the frames of a place are reconstructed together, as one series.
    validation
        Settings that differ from the defaults when training validates the method, to be faster.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[str] = "nothing"
    evaluations: ClassVar[int] = 0
    objective: ClassVar[type[Objective] | None] = None
    weights_of: ClassVar[str | None] = None
    dynamic: ClassVar[bool] = False
    validation: ClassVar[dict[str, Any]] = {}

    @property
    def batches(self) -> bool:
        """Whether slices may be reconstructed together, with the same result as alone."""
        return True

    @abstractmethod
    def reconstruct(self, problem: Problem) -> Tensor:
        """Image (slice, H, W) on the scale of the problem."""

    def __call__(self, problem: Problem) -> Estimate:
        """Return the image, of which the shape is checked, with all that the method knows about it."""
        return Estimate(of_shape(self.reconstruct(problem), problem.operator.shape, "image"))

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting that shaped the image, as values for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
