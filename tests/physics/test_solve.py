import pytest
import torch

import upmri
from upmri.physics.sense import SenseOperator
from upmri.physics.solve import conjugate_gradients, slice_values, solve_with_residual


def hermitian(rng, n=12, batch=3):
    factor = rng(batch, n, n)
    return factor @ factor.mH / n


def apply(matrix):
    return lambda x: (matrix @ x.flatten(-2)[..., None])[..., 0].unflatten(-1, x.shape[-2:])


def test_reaches_the_dense_solution(rng):
    matrix, rhs = hermitian(rng), rng(3, 3, 4)
    expected = torch.linalg.solve(matrix + 0.1 * torch.eye(12), rhs.flatten(1)).unflatten(-1, (3, 4))
    x = conjugate_gradients(apply(matrix), rhs, 0.1, iterations=100, tolerance=1e-12)
    assert torch.allclose(x, expected)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-4])
def test_stops_at_the_tolerance(rng, tolerance):
    matrix, rhs, calls = hermitian(rng), rng(3, 3, 4), []

    def normal(x):
        calls.append(1)
        return apply(matrix)(x)

    x = conjugate_gradients(normal, rhs, 0.1, iterations=1000, tolerance=tolerance)
    residual = rhs - apply(matrix)(x) - 0.1 * x
    assert bool((residual.flatten(1).norm(dim=1) <= 1.01 * tolerance * rhs.flatten(1).norm(dim=1)).all())
    assert len(calls) < 30


def test_k_iterations_are_the_krylov_optimum(rng):
    # The k-th iterate minimises the energy norm of the error over the Krylov space of dimension k.
    matrix, rhs, k = hermitian(rng, batch=1), rng(1, 3, 4), 4
    x = conjugate_gradients(apply(matrix), rhs, 0.0, iterations=k).flatten()
    basis = torch.stack([torch.linalg.matrix_power(matrix[0], i) @ rhs.flatten() for i in range(k)], 1)
    best = basis @ torch.linalg.solve(basis.mH @ matrix[0] @ basis, basis.mH @ rhs.flatten())
    assert torch.allclose(x, best)


def test_every_image_has_its_own_scalars(rng):
    matrix, rhs = hermitian(rng), rng(3, 3, 4) * torch.tensor([1.0, 1e6, 1e-6])[:, None, None]
    together = conjugate_gradients(apply(matrix), rhs, 0.1, iterations=5)
    pairs = zip(matrix, rhs, strict=True)
    alone = torch.cat([conjugate_gradients(apply(m[None]), b[None], 0.1, iterations=5) for m, b in pairs])
    assert torch.allclose(together, alone, rtol=1e-9, atol=0)


def counted(matrix, *args, **kwargs):
    """The solution, and how often the matrix was applied."""
    calls = []

    def normal(x):
        calls.append(1)
        return apply(matrix)(x)

    return conjugate_gradients(normal, *args, iterations=1000, **kwargs), len(calls)


def test_a_near_start_saves_iterations(rng):
    matrix, rhs = hermitian(rng, 60), rng(3, 6, 10)
    exact, _ = counted(matrix, rhs, 0.1, tolerance=1e-12)
    _, cold = counted(matrix, rhs, 0.1, tolerance=1e-9)
    start = exact + 1e-7 * rng(3, 6, 10)
    given = start.clone()
    x, warm = counted(matrix, rhs, 0.1, tolerance=1e-9, start=start)
    assert torch.equal(start, given)
    assert warm < 0.6 * cold
    assert torch.allclose(x, exact, rtol=1e-7)
    x, at_once = counted(matrix, rhs, 0.1, tolerance=1e-9, start=exact)
    assert at_once == 1  # for the residual
    assert torch.equal(x, exact)


def test_a_bad_start_gives_the_same(rng):
    matrix, rhs = hermitian(rng), rng(3, 3, 4)
    exact, _ = counted(matrix, rhs, 0.1, tolerance=1e-12)
    x, _ = counted(matrix, rhs, 0.1, tolerance=1e-12, start=(100 * rng(3, 3, 4)).conj())
    assert torch.allclose(x, exact)


@pytest.mark.parametrize("damping", [1e-3, 0.1, torch.tensor([1e-3, 0.1, 1.0], dtype=torch.float64)])
def test_accuracy_bounds_the_error(rng, damping):
    matrix, rhs = hermitian(rng, 60), rng(3, 6, 10)
    exact, fine = counted(matrix, rhs, damping, tolerance=1e-12)
    x, coarse = counted(matrix, rhs, damping, tolerance=1e-12, accuracy=1e-2)
    errors = (x - exact).flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1)
    assert (errors <= 1e-2).all()
    assert coarse < fine - 3
    _, loose = counted(matrix, rhs, damping, tolerance=0.5, accuracy=1e-12)
    assert loose < coarse  # whichever of the two is reached first


def test_an_image_stops_as_it_would_alone(rng):
    """Even if another of the batch takes many more iterations; the tolerance is so coarse that each would show."""
    matrix, rhs = hermitian(rng, 60), rng(3, 6, 10)
    matrix[1] *= 1e-3
    for stop in ({"tolerance": 0.1}, {"tolerance": 1e-9, "accuracy": 0.05}):
        together, most = counted(matrix, rhs, 0.1, **stop)
        for i in range(3):
            alone, count = counted(matrix[i : i + 1], rhs[i : i + 1], 0.1, **stop)
            assert torch.allclose(together[i], alone[0], rtol=1e-9)
            assert i != 1 or count < 0.5 * most


def test_a_solved_image_in_the_batch_stays_finite(rng):
    rhs = rng(2, 3, 4)
    rhs[1] = 0
    x = conjugate_gradients(lambda z: 0.5 * z, rhs, 0.5, iterations=50)
    assert torch.equal(x[1], torch.zeros_like(x[1]))
    assert torch.allclose(x[0], rhs[0])


def test_the_circulant_preconditioner_is_positive_definite_and_helps(rng, dense):
    torch.manual_seed(0)
    h, w, damping = 8, 10, 0.01
    maps = rng(1, 4, h, w)
    maps[..., 0, :] = 0  # a row outside the object
    mask = torch.rand(1, h, w) < 0.5
    operator = SenseOperator(maps / maps.abs().square().sum(1, keepdim=True).sqrt().clamp_min(1e-9), mask)
    precondition = operator.preconditioner.damped(damping)
    matrix = dense(precondition, (1, h, w))
    assert torch.allclose(matrix, matrix.mH)
    assert torch.linalg.eigvalsh(matrix).min() > 0
    rhs = rng(1, h, w)
    exact = torch.linalg.solve(dense(operator.normal, (1, h, w)) + damping * torch.eye(h * w), rhs.flatten())
    x = conjugate_gradients(operator.normal, rhs, damping, iterations=500, tolerance=1e-12, precondition=precondition)
    assert torch.allclose(x.flatten(), exact)


def test_preconditioning_saves_iterations_on_smooth_coils():
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=8, acceleration=1)
    mask = upmri.physics.masks.poisson_disc((96, 96), 4, calibration=(12, 12), seed=0)
    operator = SenseOperator(scan.maps, mask[None])
    rhs, calls = operator.adjoint(scan.kspace), []

    def normal(x):
        calls.append(1)
        return operator.normal(x)

    counts = []
    for shape in (None, operator.preconditioner.damped(1e-3)):
        calls.clear()
        x = conjugate_gradients(normal, rhs, 1e-3, iterations=500, tolerance=1e-5, precondition=shape)
        assert (operator.normal(x) + 1e-3 * x - rhs).norm() < 1.2e-5 * rhs.norm()
        counts.append(len(calls))
    assert counts[1] < 0.6 * counts[0]


def test_iterating_past_convergence_leaves_the_null_space_alone():
    g = torch.Generator().manual_seed(0)
    mask = torch.rand(64, generator=g) < 0.25
    operator = SenseOperator(torch.ones(1, 1, 64, 64, dtype=torch.complex64), mask[None, None])
    image = operator.adjoint(torch.randn(1, 1, 64, 64, dtype=torch.complex64, generator=g))
    x = conjugate_gradients(operator.normal, image, 0.0, iterations=30)  # N is a projection: N⁺ A*y = A*y
    assert (x - image).norm() < 1e-4 * image.norm()


def test_a_known_image_of_the_start_saves_one_product(rng):
    matrix, rhs, calls = hermitian(rng), rng(3, 3, 4), []

    def normal(x):
        calls.append(1)
        return apply(matrix)(x)

    options = {"iterations": 100, "tolerance": 1e-3, "accuracy": 0.0, "precondition": None}
    x, residual = solve_with_residual(normal, rhs, 0.1, **options, start=None, applied=None)
    assert torch.allclose(residual, rhs - apply(matrix)(x) - 0.1 * x)
    other = rhs + 0.1 * rng(3, 3, 4)
    calls.clear()
    plain = conjugate_gradients(normal, other, 0.1, **options, start=x)
    count = len(calls)
    calls.clear()
    again, _ = solve_with_residual(normal, other, 0.1, **options, start=x, applied=rhs - residual)
    assert len(calls) == count - 1
    assert torch.allclose(again, plain)


def test_an_operator_remembers_its_last_solution_until_it_changes(rng):
    class Counted(SenseOperator):
        calls = 0

        def _normal(self, image):
            self.calls += 1
            return super()._normal(image)

    maps = rng(1, 3, 12, 10, dtype=torch.complex64)
    mask = torch.rand(1, 12, 10, generator=torch.Generator().manual_seed(0)) < 0.5
    operator, rhs = Counted(maps / maps.norm(dim=1, keepdim=True), mask), rng(1, 12, 10, dtype=torch.complex64)
    damping = torch.tensor([0.1])
    with torch.no_grad():
        for known in (True, False):
            x = operator.solve(rhs, damping)
            start = x if known else x.clone()
            operator.calls = 0
            again = operator.solve(1.1 * rhs, damping, start=start)
            fresh = Counted(operator.maps, mask)
            expected = fresh.solve(1.1 * rhs, damping, start=start)
            assert operator.calls == fresh.calls - known
            assert (again - expected).norm() < 1e-5 * expected.norm()
        x = operator.solve(rhs, damping)
        x *= 2  # no longer what was kept
        changed = operator.solve(rhs, damping, start=x)
        assert (operator.normal(changed) + 0.1 * changed - rhs).norm() < 1e-5 * rhs.norm()


def test_values_of_slices():
    assert slice_values(0.5, slice(1, 3)) == 0.5
    assert slice_values(torch.tensor(0.5), slice(1, 3)).shape == ()
    assert slice_values(torch.tensor([0.5]), slice(1, 3)).tolist() == [[[0.5]]]
    assert slice_values(torch.arange(4.0), slice(1, 3)).tolist() == [[[1.0]], [[2.0]]]
