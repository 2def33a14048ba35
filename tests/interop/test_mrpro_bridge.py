import pytest
import torch

from upmri.core.errors import InputError

pytest.importorskip("mrpro")

from mrpro.algorithms.optimizers import cg
from mrpro.operators import FastFourierOp, IdentityOp, LinearOperator, SensitivityOp

from upmri.interop import from_mrpro, to_mrpro


class Mask(LinearOperator):
    def __init__(self, mask):
        super().__init__()
        self.mask = mask

    def forward(self, x):
        return (self.mask * x,)

    adjoint = forward


def peer(sense):
    return Mask(sense.mask[:, None, None]) @ FastFourierOp(dim=(-2, -1)) @ SensitivityOp(sense.maps[:, :, None])


def test_from_mrpro(sense, rng, assert_same):
    assert_same(from_mrpro(peer(sense), sense.shape), sense, rng)


def test_wrong_shape(sense, rng):
    operator = from_mrpro(peer(sense), (2, 8, 6))
    with pytest.raises((InputError, RuntimeError)):
        operator(rng(2, 8, 6))


def test_to_mrpro(sense, rng):
    ours, theirs = to_mrpro(sense), peer(sense)
    x, y = rng(2, 1, 1, 6, 8), rng(2, 4, 1, 6, 8)
    assert torch.allclose(ours(x)[0], theirs(x)[0])
    assert torch.allclose(ours.H(y)[0], theirs.H(y)[0])
    assert torch.allclose(ours.gram(x)[0], theirs.gram(x)[0])


def test_their_solver_on_our_operator(sense, rng):
    ours, b = to_mrpro(sense), rng(2, 1, 1, 6, 8)
    (solved,) = cg(ours.gram + 0.1 * IdentityOp(), b, max_iterations=200, tolerance=1e-12)
    assert torch.allclose(solved[:, 0, 0], sense.solve(b[:, 0, 0], 0.1), atol=1e-8)


def test_moves_with_the_module(sense):
    ours = to_mrpro(sense).float()
    assert ours.operator.maps.dtype == torch.complex64
    assert sense.maps.dtype == torch.complex128


def test_reconstructs(assert_reconstructs):
    assert_reconstructs(lambda sense: from_mrpro(peer(sense), sense.shape))
