"""The two interfaces: a method is a callable on a problem, an objective a network with a loss."""

from dataclasses import dataclass

import pytest
import torch

from upmri.methods import Estimate, Method, Objective
from upmri.methods.zero_filled import ZeroFilled
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class Weighted(Method):
    name = "weighted"
    summary = "a factor times A*y"

    factor: float = 2.0
    label: str | None = None

    def reconstruct(self, problem):
        return self.factor * problem.adjoint


def test_a_method_is_a_callable_on_a_problem(scan):
    problem = Problem.from_scan(scan)
    estimate = Weighted(factor=3.0)(problem)
    assert isinstance(estimate, Estimate)
    assert torch.equal(estimate.image, 3 * problem.adjoint)
    assert estimate.samples is None
    assert estimate.std is None


def test_settings_are_the_fields():
    assert Weighted(factor=3.0).settings == {"factor": 3.0, "label": None}
    assert ZeroFilled().settings == {}


def test_the_defaults_of_a_method():
    assert (Weighted.needs, Weighted.evaluations, Weighted.objective, Weighted.weights_of) == ("nothing", 0, None, None)
    assert Weighted.validation == {}


@pytest.mark.parametrize("kind", [Method, Objective])
def test_both_are_abstract(kind):
    with pytest.raises(TypeError, match="abstract"):
        kind()


def test_an_objective_without_calibration():
    @dataclass(frozen=True)
    class Nothing(Objective):
        def network(self):
            return torch.nn.Identity()

        def loss(self, network, problem):
            return network(problem.adjoint).abs().sum((1, 2))

    assert Nothing().calibrate(torch.nn.Identity(), []) == {}
    assert not Nothing.supervised
