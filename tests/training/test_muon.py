"""Muon: orthogonal steps for convolutions, AdamW for everything else."""

import pytest
import torch
from torch import nn

from upmri.networks.unrolled import Unrolled
from upmri.training.muon import Muon, is_matrix, moments_of, orthogonal


@pytest.mark.parametrize("shape", [(16, 90), (90, 16), (24, 24)])
def test_singular_values_become_close_to_one_and_singular_vectors_stay(rng, shape):
    matrix = rng(*shape, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    matrix = left @ torch.diag(torch.logspace(0, -1.5, len(values), dtype=torch.float64)) @ right
    rotated = left.T @ orthogonal(matrix) @ right.T
    assert 0.6 < rotated.diagonal().min() <= rotated.diagonal().max() < 1.3
    assert (rotated - rotated.diagonal().diag()).abs().max() < 1e-9


def test_a_gradient_of_zero_changes_nothing():
    assert not orthogonal(torch.zeros(8, 72)).any()


def layer():
    torch.manual_seed(0)
    return nn.Conv2d(32, 40, 3)


def test_the_first_step(rng):
    """Against the formula: the nearest matrix with orthogonal rows."""
    conv = layer()
    before = conv.weight.detach().clone()
    conv.weight.grad = gradient = rng(40, 32, 3, 3, dtype=torch.float32)
    conv.bias.grad = torch.ones(40)
    bias = conv.bias.detach().clone()
    Muon(conv.parameters(), lr=0.01, weight_decay=0.1).step()
    left, _, right = torch.linalg.svd(gradient.flatten(1), full_matrices=False)
    change = (conv.weight.detach() - before * (1 - 0.001)).flatten(1)
    assert torch.nn.functional.cosine_similarity(change.flatten(), -(left @ right).flatten(), dim=0) > 0.98
    assert 0.7 < torch.linalg.matrix_norm(change, 2) / (0.01 * 12) < 1.3
    assert torch.allclose(conv.bias, bias * (1 - 0.001) - 0.01, atol=1e-6)


def test_weights_of_other_kinds_are_adamws(rng):
    """First and last convolutions, norms, biases and numbers."""
    shapes = [(32, 2, 3, 3), (2, 32, 1, 1), (32,), ()]
    mine, theirs = ([nn.Parameter(torch.ones(s)) for s in shapes] for _ in range(2))
    assert not any(map(is_matrix, mine))
    ours, adamw = Muon(mine, lr=0.1, weight_decay=0.01), torch.optim.AdamW(theirs, lr=0.1, weight_decay=0.01)
    for _ in range(3):
        for a, b in zip(mine, theirs, strict=True):
            a.grad = rng(1, *a.shape, dtype=torch.float32)[0]
            b.grad = a.grad.clone()
        ours.step()
        adamw.step()
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert moments_of(ours, mine[0]) == ("exp_avg", "exp_avg_sq")


@pytest.mark.parametrize("memory", [0, 8, 12])
@pytest.mark.parametrize("conditioned", [False, True])
def test_first_and_last_convolutions_are_adamws(memory, conditioned):
    """Also the first one of a network that knows more than its image."""
    network = Unrolled(width=32, levels=2, memory=memory, conditioned=conditioned)
    convolutions = [weights for weights in network.parameters() if weights.ndim == 4]
    assert [is_matrix(weights) for weights in convolutions] == [False, *[True] * (len(convolutions) - 2), False]


def test_weights_without_a_gradient_stay():
    conv = layer()
    before = conv.weight.detach().clone()
    optimiser = Muon(conv.parameters(), lr=0.1, weight_decay=0.1)
    optimiser.step()
    assert torch.equal(conv.weight, before)
    conv.weight.grad = torch.ones_like(conv.weight)
    optimiser.zero_grad()
    assert conv.weight.grad is None


def test_it_solves_least_squares(rng):
    torch.manual_seed(0)
    data, kernel = rng(1024, 32, 3, 3, dtype=torch.float32), rng(40, 32, 3, 3, dtype=torch.float32)
    wanted, conv = nn.functional.conv2d(data, kernel), layer()
    optimiser = Muon(conv.parameters(), lr=0.03, weight_decay=0.0)
    for step in range(200):
        optimiser.param_groups[0]["lr"] = 0.03 * (1 - step / 200)
        optimiser.zero_grad()
        (conv(data) - wanted).square().mean().backward()
        optimiser.step()
    assert (conv.weight - kernel).norm() < 0.02 * kernel.norm()
