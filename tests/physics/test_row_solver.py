import pytest
import torch

from upmri.physics import row_solver
from upmri.physics.row_solver import NormalRows, RowSolver, _Inverse, _inverse, _Triangle, row_blocks
from upmri.physics.sense import SenseOperator


def hermitian(rng, n, batch=3):
    factor = rng(batch, n, n)
    return factor @ factor.mH / n


@pytest.mark.parametrize("n", [1, 8, 9, 64, 65, 200])  # in one piece, halved once, halved again and again
def test_factors_give_the_dense_solution(rng, n):
    system = hermitian(rng, n) + 0.1 * torch.eye(n)
    rhs = rng(3, n, 2)
    expected = torch.linalg.solve(system, rhs)
    for factor in (_Triangle(torch.linalg.cholesky(system)), _Inverse(_inverse(system))):
        found = torch.empty_like(rhs)
        factor.solve(rhs, found)
        assert torch.allclose(found, expected)


def test_a_system_that_is_not_definite_is_noticed_at_any_depth(rng):
    system = hermitian(rng, 200) + 0.1 * torch.eye(200)
    system[1, 150, 150] = -1
    found = _inverse(system).isnan().any((1, 2))
    assert found.tolist() == [False, True, False]


def test_blocks_are_cropped_to_what_is_seen():
    maps = torch.zeros(1, 40, 2, 30, dtype=torch.complex64)
    maps[:, 5:20, :, 10:25] = 1
    (first, second) = row_blocks(maps)
    assert (first.rows, first.columns) == (slice(5, 16), slice(10, 25))
    assert (second.rows, second.columns) == (slice(16, 20), slice(10, 25))


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("damping", [torch.tensor(0.1), torch.tensor([0.1])])
def test_a_damping_of_one_value_is_that_of_every_slice(rng, damping, invert):
    maps, mask, rhs = rng(3, 4, 2, 6), torch.rand(3, 6) + 0.0, rng(3, 4, 6)
    rows = NormalRows(maps, mask, row_blocks(maps))
    found = RowSolver(rows, damping, invert=invert)(rhs)
    expected = RowSolver(rows, damping.expand(3), invert=invert)(rhs)
    assert torch.equal(found, expected)


def test_rows_are_the_normal_operator(rng):
    """Each N_h is the part of N on the pixels of its row."""
    maps, lines = rng(2, 3, 4, 6), torch.rand(2, 1, 6) < 0.5
    operator, image = SenseOperator(maps, lines), rng(2, 4, 6)
    expected = operator.normal(image)
    for block in operator.rows.blocks:
        part = image[block.slices, block.rows, block.columns, None]
        found = (operator.rows.normal(block) @ part)[..., 0]
        assert torch.allclose(found, expected[block.slices, block.rows, block.columns])


def test_rows_are_affordable_up_to_a_number_of_bytes(monkeypatch):
    maps = torch.ones(2, 4, 3, 6, dtype=torch.complex64)
    rows = NormalRows(maps, torch.ones(2, 6), row_blocks(maps))
    monkeypatch.setitem(row_solver._KEEP, "cpu", 2 * 4 * 6**2 * 8)
    assert rows.affordable()
    assert not rows.affordable(2)
