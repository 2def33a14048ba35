"""SENSE: the normal equations, by residual and by dense algebra."""

import pytest
import torch

import upmri
from upmri import InputError
from upmri.evaluation import evaluate
from upmri.methods.sense import Sense
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping


@pytest.fixture(scope="module")
def large():
    return upmri.simulate(upmri.demo.brain()[:2], coils=8, acceleration=4, noise=0.01)


def test_it_solves_the_normal_equations(large):
    x = upmri.reconstruct(large, "sense", damping=0.01).image
    A = SenseOperator(large.maps, large.mask)
    rhs = A.adjoint(large.kspace)
    assert (A.normal(x) + 0.01 * x - rhs).norm() < 1e-5 * rhs.norm()


@pytest.mark.parametrize("damping", [None, 0.3])
def test_it_agrees_with_dense_algebra(rng, dense, damping):
    operator = SenseOperator(rng(1, 3, 4, 6), torch.tensor([True, False, True, True, False, True])[None, None])
    problem = Problem(operator, operator(rng(1, 4, 6)), sigma=torch.tensor([0.2]).double(), scaled=True)
    A = dense(operator.forward, (1, 4, 6))
    lam = sense_damping(problem.sigma).item() if damping is None else damping
    expected = torch.linalg.solve(A.mH @ A + lam * torch.eye(24), A.mH @ problem.kspace.flatten())
    assert torch.allclose(Sense(damping=damping).reconstruct(problem).flatten(), expected)


def test_it_recovers_a_fully_sampled_image():
    full = upmri.simulate(upmri.demo.brain()[:1], coils=8, acceleration=1, noise=0)
    assert evaluate(upmri.reconstruct(full, "sense"))["psnr"] > 60


def test_the_default_damping_grows_with_the_noise():
    sigma = torch.tensor([0.0, 0.01, 0.04])
    assert torch.allclose(sense_damping(sigma), torch.tensor([1e-4, 5e-3, 4e-2]))


@pytest.mark.parametrize("damping", [0.0, -1.0, float("nan")])
def test_the_damping_is_checked(damping):
    with pytest.raises(InputError) as error:
        Sense(damping=damping)
    assert error.value.field == "damping"
