import pytest
import torch
from torch import nn

import upmri
from upmri.core.errors import InputError
from upmri.methods.pnp_flow import even_times, plug_and_play
from upmri.physics.phantom import image
from upmri.physics.sense import SenseOperator, sense_damping
from upmri.physics.simulate import simulate

deepinv = pytest.importorskip("deepinv")

from upmri.interop import from_deepinv, from_deepinv_denoiser, prior_to_deepinv, to_deepinv  # noqa: E402
from upmri.interop.deepinv_bridge import from_channels, to_channels  # noqa: E402


def peer(sense):
    mask = sense.mask.expand(sense.shape).to(sense.maps.real.dtype)[:, None].expand(-1, 2, -1, -1)
    return deepinv.physics.MultiCoilMRI(mask=mask, coil_maps=sense.maps)


def test_from_deepinv(sense, rng, assert_same):
    assert_same(from_deepinv(peer(sense), sense.shape), sense, rng)


def test_precision_of_their_buffers(sense):
    single = from_deepinv(peer(sense), sense.shape).to(torch.complex64)
    assert single.dtype == torch.complex64
    assert single(torch.ones(sense.shape, dtype=torch.complex64)).dtype == torch.complex64


def test_single_coil(rng):
    mask = (torch.rand(6, 8, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    operator, x = from_deepinv(deepinv.physics.MRI(mask=mask), (2, 6, 8)), rng(2, 6, 8)
    ours = SenseOperator(torch.ones(2, 1, 6, 8, dtype=torch.complex128), mask)
    assert torch.allclose(operator(x), ours(x)[:, 0])
    assert torch.allclose(operator.normal(x), ours.normal(x))


def test_physics_without_two_channels(rng):
    physics = deepinv.physics.LinearPhysics(A=lambda x: x.sum(1, keepdim=True), A_adjoint=lambda y: y)
    with pytest.raises(InputError) as error:
        from_deepinv(physics, (1, 6, 8))(rng(1, 6, 8))
    assert error.value.field == "physics"


def test_to_deepinv(sense, rng):
    ours, theirs = to_deepinv(sense), peer(sense)
    x, y = to_channels(rng(*sense.shape)), to_channels(rng(2, 4, 6, 8))
    assert torch.allclose(ours.A(x), theirs.A(x))
    assert torch.allclose(ours.A_adjoint(y), theirs.A_adjoint(y))
    assert torch.allclose(ours.A_adjoint_A(x), theirs.A_adjoint_A(x))
    assert torch.allclose(ours.prox_l2(x, y, 3.0), theirs.prox_l2(x, y, 3.0, max_iter=500, tol=1e-12), atol=1e-5)
    assert abs(ours.adjointness_test(x, num_samples=len(x))) < 1e-10  # one image for each slice of the operator
    x.requires_grad_()
    assert torch.allclose(*torch.autograd.grad(ours.A(x).square().sum(), x), 2 * theirs.A_adjoint_A(x))


def test_noise_and_precision(sense, rng):
    physics = to_deepinv(sense, deepinv.physics.GaussianNoise(0.1))
    assert physics.float().operator.dtype == torch.complex64
    x = to_channels(rng(*sense.shape, dtype=torch.complex64))
    assert not torch.equal(physics(x), physics.A(x))


def test_data_without_slices_first(rng):
    class Flat(SenseOperator):
        data_shape = (7,)

    with pytest.raises(InputError) as error:
        to_deepinv(Flat(rng(2, 4, 6, 8), torch.ones(8)))
    assert error.value.field == "operator"


class Shrink(nn.Module):
    """The best denoiser of pixels with variance s² in each channel."""

    def forward(self, x, sigma):
        return x / (1 + sigma.reshape(-1, 1, 1, 1) ** 2)


@pytest.mark.parametrize("channels", [1, 2])
def test_velocity_of_gaussian_pixels_is_the_closed_form(rng, channels):
    """For x₀ ~ CN(0, 2I) E[x₁ − x₀ | z] = z (t − (1−t)) / (t² + (1−t)²)."""
    velocity, z = from_deepinv_denoiser(Shrink(), channels, sigma_max=100.0), rng(3, 6, 8)
    t = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    gain = (2 * t - 1) / (t**2 + (1 - t) ** 2)
    assert torch.allclose(velocity(z, t), gain[:, None, None] * z)


def test_times_beyond_the_denoiser(rng):
    velocity, z = from_deepinv_denoiser(Shrink()), rng(2, 6, 8)
    result = velocity(z, torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert result.isfinite().all()
    for name, value in (("channels", 3), ("sigma_max", 0.0)):
        with pytest.raises(InputError) as error:
            from_deepinv_denoiser(Shrink(), **{name: value})
        assert error.value.field == name


def test_plug_and_play_with_their_denoiser():
    """Where noise is strong, their total variation denoiser in our plug-and-play loop is better than SENSE."""
    scan = simulate(image((64, 64)), 8, 2, noise=0.1)
    operator = SenseOperator(scan.maps, scan.mask)
    adjoint = operator.adjoint(scan.kspace)
    made = plug_and_play(
        from_deepinv_denoiser(deepinv.models.TVDenoiser(n_it_max=50)), operator, adjoint, even_times(60),
        draws=1, alpha=0.1, generators=[torch.Generator().manual_seed(0)],
    )  # fmt: skip
    errors = [
        (operator.solve(adjoint, damping) - scan.reference).norm()
        for damping in (0.03, 0.1, 0.3, sense_damping(torch.tensor([0.1])))
    ]
    assert (made - scan.reference).norm() < 0.95 * min(errors)


class LeastSquares(nn.Module):
    """A prior that is none: SENSE."""

    def forward(self, operator, adjoint, sigma):
        return operator.solve(adjoint, sigma**2, tolerance=1e-12)


def test_prior_as_reconstructor(sense, rng):
    y = sense(rng(*sense.shape))
    expected = sense.solve(sense.H(y), 0.02)
    noise = deepinv.physics.GaussianNoise(0.1)
    theirs = peer(sense)
    theirs.set_noise_model(noise)
    for physics in (to_deepinv(sense, noise), theirs):
        made = from_channels(prior_to_deepinv(LeastSquares())(to_channels(y), physics))
        assert torch.allclose(made, expected, atol=1e-6)
    model = prior_to_deepinv(LeastSquares(), sigma=0.02**0.5)
    assert isinstance(model, deepinv.models.Reconstructor)
    assert torch.allclose(from_channels(model(to_channels(y), to_deepinv(sense))), expected, atol=1e-6)
    with pytest.raises(InputError) as error:
        prior_to_deepinv(LeastSquares())(to_channels(y), to_deepinv(sense))
    assert error.value.field == "sigma"


def test_the_shipped_prior_in_deepinv():
    scan = simulate(image((64, 64)), 8, 4, noise=0.01)
    operator = SenseOperator(scan.maps, scan.mask)
    physics = to_deepinv(operator, deepinv.physics.GaussianNoise(0.01 / 2**0.5))
    made = from_channels(prior_to_deepinv(upmri.prior("brain"))(to_channels(scan.kspace), physics))
    ours = upmri.reconstruct(scan, "upmri", model="brain", device="cpu", precision="fp32").image
    assert torch.allclose(made, ours, atol=1e-4)


def test_reconstructs(assert_reconstructs):
    assert_reconstructs(lambda sense: from_deepinv(peer(sense), sense.shape))
