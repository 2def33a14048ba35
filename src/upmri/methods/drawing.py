"""Methods whose image is a random draw: one draw, or the mean of several."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from upmri.core.checks import whole
from upmri.methods.base import Estimate
from upmri.methods.learned import Learned
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class Drawing(Learned):
    """A method that draws images.

    The mean of n draws of variance V about their mean has the squared error (posterior mean's) + V/n: one draw pays for
    its variance, which an estimate of the mean does not have. So a benchmark should give both.

    Parameters
    ----------
    model
        Weights: a name, a file, or a loaded prior.
    samples
        Number of draws. With more than 1 the image is their mean, and their standard deviation is returned, too.
    """

    samples: int = 1

    def __post_init__(self) -> None:
        whole(self, 1, "samples")

    @abstractmethod
    def draw(self, problem: Problem, count: int) -> Tensor:
        """Draws (count, slice, H, W)."""

    def reconstruct(self, problem: Problem) -> Tensor:
        """One draw, or the mean of all."""
        return self.draw(problem, self.samples).mean(0)

    def __call__(self, problem: Problem) -> Estimate:
        """The image, with the draws and their deviation if there are several."""
        drawn = self.draw(problem, self.samples)
        return Estimate(drawn[0]) if self.samples == 1 else Estimate(drawn.mean(0), drawn, drawn.abs().std(0))


def for_draws(image: Tensor, count: int) -> Tensor:
    """An image (slice, H, W) as (count, slice, H, W), without a copy."""
    return image.expand(count, *image.shape)
