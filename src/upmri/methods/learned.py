"""What all methods with weights share: finding them, and naming them in the settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from upmri import weights
from upmri.errors import InputError
from upmri.methods.base import Method, Problem


@dataclass(frozen=True)
class Learned(Method):
    """A method with weights.

    Parameters
    ----------
    model
        Name of shipped weights, or a file.
    """

    model: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What shaped the image, the weights' hash included."""
        return asdict(self) | ({} if self.model is None else {"sha256": weights.load(self.model).digest})

    def fit(self, problem: Problem) -> Method:
        """Check that there are weights, and that they are its own."""
        if self.model is None:
            raise InputError(f"model: {self.name} comes without weights; give a file (`upmri train` makes one)")
        self.load(problem)
        return self

    def load(self, problem: Problem) -> weights.Model:
        """The weights, on the problem's device."""
        assert self.model is not None  # noqa: S101  `fit` has seen to it
        model = weights.load(self.model, problem.device)
        expected = self.weights_of or self.name
        if model.method != expected:
            raise InputError(f"model: {self.model} holds weights of {model.method}, expected some of {expected}")
        return model
