"""Operators of every kind against their dense matrices."""

import doctest

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from upmri.core.errors import InputError
from upmri.physics import IdentityOperator, Operator, SenseOperator
from upmri.physics import operator as module
from upmri.physics.fourier import mirror

SHAPE = (2, 3, 6)  # slices, H, W


class Blur(Operator):
    """Circular convolution along W with gaps: every third column of the result is lost. In NumPy, without gradients."""

    def __init__(self, shape=SHAPE):
        self.shape = shape
        self.kernel = np.fft.fft(np.r_[2, 1j, 0.5, np.zeros(shape[-1] - 3)])
        self.seen = np.arange(shape[-1]) % 3 != 2

    def forward(self, image):
        return np.fft.ifft(np.fft.fft(image.numpy()) * self.kernel)[..., self.seen]

    def adjoint(self, data):
        image = np.zeros(self.shape, complex)
        image[..., self.seen] = data.numpy()
        return np.fft.ifft(np.fft.fft(image) * self.kernel.conj())


class Gain(Operator):
    """A gain at each pixel, in torch."""

    def __init__(self, gain):
        self.shape, self.gain = tuple(gain.shape), gain

    def forward(self, image):
        return self.gain * image

    def adjoint(self, data):
        return self.gain.conj() * data


class Sum(Operator):
    """The sum over slices, which mixes them."""

    shape = SHAPE

    def forward(self, image):
        return image.sum(0)

    def adjoint(self, data):
        return data.expand(self.shape)


def sense(rng, kind="lines", dtype=torch.complex128):
    maps = rng(2, 4, 3, 6)
    maps[1, :, 0] = 0
    shape = {"lines": (2, 1, 6), "points": (2, 3, 6), "columns": (2, 3, 1)}[kind]
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.6
    return SenseOperator(maps.to(dtype), mask.expand(2, -1, 6))


KINDS = ["blur", "gain", "identity", "lines", "points", "columns", "scaled", "scaled lines"]


def build(kind, rng):
    if kind == "blur":
        return Blur()
    if kind == "gain":
        gain = rng(*SHAPE)
        gain[0, 1, 2] = 0
        return Gain(gain)
    if kind == "identity":
        return IdentityOperator(SHAPE)
    if kind in ("lines", "points", "columns"):
        return sense(rng, kind)
    return Blur() / 1.7 if kind == "scaled" else sense(rng) / 1.7


@pytest.fixture(params=KINDS)
def operator(request, rng):
    return build(request.param, rng)


def test_adjoint(operator, rng, assert_adjoint):
    assert_adjoint(operator, rng)


def test_normal_and_solve_are_those_of_the_matrix(operator, rng, dense):
    matrix = dense(operator, SHAPE)
    normal = matrix.mH @ matrix
    x = rng(2, 5, *SHAPE)
    columns = x.reshape(10, -1).mT
    assert torch.allclose(operator.normal(x), (normal @ columns).mT.reshape(x.shape))
    eye = torch.eye(len(normal), dtype=normal.dtype)
    expected = torch.linalg.solve(normal + 0.2 * eye, columns).mT.reshape(x.shape)
    assert torch.allclose(operator.solve(x, 0.2, tolerance=1e-13), expected)
    damping = torch.tensor([0.2, 1.5], dtype=torch.float64)
    each = torch.diag(damping.repeat_interleave(18)).to(normal.dtype)
    expected = torch.linalg.solve(normal + each, columns).mT.reshape(x.shape)
    assert torch.allclose(operator.solve(x, damping, "cg", tolerance=1e-13), expected)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_real_images_and_data_are_complex_ones_without_imaginary_part(operator, rng, precision):
    """Of which no imaginary part is lost on the way."""
    operator = operator.to(precision)
    image, rhs = rng(*SHAPE).real.to(precision), rng(*SHAPE).real.to(precision)
    data = operator(image).real.clone()
    for apply, value in (
        (operator, image),
        (operator.normal, image),
        (operator.H, data),
        (lambda b: operator.solve(b, 0.1), rhs),
        (lambda b: operator.solve(b, 0.1, "cg"), rhs),
    ):
        found = apply(value)
        assert found.dtype == precision.to_complex()
        assert torch.equal(found, apply(value.to(precision.to_complex())))


def test_the_gradient_in_a_real_image_is_real(operator, rng):
    image = rng(*SHAPE).real.clone().requires_grad_()
    (found,) = torch.autograd.grad(operator(image).abs().square().sum(), image)
    assert torch.allclose(found, 2 * operator.normal(image.detach()).real)


def test_leading_axes(operator, rng):
    x = rng(2, 3, *SHAPE)
    y = operator(x)
    assert torch.allclose(y[1, 2], operator(x[1, 2]))
    assert torch.allclose(operator.H(y)[1, 2], operator.H(y[1, 2]))
    assert torch.allclose(operator.H(y), operator.normal(x))
    assert operator.H.H is operator


def test_gradients_of_first_and_second_order(operator, rng):
    x = rng(*SHAPE).requires_grad_()
    for apply in (operator, operator.normal):
        assert gradcheck(apply, (x,), check_forward_ad=True)
        assert gradgradcheck(apply, (x,), fast_mode=True)
    assert gradcheck(operator.H, (operator(x.detach()).requires_grad_(),))
    damping = torch.tensor([0.3, 0.6], dtype=torch.float64, requires_grad=True)
    # gradcheck changes its inputs in place without a trace, so the solver gets copies.
    solve = lambda b, d: operator.solve(b, d.clone(), tolerance=1e-14)  # noqa: E731
    assert gradcheck(solve, (x, damping), check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(solve, (x, damping), fast_mode=True)


def test_gradient_in_a_damping_of_one_entry(rng):
    x, damping = rng(*SHAPE), torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda d: Blur().solve(x, d.clone(), tolerance=1e-14), (damping,))


def test_vmap(operator, rng):
    x = rng(*SHAPE, 3)  # the axis of the loop is the last one
    y = torch.func.vmap(operator, in_dims=-1)(x)
    for i in range(3):
        one = x[..., i]
        assert torch.allclose(y[i], operator(one))
    assert torch.allclose(torch.func.vmap(operator.H)(y), torch.func.vmap(operator.normal, in_dims=-1)(x))
    solve = lambda b, d: operator.solve(b, d, tolerance=1e-13)  # noqa: E731
    solved = torch.func.vmap(lambda b: solve(b, 0.1), in_dims=-1)(x)
    assert torch.allclose(solved, solve(x.movedim(-1, 0), 0.1))
    dampings = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    both = torch.func.vmap(solve, in_dims=(-1, 0))(x, dampings)
    only = torch.func.vmap(solve, in_dims=(None, 0))(x[..., 0], dampings)
    for i, damping in enumerate(dampings):
        assert torch.allclose(both[i], solve(x[..., i], damping))
        assert torch.allclose(only[i], solve(x[..., 0], damping))


def test_a_start_changes_neither_result_nor_derivatives(operator, rng):
    x, start = rng(*SHAPE).requires_grad_(), rng(*SHAPE).requires_grad_()
    damping = torch.tensor([0.3, 0.6], dtype=torch.float64, requires_grad=True)
    expected = operator.solve(x, damping, tolerance=1e-14)
    found = operator.solve(x, damping, tolerance=1e-14, start=start)
    assert torch.allclose(found, expected)
    assert torch.autograd.grad(found.abs().sum(), start, allow_unused=True) == (None,)
    solve = lambda b, d: operator.solve(b, d.clone(), tolerance=1e-14, start=start)  # noqa: E731
    assert gradcheck(solve, (x, damping), check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(solve, (x, damping), fast_mode=True)
    with torch.inference_mode():
        assert torch.allclose(operator.solve(x, damping, tolerance=1e-14, start=start), expected)


@pytest.mark.parametrize("dims", [(0, None, 0), (None, None, 0), (0, None, None), (None, 0, 0), (0, 0, None)])
def test_vmap_with_a_start(operator, rng, dims):
    """Over right-hand sides, dampings and starts, or some of them."""
    values = [rng(3, *SHAPE), torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64), rng(3, *SHAPE)]
    values = [value[0] if dim is None else value for value, dim in zip(values, dims, strict=True)]
    solve = lambda b, d, x: operator.solve(b, d, tolerance=1e-13, start=x)  # noqa: E731
    found = torch.func.vmap(solve, in_dims=dims)(*values)
    for i in range(3):
        b, d, _ = (value if dim is None else value[i] for value, dim in zip(values, dims, strict=True))
        assert torch.allclose(found[i], operator.solve(b, d, tolerance=1e-13))


def test_a_start_of_another_shape(rng):
    with pytest.raises(InputError) as error:
        Blur().solve(rng(2, *SHAPE), 0.1, start=rng(*SHAPE))
    assert error.value.field == "start"


def test_vmap_of_gradients(rng):
    operator = Blur()

    def loss(b, damping):
        return operator.solve(b, damping, tolerance=1e-13).abs().square().sum()

    rhs, dampings = rng(3, *SHAPE), torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    together = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(rhs, dampings)
    for i in range(3):
        one = torch.func.grad(loss, argnums=(0, 1))(rhs[i], dampings[i])
        assert torch.allclose(together[0][i], one[0])
        assert torch.allclose(together[1][i], one[1])


def test_jacobians_and_what_is_kept_within_them(rng, dense):
    for kind in KINDS:
        operator, parts = build(kind, rng), torch.view_as_real(rng(*SHAPE))

        def apply(x, operator=operator):
            image = operator.support * torch.view_as_complex(x)
            return torch.view_as_real(operator.solve(operator.normal(image), 0.3, tolerance=1e-13) / operator.norm())

        forwards, backwards = torch.func.jacfwd(apply)(parts), torch.func.jacrev(apply)(parts)
        matrix = dense(lambda x, apply=apply: torch.view_as_complex(apply(torch.view_as_real(x))), SHAPE)
        assert torch.allclose(forwards, backwards, atol=1e-10)
        assert torch.allclose(forwards[..., 0, :, :, :, 0].reshape(36, 36), matrix.real, atol=1e-10)
        image = torch.view_as_complex(parts).requires_grad_()
        (operator.support * operator.normal(image)).abs().sum().backward()
        assert image.grad.isfinite().all()


def test_inference_mode(operator, rng):
    x, damping = rng(*SHAPE), torch.tensor(0.2, dtype=torch.float64)
    expected = [operator(x), operator.normal(x), operator.solve(x, damping)]
    with torch.inference_mode():
        for value in (damping, torch.tensor(0.2, dtype=torch.float64)):  # from outside and from within
            for result, wanted in zip(
                [operator(x), operator.normal(x), operator.solve(x, value)], expected, strict=True
            ):
                assert torch.equal(result, wanted)
        inside = torch.tensor(0.5, dtype=torch.float64)
        operator.solve(x, inside)
        inside.fill_(0.2)  # no count of changes is kept of such a tensor
        assert torch.equal(operator.solve(x, inside), expected[2])
        support = operator.support
    image = x.clone().requires_grad_()
    operator.solve(support * image, damping).abs().sum().backward()  # what was kept inside serves outside
    assert image.grad.isfinite().all()


def test_support(rng):
    gain = rng(*SHAPE)
    gain[0, 1, 2] = gain[1, :, 4:] = 0
    operator = Gain(gain)
    assert torch.equal(operator.support, gain != 0)
    assert torch.equal((operator / 3).support, gain != 0)
    assert IdentityOperator(SHAPE).support.all()
    lines = sense(rng)
    assert torch.equal(lines.support, Operator.support.func(lines))


def test_to_copies(rng):
    operator = Gain(rng(*SHAPE))
    operator.parts = {"pair": (torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.bool)), "name": "gain"}
    single = operator.to(torch.complex64)
    assert (operator.dtype, single.dtype) == (torch.complex128, torch.complex64)
    assert [part.dtype for part in single.parts["pair"]] == [torch.float32, torch.bool]
    x = rng(*SHAPE, dtype=torch.complex64)
    assert torch.allclose(single.normal(x), operator.normal(x.to(torch.complex128)).to(torch.complex64))
    assert single.normal(x).dtype == torch.complex64
    assert operator.to("meta").device.type == operator.to(torch.device("meta")).gain.device.type == "meta"
    assert operator.device.type == "cpu"
    assert Blur().to("meta").device.type == "meta"
    assert (operator / 2).to(torch.complex64).operator.gain.dtype == torch.complex64


@pytest.mark.parametrize("kind", ["lines", "points", "columns"])
def test_to_of_sense(rng, kind):
    operator, x = sense(rng, kind), rng(*SHAPE)
    operator.solve(x, 0.1)
    assert operator.support.shape == SHAPE
    single = operator.to(torch.float32)  # the real type that belongs to it
    assert single.maps.dtype == torch.complex64
    expected = operator.solve(x, 0.1).to(torch.complex64)
    assert torch.allclose(single.solve(x.to(torch.complex64), 0.1), expected, atol=1e-5)
    assert operator.to("meta").device.type == "meta"


def test_norm_is_the_largest_eigenvalue(operator, dense):
    largest = torch.linalg.eigvalsh(dense(operator.normal, SHAPE)).max()
    assert operator.norm(500) == pytest.approx(float(largest), rel=1e-3)
    scaled = operator / operator.norm(500) ** 0.5
    assert scaled.norm(500) == pytest.approx(1, rel=1e-3)


def test_norm_bound_is_not_below_the_largest_eigenvalue(operator, dense):
    largest = torch.linalg.eigvalsh(dense(operator.normal, SHAPE)).max()
    assert operator.norm_bound().shape == SHAPE[:1]
    assert operator.norm_bound().max() >= 0.999 * largest


def test_norm_of_nothing(rng):
    assert Gain(torch.zeros(SHAPE, dtype=torch.complex64)).norm() == 0


def test_scaled(rng):
    operator, x = sense(rng), rng(*SHAPE)
    scaled = operator.scaled(0.5)
    assert torch.allclose(scaled(x), operator(x) / 2)
    assert scaled.data_shape == operator.data_shape
    assert torch.allclose(scaled.normal(x), operator.normal(x) / 4)
    assert torch.allclose(scaled.solve(x, 0.1), operator.solve(x, 0.4) * 4)
    lines = torch.tensor([True, False] * 3)
    assert torch.allclose(scaled.restrict(lines)(x), operator.restrict(lines)(x) / 2)
    assert torch.allclose(scaled.mirror((-1,))(x), operator.mirror((-1,))(x) / 2)
    assert torch.allclose(scaled.take([1, 0, 1])(x[[1, 0, 1]]), scaled(x)[[1, 0, 1]])
    for factor in (0, float("nan"), float("inf")):
        with pytest.raises(InputError) as error:
            operator.scaled(factor)
        assert error.value.field == "factor"


def test_acceleration_does_not_depend_on_the_scale(operator):
    expected = operator.acceleration
    for factor in (0.5, 3.0):
        assert torch.allclose(operator.scaled(factor).acceleration, expected)
        assert torch.allclose((operator / factor).scaled(2.0).acceleration, expected)


def test_acceleration(rng):
    """1/mean of the mask, or unknowns for each sample if A has none, whatever its own scale is."""
    lines = sense(rng)
    assert torch.allclose((lines / 2).acceleration, 1 / lines.mask.double().mean((1, 2)))
    assert torch.equal(IdentityOperator(SHAPE).acceleration, torch.ones(2))
    gain = torch.tensor([1.0, 1, 0.5])[:, None, None].expand(3, 5, 6)
    for scale in (1.0, 4.0):
        assert torch.allclose(Gain(scale * gain + 0j).acceleration, torch.tensor([1.0, 1, 4]), rtol=0.02)


@pytest.mark.parametrize("kind", ["lines", "points", "columns"])
@pytest.mark.parametrize("shape", [(6,), (3, 6), (1, 1, 6), (1, 3, 6), (2, 1, 6), (2, 3, 6), (2, 3, 1)])
def test_restrict_is_a_new_operator_with_shared_maps(rng, kind, shape):
    operator, x = sense(rng, kind), rng(*SHAPE)
    operator.solve(x, 0.1)  # whatever it keeps for its own mask
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.5
    mask = mask.expand(*shape[:-1], 6)
    chosen, fresh = operator.restrict(mask.numpy()), SenseOperator(operator.maps, mask)
    assert chosen.cartesian_1d == fresh.cartesian_1d
    assert torch.equal(chosen.mask, fresh.mask)
    assert torch.allclose(chosen(x), fresh(x))
    assert torch.allclose(chosen.normal(x), fresh.normal(x))
    assert torch.allclose(chosen.solve(x, 0.1, tolerance=1e-13), fresh.solve(x, 0.1, tolerance=1e-13))
    assert torch.equal(chosen.support, fresh.support)
    if kind == "lines" or chosen.mask.shape[1] == 3:
        assert chosen.maps.data_ptr() == operator.maps.data_ptr()


def test_restrict_leaves_the_operator_as_it_is(rng):
    operator, x = sense(rng), rng(*SHAPE)
    before = operator.solve(x, 0.1)
    operator.restrict(torch.ones(6)).solve(x, 0.1)
    assert torch.equal(operator.solve(x, 0.1), before)
    with pytest.raises(InputError) as error:
        operator.restrict(torch.ones(7))
    assert error.value.field == "mask"


@pytest.mark.parametrize("kind", ["lines", "points"])
def test_take(rng, kind):
    operator, x = sense(rng, kind), rng(*SHAPE)
    which = [1, 0, 1, 1]
    taken = operator.take(which)
    assert taken.shape == (4, 3, 6)
    assert torch.allclose(taken(x[which]), operator(x)[which])
    assert torch.allclose(taken.solve(x[which], 0.1), operator.solve(x, 0.1)[which])


@pytest.mark.parametrize("axes", [(), (-1,), (-2,), (-2, -1)])
@pytest.mark.parametrize("kind", ["lines", "points"])
def test_mirror(rng, kind, axes):
    def turned(tensor):
        return mirror(tensor, *axes)

    operator, x = sense(rng, kind), rng(*SHAPE)
    assert torch.allclose(operator.mirror(axes).normal(turned(x)), turned(operator.normal(x)))
    assert torch.allclose(operator.mirror(axes)(turned(x)), turned(operator(x)))


def test_mirror_of_other_axes(rng):
    with pytest.raises(InputError) as error:
        sense(rng).mirror((0,))
    assert error.value.field == "axes"


def test_what_an_operator_without_lines_refuses():
    for attempt in (lambda o: o.restrict(torch.ones(6)), lambda o: o.take([0]), lambda o: o.mirror((-1,))):
        with pytest.raises(InputError, match="Blur") as error:
            attempt(Blur())
        assert error.value.field == "operator"
    for solver in ("direct", "magic"):
        with pytest.raises(InputError) as error:
            Blur().solve(torch.zeros(SHAPE, dtype=torch.complex64), 0.1, solver)
        assert error.value.field == "solver"


def test_an_operator_that_mixes_slices_is_refused(rng):
    with pytest.raises(InputError, match="mixes") as error:
        Sum().solve(rng(*SHAPE), 0.1)
    assert error.value.field == "operator"


def test_wrong_shapes(rng):
    for attempt, field in ((Blur(), "image"), (Blur().normal, "image"), (Blur().H, "data")):
        for shape in ((2, 3, 7), (3, 6)):
            with pytest.raises(InputError) as error:
                attempt(rng(*shape))
            assert error.value.field == field


@pytest.mark.parametrize("shape", [(1, 3, 6), (3, 3, 6), (3, 6), (2, 3, 1)])
def test_images_of_other_slices_are_not_broadcast(operator, rng, shape):
    """A direct solver would leave the slices that it does not know as they are."""
    image = rng(*shape)
    for attempt, field in ((operator.normal, "image"), (lambda b: operator.solve(b, 0.1), "rhs")):
        with pytest.raises(InputError, match=r"expected \(…, 2, 3, 6\)") as error:
            attempt(image)
        assert error.value.field == field


@pytest.mark.parametrize("damping", [-0.1, float("nan"), torch.ones(3), torch.ones(2, 1, 1)])
def test_a_damping_that_is_refused(operator, rng, damping):
    with pytest.raises(InputError, match="λ ≥ 0, one number or 2") as error:
        operator.solve(rng(*SHAPE), damping)
    assert error.value.field == "damping"


def test_facts_of_a_slice_do_not_depend_on_others():
    whole, alone = Blur((3, 4, 6)), Blur((1, 4, 6))
    assert torch.allclose(whole.acceleration, alone.acceleration.expand(3))
    assert whole.norm() == pytest.approx(alone.norm())


def test_numpy_images_and_data(operator, rng):
    x = rng(*SHAPE)
    data = operator(x)
    assert torch.equal(operator(x.numpy()), data)
    assert torch.equal(operator.H(data.numpy()), operator.H(data))
    assert torch.equal(operator.normal(x.numpy()), operator.normal(x))
    assert torch.equal(operator.solve(x.numpy(), 0.1, start=x.numpy()), operator.solve(x, 0.1, start=x))


@pytest.mark.parametrize("kind", ["lines", "points", "columns"])
def test_images_in_double_precision_with_maps_in_single(rng, kind):
    operator, x = sense(rng, kind, torch.complex64), rng(*SHAPE)
    double = operator.to(torch.complex128)
    for solver in ("auto", "cg"):
        assert torch.allclose(operator.solve(x, 0.1, solver), double.solve(x, 0.1, solver), rtol=1e-4, atol=1e-5)
    assert operator.normal(x).dtype == torch.complex128


def test_numpy_maps_and_mask(rng):
    maps, mask = rng(2, 4, 3, 6), torch.rand(2, 3, 6) < 0.5
    array = maps.numpy()[:, ::-1]  # with a negative stride
    array.setflags(write=False)
    operator = SenseOperator(array, mask.numpy())
    x = rng(*SHAPE)
    assert torch.equal(operator(x), SenseOperator(maps.flip(1), mask)(x))


def test_an_operator_needs_forward_and_adjoint():
    class Half(Operator):
        shape = SHAPE

        def forward(self, image):
            return image

    with pytest.raises(TypeError):
        Half()


def test_examples():
    from upmri.physics import sense as sense_module

    for part in (module, sense_module):
        result = doctest.testmod(part)
        assert result.attempted
        assert not result.failed
