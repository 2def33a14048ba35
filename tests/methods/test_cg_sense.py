"""CG-SENSE: its iterates against the Krylov space, and convergence."""

import pytest
import torch

import upmri
from upmri import InputError
from upmri.evaluation import evaluate
from upmri.methods.cg_sense import CgSense
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_the_iterate_is_the_best_of_its_krylov_space(rng, dense, steps):
    """Among x = Σ c_i Nⁱ b, i < k, it has the smallest ½⟨x, N x⟩ − Re⟨b, x⟩."""
    operator = SenseOperator(rng(1, 3, 4, 6), torch.tensor([True, False, True, True, False, True])[None, None])
    problem = Problem(operator, operator(rng(1, 4, 6)), scaled=True)
    N, b = dense(operator.normal, (1, 4, 6)), problem.adjoint.flatten()
    powers = torch.stack([torch.linalg.matrix_power(N, i) @ b for i in range(steps)], 1)
    space, _ = torch.linalg.qr(powers)
    expected = space @ torch.linalg.solve(space.mH @ N @ space, space.mH @ b)
    assert torch.allclose(CgSense(steps=steps).reconstruct(problem).flatten(), expected)


def test_it_converges_to_sense_without_noise():
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=8, acceleration=2, noise=0)
    few, many = (evaluate(upmri.reconstruct(scan, "cg-sense", steps=k))["psnr"] for k in (2, 60))
    assert many > few + 10


def test_the_number_of_steps_is_checked():
    with pytest.raises(InputError) as error:
        CgSense(steps=0)
    assert error.value.field == "steps"
