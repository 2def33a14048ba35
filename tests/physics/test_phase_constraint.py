"""The operator with a phase constraint, against dense real matrices and the closed form for images of known phase."""

import pytest
import torch

from upmri.core.errors import InputError
from upmri.physics.fourier import mirror
from upmri.physics.phase_constraint import PhaseConstrainedOperator
from upmri.physics.sense import SenseOperator

H, W, C = 4, 6, 3
LINES = torch.tensor([0, 1, 1, 1, 1, 0], dtype=torch.bool)
ROWS = (torch.arange(H) > 2)[None, :, None]


def make(rng, *, missing=None, mask=LINES, slices=1):
    maps = rng(slices, C, H, W)
    maps[..., :2, 0] = 0
    phase = rng(slices, H, W).sgn()
    phase[:, 1, 2] = 0  # not known there
    weight = rng(slices, H, W).abs() * (phase != 0)
    return PhaseConstrainedOperator(maps, mask, phase, weight, missing)


def cases(rng):
    points = torch.rand(H, W, generator=torch.Generator().manual_seed(1)) < 0.6
    return {
        "lines": make(rng),
        "asymmetric echo": make(rng, missing=ROWS),
        "asymmetric echo of all lines": make(rng, missing=ROWS, mask=torch.ones(W, dtype=torch.bool)),
        "points": make(rng, mask=points),
    }


def split(x):
    return torch.view_as_real(x.resolve_conj()).flatten()


def joined(x, shape):
    return torch.view_as_complex(x.reshape(*shape, 2))


def real_matrix(apply, shape):
    """The matrix of a map that is linear over real numbers, on real and imaginary parts."""
    size = 2 * int(torch.tensor(shape).prod())
    units = torch.eye(size, dtype=torch.float64)
    return torch.stack([split(apply(joined(unit, shape))) for unit in units], 1)


def test_adjoint_normal_and_solve_agree_with_dense_real_matrices(rng):
    for name, operator in cases(rng).items():
        forward = real_matrix(operator.forward, operator.shape)
        adjoint = real_matrix(operator.adjoint, operator.data_shape)
        torch.testing.assert_close(adjoint, forward.mT, msg=name)
        torch.testing.assert_close(real_matrix(operator.normal, operator.shape), forward.mT @ forward, msg=name)
        assert operator.norm_bound() >= torch.linalg.matrix_norm(forward, 2) ** 2, name
        rhs = rng(1, H, W)
        system = forward.mT @ forward + 0.05 * torch.eye(2 * H * W)
        expected = joined(torch.linalg.solve(system, split(rhs)), rhs.shape)
        torch.testing.assert_close(operator.solve(rhs, 0.05), expected, rtol=1e-4, atol=1e-5, msg=name)
        torch.testing.assert_close(operator.solve(rhs, 0.05, "cg", tolerance=1e-10), expected, msg=name)


def test_lines_have_a_direct_solver_for_several_images_and_a_damping_a_slice(rng):
    operator, damping = make(rng, slices=2), torch.tensor([0.05, 0.2], dtype=torch.float64)
    rhs = rng(3, 2, H, W)
    direct = operator.solve(rhs, damping, "direct")
    torch.testing.assert_close(direct, operator.solve(rhs, damping, "cg", tolerance=1e-12))
    with pytest.raises(InputError, match="1-D"):
        cases(rng)["points"].solve(rng(1, H, W), 0.05, "direct")


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_where_no_coil_sees_nothing_is_constrained(rng, solver):
    maps, image = rng(1, C, H, W), rng(1, H, W)
    maps[..., 0, :] = 0
    operator = PhaseConstrainedOperator(maps, LINES, rng(1, H, W).sgn(), torch.ones(1, H, W))
    assert torch.equal(operator.normal(image) != 0, operator.support)
    assert torch.equal(operator.H(rng(1, C + 1, H, W)) != 0, operator.support)
    solved = operator.solve(image, 0.05, solver, tolerance=1e-12)
    torch.testing.assert_close(operator.normal(solved) + 0.05 * solved, image)


@pytest.mark.parametrize("solver", ["direct", "cg"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_damping_of_one_value_is_that_of_every_slice(rng, dtype, solver):
    operator, rhs = make(rng, slices=3), rng(3, H, W)
    damping = torch.tensor([0.25], dtype=dtype)
    torch.testing.assert_close(operator.solve(rhs, damping, solver), operator.solve(rhs, 0.25, solver))


def test_another_precision_has_factors_of_its_own(rng):
    operator, rhs = make(rng), rng(1, H, W)
    double = operator.solve(rhs, 0.05)
    single = operator.to(torch.complex64).solve(rhs.to(torch.complex64), 0.05)
    assert single.dtype == torch.complex64
    torch.testing.assert_close(single.to(double.dtype), double, rtol=1e-3, atol=1e-4)


def test_gradients_flow_through_normal_and_solve(rng):
    operator = make(rng)
    image = rng(1, H, W).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: operator.normal(x), (image,))
    assert torch.autograd.gradcheck(lambda x: operator.solve(x, 0.1), (image,), atol=1e-6)


def test_with_half_of_k_space_and_the_true_phase_the_image_is_found(rng):
    width = 16
    phase = rng(1, H, width).sgn()
    image = phase * torch.rand(1, H, width, dtype=torch.float64)
    maps, half = torch.ones(1, 1, H, width, dtype=torch.complex128), torch.arange(width) <= width // 2
    operator = PhaseConstrainedOperator(maps, half, phase, torch.full((1, H, width), 1e3, dtype=torch.float64))
    data = SenseOperator(maps, half).forward(image)
    found = operator.solve(operator.adjoint(operator.extended(data)), 1e-9)
    torch.testing.assert_close(found, image, rtol=1e-2, atol=1e-2)
    plain = SenseOperator(maps, half).solve(SenseOperator(maps, half).adjoint(data), 1e-9)
    assert (plain - image).norm() > 10 * (found - image).norm()


def test_restrict_take_and_mirror(rng):
    operator = make(rng, slices=2, missing=ROWS.expand(2, -1, -1))
    fewer = LINES & (torch.arange(W) != 2)
    assert torch.equal(operator.restrict(fewer).sampled.mask, operator.sampled.mask & fewer)
    assert torch.equal(operator.acceleration, 1 / operator.sampled.mask.double().mean((1, 2)))
    image = rng(2, H, W)
    torch.testing.assert_close(operator.take([1, 1]).normal(image[[0, 0]])[1], operator.normal(image[[0, 0]])[1])
    for axes in ((-1,), (-2,), (-2, -1)):
        expected = mirror(operator.normal(image), *axes)
        torch.testing.assert_close(operator.mirror(axes).normal(mirror(image, *axes)), expected)
    with pytest.raises(InputError, match="choice"):
        operator.mirror((0,))


def test_wrong_shapes_are_refused(rng):
    for name, wrong in (("phase", (W - 1, W)), ("weight", (W, W - 1))):
        with pytest.raises(InputError) as error:
            PhaseConstrainedOperator(rng(1, C, H, W), LINES, rng(1, H, wrong[0]), rng(1, H, wrong[1]).abs())
        assert error.value.field == name
    operator = make(rng, slices=2)
    for apply, shape, name in ((operator, (1, H, W), "image"), (operator.H, (2, C, H, W), "data")):
        with pytest.raises(InputError) as error:
            apply(rng(*shape))
        assert error.value.field == name
