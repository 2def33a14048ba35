"""Adaptation: Adam on splits of the slices' own lines, with a copy of the network."""

import copy

import pytest
import torch
from torch import nn

from upmri.learning.adaptation import adapt_to
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator


class Gain(nn.Module):
    """x ↦ g x, with dropout that must stay off."""

    def __init__(self):
        super().__init__()
        self.gain, self.dropout = nn.Parameter(torch.tensor([0.5, 2.0])), nn.Dropout(0.5)

    def forward(self, x):
        return self.gain[0] * x + self.dropout(self.gain[1] * x.real)


@pytest.fixture
def problem(rng):
    mask = torch.tensor([True, False, True, True])
    return Problem(SenseOperator(rng(2, 3, 5, 4), mask), rng(2, 3, 5, 4), sigma=0.1, seeds=(8, 9))


@pytest.fixture
def network():
    return Gain().eval().requires_grad_(False)


def loss(network, problem):
    weight = torch.tensor(problem.seeds) + 1  # each slice and step counts differently
    return weight * (network(problem.adjoint) - problem.adjoint).abs().square().sum((1, 2))


def test_it_is_adam_on_two_splits_of_every_slice(problem, network):
    """Written out, with seeds that no other step has."""
    expected = copy.deepcopy(network).requires_grad_(True)
    adam = torch.optim.Adam(expected.parameters(), lr=1e-4)
    for step in range(3):
        adam.zero_grad()
        loss(expected, problem.repeat(2, seeds=range(4 * step, 4 * step + 4))).mean().backward()
        adam.step()
    found = adapt_to(problem, network, loss, 3)
    assert torch.equal(found.gain, expected.gain)
    assert (found.gain - network.gain).abs().min() > 1e-4


def test_the_given_network_stays_as_it_is(problem, network):
    before = network.gain.clone()
    found = adapt_to(problem, network, loss, 2)
    assert found is not network
    assert torch.equal(network.gain, before)
    assert not network.gain.requires_grad
    assert not found.gain.requires_grad
    assert not found.training


def test_it_works_where_gradients_are_switched_off(problem, network):
    with torch.no_grad():
        found = adapt_to(problem, network, loss, 2)
    assert torch.equal(found.gain, adapt_to(problem, network, loss, 2).gain)


def test_it_does_not_depend_on_the_seeds_of_the_problem(problem, network):
    found = [adapt_to(other, network, loss, 2).gain for other in (problem, problem.with_seeds(3))]
    assert torch.equal(*found)


def test_no_steps_change_nothing(problem, network):
    assert torch.equal(adapt_to(problem, network, loss, 0).gain, network.gain)
