"""Supervised objectives: the error against the reference, with all lines as input."""

import pytest
import torch

from upmri import InputError
from upmri.methods.supervised import ModlObjective, VarnetObjective, full_image, relative_error
from upmri.physics.problem import Problem


@pytest.mark.parametrize("objective", [ModlObjective(), VarnetObjective()])
def test_the_loss_is_the_error_against_the_reference_with_all_lines_as_input(scan, objective):
    problem, calls = Problem.from_scan(scan).with_seeds((0, 1)), []
    truth = scan.reference / problem.scale[:, None, None]

    def recorded(operator, adjoint):
        calls.append((operator, adjoint))
        return torch.stack([0.9 * truth[0], truth[1] * torch.exp(torch.tensor(0.2j))])

    loss = objective.loss(recorded, problem)
    expected = torch.tensor([0.01, abs(complex(torch.exp(torch.tensor(0.2j))) - 1) ** 2])  # of phases, too
    assert torch.allclose(loss, expected, rtol=1e-3)
    assert torch.equal(loss, relative_error(recorded, problem))
    operator, adjoint = calls[0]
    assert torch.equal(operator.mask, problem.operator.mask)
    assert torch.allclose(adjoint, problem.operator.adjoint(problem.kspace), atol=1e-6)
    assert objective.supervised


def test_the_full_image_is_the_reference_on_the_scale_of_the_problem(scan, changed):
    problem = Problem.from_scan(scan)
    assert torch.allclose(full_image(problem) * problem.scale[:, None, None], scan.reference)
    with pytest.raises(InputError) as error:
        full_image(changed(problem, reference=None))
    assert error.value.field == "train"
