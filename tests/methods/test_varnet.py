"""VarNet: what its objective asks and makes."""

import pytest
import torch

import upmri
from upmri.methods import find_method
from upmri.physics.problem import Problem
from upmri.methods.varnet import VarnetObjective
from upmri.networks.varnet import VarNet
from upmri.physics.sense import SenseOperator


def test_the_loss_is_the_error_against_the_truth_with_all_lines_given():
    scan = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)
    problem = Problem.from_scan(scan)
    truth = scan.reference / problem.scale[:, None, None]
    batch = Batch(problem.kspace, problem.operator.maps, problem.operator.mask, problem.sigma, truth, (0, 1))
    asked = []

    def watched(operator, adjoint):
        asked.append((operator, adjoint))
        return torch.stack([0.9 * truth[0], truth[1] * torch.exp(torch.tensor(0.2j))])

    loss = VarnetObjective().loss(watched, batch)
    expected = torch.tensor([0.01, abs(complex(torch.exp(torch.tensor(0.2j))) - 1) ** 2])  # of phases, too
    assert torch.allclose(loss, expected, rtol=1e-3)
    ((operator, adjoint),) = asked
    assert torch.equal(operator.mask, batch.operator.mask)
    assert torch.allclose(adjoint, SenseOperator(batch.operator.maps, batch.operator.mask).adjoint(batch.kspace))


@pytest.mark.parametrize("method", ["varnet", "ssdu", "weighted-ssdu", "robust-ssdu", "rei"])
def test_the_network_is_as_the_objective_says(method):
    objective = find_method(method).objective
    network = objective(cascades=3, width=5).network()
    assert isinstance(network, VarNet)
    assert len(network.networks) == 3
    assert network.networks[0].down[0][0][0].out_channels == 5
    assert (objective().cascades, objective().width) == (10, 32)
