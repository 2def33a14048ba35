"""The steps of an adaptation; tests/learning/test_adaptation.py has which weights they change, and what is kept."""

import pytest
import torch

from upmri.learning.adaptation_training import AdaptationPlan, AdaptationTraining
from upmri.physics.identity import IdentityOperator
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.simulate import simulate


class OneWeight(torch.nn.Module):
    """A network with the weight a."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.0))


def steadily(net, part):
    """A loss whose gradient is always −1, so that Adam's steps are those of its learning rate."""
    return -net.a.expand(len(part))


@pytest.fixture(scope="module")
def problem():
    return Problem.from_scan(simulate(image((16, 20)).expand(2, -1, -1), coils=2, acceleration=2))


def test_the_average_follows_its_formula_and_the_rate_its_warm_up(problem):
    plan = AdaptationPlan(rate=0.1, warmup=4, average=0.6, weights="all", batch=2)
    training = AdaptationTraining(problem, OneWeight(), steadily, plan)
    weight = average = 0.0
    for step in range(1, 31):
        training.advance()
        weight += 0.1 * min(1.0, step / 4)
        decay = min(0.6, step / (step + 9))
        average = decay * average + (1 - decay) * weight
        assert training.averaged.a.item() == pytest.approx(average, rel=1e-4)


def test_the_given_network_is_not_changed(problem):
    network = OneWeight()
    AdaptationTraining(problem, network, steadily, AdaptationPlan(weights="all")).advance()
    assert network.a.item() == 0


def test_every_slice_takes_its_turn_whatever_the_mirror_image(problem):
    """Mirroring keeps the energy of a slice, by which it is known."""
    seen = []

    def loss(net, part):
        seen.extend(data.abs().square().sum().item() for data in part.kspace)
        return steadily(net, part)

    kspace = problem.kspace * torch.tensor([1.0, 2.0])[:, None, None, None]
    two = Problem(problem.operator, kspace, sigma=problem.sigma, scaled=True)
    training = AdaptationTraining(two, OneWeight(), loss, AdaptationPlan(weights="all", batch=1))
    for _ in range(8):
        training.advance()
    energies = sorted(data.abs().square().sum().item() for data in kspace)
    for turn in range(0, 8, 2):
        assert sorted(seen[turn : turn + 2]) == pytest.approx(energies, rel=1e-4)


class Own(IdentityOperator):
    """An operator with slices to choose from, and no mirror image."""

    def take(self, which):
        return Own((len(which), *self.shape[1:]))


def test_operators_that_cannot_be_mirrored_are_used_as_they_are():
    data = torch.randn(1, 8, 8, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    own = Problem(Own(data.shape), data, sigma=torch.tensor([0.1]), scaled=True)
    seen = []

    def loss(net, part):
        seen.append(part.kspace[0])
        return steadily(net, part)

    training = AdaptationTraining(own, OneWeight(), loss, AdaptationPlan(weights="all", batch=1))
    for _ in range(6):
        training.advance()
    assert all(torch.equal(one, data[0]) for one in seen)
