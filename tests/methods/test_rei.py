"""REI: the calls of the network, and the loss of its images."""

import pytest
import torch

from upmri.learning.equivariance import draw_turns, turn_scan
from upmri.methods import rei
from upmri.methods.rei import ReiObjective


@pytest.mark.parametrize("transform", ["rotations", "turns", "flips"])
@pytest.mark.parametrize("bend", [0.0, 0.5], ids=["linear", "nonlinear"])
def test_the_loss_and_its_gradient_written_out(problem, check_two_measurements, monkeypatch, transform, bend):
    matrix = draw_turns(transform, [torch.Generator().manual_seed(s) for s in (1, 2)])
    monkeypatch.setattr(rei, "draw_turns", lambda kind, _: matrix if kind == transform else None)
    objective = ReiObjective(alpha=0.7, transform=transform)
    check_two_measurements(objective, 0.7, bend, lambda x, _: turn_scan(x, problem.operator, matrix))


def test_alpha_weights_the_turned_image(problem, changed, Recorder):
    none, one, two = (ReiObjective(alpha=a).loss(Recorder(), changed(problem)) for a in (0.0, 1.0, 2.0))
    assert torch.allclose(two - one, one - none)
    assert (one > none).all()


def test_the_second_scan_is_turned_and_noisy_with_the_same_lines(problem, Recorder):
    network = Recorder()
    assert ReiObjective() == ReiObjective(alpha=1.0, transform="rotations")
    ReiObjective().loss(network, problem)
    (first, z), (near, moved), (second, again) = network.calls
    assert near is first
    assert (moved - z).norm() == pytest.approx(1e-2 * z.norm().item(), rel=0.1)
    assert torch.equal(second.mask, problem.operator.mask)
    assert not torch.equal(second.maps, problem.operator.maps)
    assert torch.allclose(second.maps.abs().square().sum(1), second.support.double())
    assert (again[~second.support] == 0).all()


def test_for_pure_noise_the_best_image_is_zero(problem, changed, rng):
    """By SURE alone: 0 has no error, and an image that keeps the noise has all of it."""
    objective, sigma = ReiObjective(alpha=0.0), torch.ones(2, dtype=torch.float64)
    noise = changed(problem, kspace=rng(*problem.kspace.shape) * problem.operator.mask[:, None], sigma=sigma)
    assert (objective.loss(lambda _, z: 0 * z, noise).abs() < 0.1).all()
    assert (objective.loss(lambda _, z: z, noise) > 0.2).all()
