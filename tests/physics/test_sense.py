from functools import partial

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from upmri.core.errors import InputError
from upmri.physics import row_solver
from upmri.physics import sense as module
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping
from upmri.physics.simulate import simulate

SHAPE = (2, 5, 8)  # slices, H, W


def inner(a, b):
    return torch.vdot(a.flatten(), b.flatten())


def problem(rng, kind="lines", dtype=torch.complex128, support=True):
    n, h, w = SHAPE
    maps = rng(n, 3, h, w)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    if support:  # different in each slice, with an empty row and empty columns
        maps[0, :, 0] = 0
        maps[0, :, :, :2] = 0
        maps[1, :, 1:3, 6:] = 0
    shape = {"lines": (n, 1, w), "points": (n, h, w), "columns": (n, h, 1)}[kind]
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[..., shape[-1] // 2] = True
    if kind == "columns":
        mask[:, 0] = False
    return SenseOperator(maps.to(dtype), mask.expand(n, -1, w))


@pytest.fixture(params=["lines", "points", "columns"])
def operator(request, rng):
    return problem(rng, request.param)


def test_forward_is_mask_fourier_maps(operator, rng):
    x = rng(*SHAPE)
    for s in range(SHAPE[0]):
        for c in range(3):
            coil = (operator.maps[s, c] * x[s]).numpy()
            kspace = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(coil), norm="ortho")) * operator.mask[s].numpy()
            assert np.allclose(operator.forward(x)[s, c].numpy(), kspace)


def test_adjoint(operator, rng):
    x, y = rng(*SHAPE), rng(2, 3, 5, 8)
    left, right = inner(operator.forward(x), y), inner(x, operator.adjoint(y))
    assert abs(left - right) < 1e-12 * abs(left)


def test_adjoint_in_single_precision(rng):
    operator = problem(rng, dtype=torch.complex64)
    x, y = rng(*SHAPE, dtype=torch.complex64), rng(2, 3, 5, 8, dtype=torch.complex64)
    left, right = inner(operator.forward(x), y), inner(x, operator.adjoint(y))
    assert abs(left - right) < 1e-6 * x.norm() * y.norm()


def test_normal_is_adjoint_of_forward(operator, rng):
    x = rng(4, *SHAPE)  # four images of the same slices
    assert torch.allclose(operator.normal(x), operator.adjoint(operator.forward(x)))


@pytest.mark.parametrize("chunk", [1, 700, 1 << 20])
@pytest.mark.parametrize("kind", ["lines", "points"])
def test_normal_does_not_depend_on_the_blocks(rng, monkeypatch, chunk, kind):
    operator, x = problem(rng, kind), rng(*SHAPE)
    monkeypatch.setitem(module._CHUNK, "cpu", chunk)
    assert torch.allclose(operator.normal(x), operator.adjoint(operator.forward(x)))


def test_spectrum_lies_between_0_and_1(operator, dense):
    values = torch.linalg.eigvalsh(dense(operator.normal, SHAPE))
    assert values.min() > -1e-12
    assert values.max() < 1 + 1e-12
    full = SenseOperator(operator.maps, torch.ones(1, 1, 8, dtype=torch.bool))
    assert torch.allclose(torch.linalg.eigvalsh(dense(full.normal, SHAPE)).max(), torch.tensor(1.0).double())


@pytest.mark.parametrize(
    "damping", [1e-3, 0.1, *(torch.tensor(v, dtype=torch.float64) for v in ([0.01, 0.2], [0.1], 0.1))]
)
@pytest.mark.parametrize("solver", ["direct", "cg", "auto"])
def test_solve_is_the_dense_inverse(rng, dense, solver, damping):
    operator, rhs = problem(rng), rng(*SHAPE)
    weights = torch.as_tensor(damping, dtype=torch.float64).reshape(-1, 1, 1).expand(SHAPE).flatten()
    system = dense(operator.normal, SHAPE) + torch.diag(weights).to(torch.complex128)
    expected = torch.linalg.solve(system, rhs.flatten()).reshape(SHAPE)
    x = operator.solve(rhs, damping, solver, tolerance=1e-13)
    assert (x - expected).norm() < 1e-10 * expected.norm()


def test_solve_for_points_uses_conjugate_gradients(rng, dense):
    operator, rhs = problem(rng, "points"), rng(*SHAPE)
    system = dense(operator.normal, SHAPE) + 0.05 * torch.eye(rhs.numel(), dtype=torch.complex128)
    expected = torch.linalg.solve(system, rhs.flatten()).reshape(SHAPE)
    assert (operator.solve(rhs, 0.05, tolerance=1e-13) - expected).norm() < 1e-10 * expected.norm()
    with pytest.raises(InputError) as error:
        operator.solve(rhs, 0.05, "direct")
    assert error.value.field == "solver"


@pytest.mark.parametrize("solver", ["direct", "cg", "auto"])
def test_solve_for_equal_columns_is_the_dense_inverse(rng, dense, solver):
    """With a row solver of the object with its axes exchanged."""
    operator, rhs = problem(rng, "columns"), rng(3, *SHAPE)
    assert operator.mask.shape == SHAPE
    assert operator.cartesian_1d
    damping = torch.tensor([0.01, 0.2], dtype=torch.float64)
    weights = damping.reshape(-1, 1, 1).expand(SHAPE).flatten()
    system = dense(operator.normal, SHAPE) + torch.diag(weights).to(torch.complex128)
    expected = torch.linalg.solve(system, rhs.flatten(1).mT).mT.reshape(rhs.shape)
    x = operator.solve(rhs, damping, solver, tolerance=1e-13, start=rng(*rhs.shape))
    assert (x - expected).norm() < 1e-10 * expected.norm()
    assert x.is_contiguous()


def test_equal_rows_are_lines(rng):
    lines, rhs = problem(rng), rng(*SHAPE)
    points = SenseOperator(lines.maps, lines.mask.expand(SHAPE))
    assert points.mask.shape == SHAPE
    assert torch.equal(points.normal(rhs), lines.normal(rhs))
    assert torch.equal(points.solve(rhs, 0.1, "direct"), lines.solve(rhs, 0.1, "direct"))


def test_the_preconditioner_is_kept_for_any_damping(rng, monkeypatch):
    made = []

    class Counted(module.CirculantPreconditioner):
        def __init__(self, *args):
            made.append(1)
            super().__init__(*args)

    monkeypatch.setattr(module, "CirculantPreconditioner", Counted)
    operator, rhs = problem(rng, "points"), rng(*SHAPE)
    for damping in (0.1, 0.1, torch.tensor([0.2, 0.3])):
        operator.solve(rhs, damping)
    assert len(made) == 1
    operator.restrict(torch.rand(SHAPE) < 0.5).solve(rhs, 0.1)
    assert len(made) == 2


def test_many_right_hand_sides_share_the_factors(rng):
    operator, rhs = problem(rng), rng(3, *SHAPE)
    together = operator.solve(rhs, 0.01, "direct")
    assert operator._last is not None
    kept = operator._last.solver
    one_by_one = torch.stack([operator.solve(b, 0.01, "direct") for b in rhs])
    assert torch.allclose(together, one_by_one)
    assert operator._last.solver is kept
    operator.solve(rhs, 0.02, "direct")
    assert operator._last.solver is not kept


def test_a_damping_tensor_changed_in_place_is_noticed(rng):
    operator, rhs = problem(rng), rng(*SHAPE)
    damping = torch.tensor(0.5, dtype=torch.float64)
    operator.solve(rhs, damping, "direct")
    damping.fill_(0.01)
    assert torch.allclose(operator.solve(rhs, damping, "direct"), operator.solve(rhs, 0.01, "direct"))


def test_factors_that_may_not_be_kept_are_made_again(rng, monkeypatch):
    operator, rhs = problem(rng), rng(*SHAPE)
    expected = operator.solve(rhs, 0.01, "direct")
    monkeypatch.setitem(row_solver._KEEP, "cpu", 0)
    fresh = problem(rng)
    fresh._rows = operator._rows
    assert torch.allclose(fresh.solve(rhs, 0.01, "direct"), expected)
    assert fresh._last.solver._factors is None
    assert not fresh._affords_factors()


@pytest.mark.parametrize("invert", [False, True])  # as on the CPU, as on an accelerator
def test_single_precision_residual(rng, invert, monkeypatch):
    monkeypatch.setattr(module, "RowSolver", partial(module.RowSolver, invert=invert))
    n, c, h, w = 1, 8, 48, 160
    maps = rng(n, c, h, w, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.arange(w)[None, None] % 4 == 0
    operator, rhs = SenseOperator(maps, mask), rng(n, h, w, dtype=torch.complex64)
    exact = SenseOperator(maps.to(torch.complex128), mask)
    for damping in (1e-1, 1e-3, 1e-5):
        x = operator.solve(rhs, damping, "direct").to(torch.complex128)
        assert (exact.normal(x) + damping * x - rhs).norm() < 1e-5 * rhs.norm()


@pytest.mark.parametrize("invert", [False, True])
def test_single_precision_residual_with_smooth_maps(invert, monkeypatch):
    """Whose systems are far worse conditioned than those of random maps."""
    monkeypatch.setattr(module, "RowSolver", partial(module.RowSolver, invert=invert))
    scan = simulate(image((48, 200)), 16, 4)
    operator = SenseOperator(scan.maps, scan.mask)
    rhs, exact = operator.adjoint(scan.kspace), SenseOperator(scan.maps.to(torch.complex128), scan.mask)
    for damping in (1e-1, 1e-3, 1e-4):
        x = operator.solve(rhs, damping, "direct").to(torch.complex128)
        assert (exact.normal(x) + damping * x - rhs).norm() < 1e-5 * rhs.norm()


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_gradients_of_solve(rng, solver):
    operator = problem(rng)
    rhs = rng(*SHAPE).requires_grad_()
    for damping in (torch.tensor(0.3, dtype=torch.float64), torch.tensor([0.3, 0.6], dtype=torch.float64)):
        damping.requires_grad_()
        # gradcheck writes into its inputs behind autograd's back, which nobody could notice: give it a copy.
        solve = lambda b, d: operator.solve(b, d.clone(), solver, tolerance=1e-14)  # noqa: E731
        # By random projections where each solve iterates: all entries take a hundred times as many.
        assert gradcheck(solve, (rhs, damping), check_forward_ad=True, fast_mode=solver == "cg")


def test_second_gradients_of_solve(rng):
    operator = problem(rng)
    rhs = rng(*SHAPE).requires_grad_()
    assert gradgradcheck(lambda b: operator.solve(b, 0.3, "direct"), (rhs,))


def test_gradients_of_the_operator(operator, rng):
    x = rng(*SHAPE).requires_grad_()
    assert gradcheck(operator.forward, (x,))
    assert gradcheck(operator.normal, (x,), check_forward_ad=True)
    assert gradcheck(operator.adjoint, (rng(2, 3, 5, 8).requires_grad_(),))


def test_forward_mode_through_torch_func(rng):
    operator, x, v = problem(rng), rng(*SHAPE), rng(*SHAPE)
    _, tangent = torch.func.jvp(lambda z: operator.solve(operator.normal(z), 0.1), (x,), (v,))
    assert torch.allclose(tangent, operator.solve(operator.normal(v), 0.1))


@pytest.mark.parametrize(
    ("maps", "mask", "field"),
    [
        (torch.zeros(3, 5, 8, dtype=torch.complex64), torch.ones(1, 1, 8), "maps"),
        (torch.zeros(1, 3, 5, 8), torch.ones(1, 1, 8), "maps"),
        (torch.zeros(1, 3, 5, 8, dtype=torch.complex64), torch.ones(1, 1, 7), "mask"),
        (torch.zeros(1, 3, 5, 8, dtype=torch.complex64), torch.ones(2, 1, 8), "mask"),
    ],
)
def test_wrong_shapes(maps, mask, field):
    with pytest.raises(InputError) as error:
        SenseOperator(maps, mask)
    assert error.value.field == field


def test_images_and_data_of_another_shape_are_refused(rng):
    """They would be broadcast; leading axes are several images of the same slices."""
    operator = problem(rng)
    assert operator(rng(4, *SHAPE)).shape == (4, 2, 3, 5, 8)
    assert operator.H(rng(4, 2, 3, 5, 8)).shape == (4, *SHAPE)
    for shape in ((1, 5, 8), (5, 8), (2, 5, 1)):
        for apply in (operator, operator.forward):
            with pytest.raises(InputError, match=r"expected \(…, 2, 5, 8\)") as error:
                apply(rng(*shape))
            assert error.value.field == "image"
    for shape in ((1, 3, 5, 8), (2, 1, 5, 8), (3, 5, 8), (4, 5, 8)):
        for apply in (operator.H, operator.adjoint):
            with pytest.raises(InputError, match=r"expected \(…, 2, 3, 5, 8\)") as error:
                apply(rng(*shape))
            assert error.value.field == "data"


def test_unknown_solver(rng):
    with pytest.raises(InputError) as error:
        problem(rng).solve(rng(*SHAPE), 0.1, "magic")
    assert error.value.field == "solver"


def test_default_damping():
    assert sense_damping(torch.tensor([0.01, 0.0])).tolist() == pytest.approx([0.005, 1e-4])


def test_acceleration_of_each_slice(rng):
    lines = torch.zeros(2, 1, 8, dtype=torch.bool)
    lines[0, 0, :2] = lines[1] = True
    assert SenseOperator(rng(2, 3, 4, 8), lines).acceleration.tolist() == [4, 1]
    points = torch.zeros(1, 4, 8, dtype=torch.bool)
    points[0, 0, :4] = True
    assert SenseOperator(rng(1, 3, 4, 8), points).acceleration.tolist() == [8]


def test_unknowns_for_each_sample(rng):
    """Pixels of the support over sampled positions; a slice that no coil sees counts as one pixel."""
    maps = rng(2, 3, 4, 8)
    maps[0, :, :, 2:] = 0
    maps[1] = 0
    lines = torch.zeros(2, 1, 8)
    lines[:, 0, :4] = 1
    problem = Problem(SenseOperator(maps, lines), torch.zeros_like(maps))
    assert problem.unknowns.tolist() == [0.5, 1 / 16]
