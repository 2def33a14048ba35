"""Methods with a trained network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.methods.base import Method
from upmri.methods.prior import Prior


@dataclass(frozen=True)
class Learned(Method):
    """A method with a trained network.

    Parameters
    ----------
    model
        Weights: a name, a file, or a loaded prior. ``upmri.reconstruct`` loads names and files, and chooses among the
        available weights where none are given.
    """

    model: Prior | str | Path | None = None

    @property
    def prior(self) -> Prior:
        """The loaded prior."""
        if not isinstance(self.model, Prior):
            raise InputError(
                f"expected a loaded prior, got {self.model!r}; upmri.prior loads one, upmri.reconstruct does so itself",
                field="model",
            )
        expected = self.weights_of or self.name
        if self.model.method != expected:
            raise InputError(
                f"{self.model.source or 'the prior'} has weights of {self.model.method}, expected some of {expected}",
                field="model",
            )
        if self.objective is not None and not isinstance(self.model.objective, self.objective):
            raise InputError(
                f"expected weights trained with {self.objective.__name__}, got some of "
                f"{type(self.model.objective).__name__}",
                field="model",
            )
        return self.model

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting that shaped the image, with the name and the hash of the weights."""
        if not isinstance(self.model, Prior):
            return super().settings
        return super().settings | {"model": self.model.source, "sha256": self.model.digest}
