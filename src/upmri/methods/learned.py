"""What all methods with weights share: finding them, and naming them in the settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from upmri import weights
from upmri.core.errors import InputError
from upmri.methods import at_hand
from upmri.methods.base import Method, Problem


@dataclass(frozen=True)
class Learned(Method):
    """A method with weights.

    Parameters
    ----------
    model
        Name of weights at hand, or a file. When not given, those at hand, if there are just one.
    """

    model: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What shaped the image, the weights' hash included."""
        return asdict(self) | ({} if self.model is None else {"sha256": weights.load(self.model).digest})

    def fit(self, problem: Problem) -> Method:
        """Settle which weights, and check that they suit."""
        known = [self.model] if self.model is not None else at_hand(self.name)
        if len(known) != 1:
            raise InputError(f"model: say which weights of {self.name}: {', '.join(known) or 'none are at hand'}")
        settled = replace(self, model=known[0])
        settled.load(problem)
        return settled

    def load(self, problem: Problem) -> weights.Model:
        """The weights, on the problem's device."""
        assert self.model is not None  # noqa: S101  `fit` has seen to it
        model = weights.load(self.model, problem.device)
        expected = self.weights_of or self.name
        if model.method != expected:
            raise InputError(f"model: {self.model} holds weights of {model.method}, expected some of {expected}")
        learnt = weights.coils(model.card)
        if problem.scan.coils == 1 < learnt:
            raise InputError(
                f"kspace: has one coil, and {self.model} was learnt from scans of {learnt}; use a classical method "
                "(sense, l1-wavelet), or train on scans of one coil"
            )
        return model


class OneEvaluation(Learned):
    """A method whose network makes the image of A*y in one go."""

    evaluations = 1

    def reconstruct(self, problem: Problem) -> Tensor:
        """The network's image."""
        image: Tensor = self.load(problem).network(problem.operator, problem.adjoint)
        return image
