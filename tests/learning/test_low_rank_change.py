"""Changes of low rank of kernels: the gradients of their factors, by autograd, and what is written."""

import torch

from upmri.learning.low_rank_change import LowRankChange


def kernels():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(6, 3, 3, 3, generator=generator), torch.randn(2, 6, 1, 1, generator=generator)]


def test_nothing_is_changed_at_first():
    given = kernels()
    LowRankChange(given, 2).write()
    for kernel, before in zip(given, kernels(), strict=True):
        assert torch.equal(kernel, before)


def test_gradients_of_the_factors_are_those_of_autograd():
    given = kernels()
    change = LowRankChange(given, 2)
    for i, factor in enumerate(change.factors):  # B is 0 at first, and so would be the gradient in A
        factor.copy_(torch.randn(factor.shape, generator=torch.Generator().manual_seed(i)))
    change.write()
    goals = [torch.full_like(kernel, 0.3) for kernel in given]
    for kernel, goal in zip(given, goals, strict=True):
        kernel.grad = 2 * (kernel - goal)  # of ‖W − goal‖²
    change.take_gradients()
    factors = [factor.clone().requires_grad_() for factor in change.factors]
    count = len(given)
    pairs = zip(kernels(), factors[:count], factors[count:], goals, strict=True)
    sum((w + (b @ a).view(w.shape) - goal).square().sum() for w, b, a, goal in pairs).backward()
    for factor, own in zip(factors, change.factors, strict=True):
        torch.testing.assert_close(own.grad, factor.grad, rtol=1e-4, atol=1e-4)
    assert all(kernel.grad is None for kernel in given)


def test_what_is_written_differs_by_a_matrix_of_that_rank():
    given = kernels()
    change = LowRankChange(given, 2)
    for factor in change.factors:
        factor.add_(torch.rand(factor.shape, generator=torch.Generator().manual_seed(0)))
    change.write()
    assert torch.linalg.matrix_rank((given[0] - kernels()[0]).flatten(1), rtol=1e-4) == 2
