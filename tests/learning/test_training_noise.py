"""x₁ and dropout of a training step: given by the seed of the slice alone."""

import pytest
import torch

from upmri.flow.path import noise
from upmri.learning.training_noise import path_noise, same_dropout
from upmri.physics.identity import IdentityOperator
from upmri.physics.problem import Problem


def problem_of(rng, count, seeds, dtype=torch.complex128):
    return Problem(IdentityOperator((count, 40, 50)), rng(count, 40, 50, dtype=dtype), seeds=seeds)


def test_it_is_the_same_at_every_call(rng):
    problem = problem_of(rng, 2, (3, 4))
    first = path_noise(problem)
    problem.unit_noise(5)  # uses the generators of the slices, which have no part in x₁
    assert torch.equal(path_noise(problem), first)


def test_a_slice_has_the_same_noise_alone_as_in_a_batch(rng):
    batch = path_noise(problem_of(rng, 3, (3, 4, 3)))
    assert torch.equal(path_noise(problem_of(rng, 1, 4)), batch[1:2])
    assert torch.equal(batch[0], batch[2])
    assert not torch.equal(batch[0], batch[1])


def test_it_differs_from_what_the_generator_of_the_slice_draws(rng):
    """Masks and times are drawn with the seed itself, so x₁ has the next one."""
    problem = problem_of(rng, 1, 7)
    assert torch.equal(path_noise(problem), noise(problem.adjoint, torch.Generator().manual_seed(8)))
    assert not torch.equal(path_noise(problem), noise(problem.adjoint, problem.generators))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_it_has_variance_2_and_the_type_of_the_images(rng, dtype):
    found = path_noise(problem_of(rng, 4, range(4), dtype))
    assert found.dtype == dtype
    assert found.abs().square().mean().item() == pytest.approx(2, rel=0.05)
    assert abs(found.square().mean()) < 0.06


def test_dropout_is_the_same_at_every_call(rng):
    dropout = torch.nn.Dropout()
    network = same_dropout(lambda z, t: dropout(z) * t, torch.tensor(2.0), problem_of(rng, 1, 7))
    z = torch.ones(1000)
    first = network(z)
    assert torch.equal(network(z), first)
    assert set(first.tolist()) == {0, 4}
    assert not torch.equal(dropout(z), first / 2)
