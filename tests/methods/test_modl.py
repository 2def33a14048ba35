"""MoDL: what its lesson asks and makes."""

import pytest
import torch

import upmri
from upmri.methods import find
from upmri.methods.base import Problem
from upmri.methods.modl import MoDLLesson
from upmri.networks.modl import MoDL
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch


def test_the_loss_is_the_error_against_the_truth_with_all_lines_given():
    scan = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    truth = scan.reference / problem.scale[:, None, None]
    batch = Batch(problem.kspace, problem.operator.maps, problem.operator.mask, problem.sigma, truth, (0, 1))
    asked = []

    def watched(operator, adjoint):
        asked.append((operator, adjoint))
        return torch.stack([0.9 * truth[0], truth[1] * torch.exp(torch.tensor(0.2j))])

    loss = MoDLLesson().loss(watched, batch)
    expected = torch.tensor([0.01, abs(complex(torch.exp(torch.tensor(0.2j))) - 1) ** 2])  # of phases, too
    assert torch.allclose(loss, expected, rtol=1e-3)
    ((operator, adjoint),) = asked
    assert torch.equal(operator.mask, batch.mask)
    assert torch.allclose(adjoint, SenseOperator(batch.maps, batch.mask).adjoint(batch.kspace))


@pytest.mark.parametrize("method", ["modl", "moi", "ensure"])
def test_the_network_is_as_the_lesson_says(method):
    lesson = find(method).lesson
    modl = lesson(unrolls=3, layers=4, width=5, damping=0.2).network()
    assert isinstance(modl, MoDL)
    assert (modl.unrolls, len(modl.network)) == (3, 4)
    assert modl.network[0][0].out_channels == 5
    assert modl.log_damping.exp().item() == pytest.approx(0.2)
    assert lesson() == lesson(unrolls=10, layers=5, width=64, damping=0.05)
