import numpy as np
import pytest
import torch

from upmri.core.errors import InputError

sp = pytest.importorskip("sigpy")

from upmri.interop import from_sigpy, to_sigpy  # noqa: E402


def peer(maps, mask):
    """Return M F S of one slice in sigpy's words."""
    coils = sp.linop.Multiply(maps.shape[1:], maps)
    fourier = sp.linop.FFT(coils.oshape, axes=(-2, -1))
    return sp.linop.Multiply(fourier.oshape, mask) * fourier * coils


def one(sense, index=0):
    from upmri.physics import SenseOperator

    return SenseOperator(sense.maps[index : index + 1], sense.mask[index : index + 1])


def test_from_sigpy(sense, rng, assert_same):
    single = one(sense)
    linop = peer(single.maps[0].numpy(), single.mask[0].numpy())
    assert_same(from_sigpy(linop), single, rng)
    x = rng(1, 6, 8)
    assert np.allclose(from_sigpy(linop)(x).numpy(), linop(x[0].numpy()))


def test_slices_and_other_shapes(rng):
    stack = from_sigpy(sp.linop.Multiply((2, 6, 8), np.full((2, 6, 8), 2.0)))
    assert stack.shape == (2, 6, 8)
    assert torch.allclose(stack(torch.ones(2, 6, 8, dtype=torch.complex64)).real, torch.tensor(2.0))
    with pytest.raises(InputError) as error:
        from_sigpy(sp.linop.Identity((8,)))
    assert error.value.field == "linop"


def test_to_sigpy(sense, rng):
    single = one(sense)
    ours, theirs = to_sigpy(single), peer(single.maps[0].numpy(), single.mask[0].numpy())
    x, y = rng(1, 6, 8).numpy(), rng(1, 4, 6, 8).numpy()
    assert np.allclose(ours(x)[0], theirs(x[0]))
    assert np.allclose(ours.H(y)[0], theirs.H(y[0]))
    assert np.allclose(ours.N(x)[0], theirs.N(x[0]))
    assert ours.H.H is ours
    assert ours.N.H is ours.N


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_any_precision_and_real_images(sense, rng, dtype):
    """Real numbers, and sigpy's default, complex128, for an operator in single precision."""
    linop = to_sigpy(sense.to(torch.complex64))
    x = rng(2, 6, 8).numpy().real.astype(dtype)
    data, wanted = linop(x), np.result_type(dtype, np.complex64)
    assert np.allclose(data, sense(torch.from_numpy(x).to(torch.complex128)).numpy(), atol=1e-5)
    assert np.allclose(linop.N(x), linop.H(data), atol=1e-5)
    assert (data.dtype, linop.N(x).dtype, linop.H(data).dtype) == (wanted, wanted, wanted)


def test_their_solver_on_our_operator(sense, rng):
    """sigpy's conjugate gradients reach what ours do."""
    linop, b = to_sigpy(sense), rng(2, 6, 8)
    solved = np.zeros(b.shape, complex)
    system = linop.N + 0.1 * sp.linop.Identity(linop.ishape)
    app = sp.alg.ConjugateGradient(system, b.numpy(), solved, max_iter=200, tol=1e-12)
    while not app.done():
        app.update()
    assert np.allclose(solved, sense.solve(b, 0.1).numpy())


def test_reconstructs(assert_reconstructs):
    assert_reconstructs(lambda sense: from_sigpy(peer(sense.maps[0].numpy(), sense.mask[0].numpy())))
