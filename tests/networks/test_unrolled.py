"""The unrolled network of upmri: data consistency by dense algebra, bounded gradients, phase."""

import math

import pytest
import torch

from upmri.networks.unrolled import Unrolled, _window, smooth_phase_of
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.sense import SenseOperator


@pytest.fixture
def problem(rng):
    maps = rng(2, 3, 16, 20, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.rand(2, 1, 20, generator=torch.Generator().manual_seed(0)) < 0.5
    return SenseOperator(maps, mask), rng(2, 16, 20, dtype=torch.complex64)


NOISE = torch.tensor([0.01, 0.01])


def network():
    torch.manual_seed(0)
    return Unrolled(cascades=2, width=4)


def test_an_untrained_network_iterates_towards_the_data(problem):
    operator, x0 = problem
    adjoint = operator.normal(x0)
    out = network()(operator, adjoint, adjoint, torch.ones(2), NOISE)
    start = operator.solve(adjoint, 0.02)
    misfit = [(operator.normal(x) - adjoint).norm() for x in (start, out)]
    assert misfit[1] < misfit[0]


def test_slices_do_not_mix(problem):
    operator, x0 = problem
    model, adjoint = network().eval(), operator.normal(x0)
    x = model(operator, adjoint, adjoint, torch.zeros(2), NOISE)
    alone = SenseOperator(operator.maps[:1], operator.mask[:1])
    assert torch.allclose(model(alone, adjoint[:1], adjoint[:1], torch.zeros(1), NOISE[:1]), x[:1], atol=1e-5)


def points(rng, slices=2):
    """A problem with a 2-D mask, where the solver iterates; slices are unlike in noise."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 40), indexing="ij")
    maps = torch.stack([torch.exp(a * x + b * y + 0j) for a, b in ((1, 1), (1j, -1), (-1, 1j), (-1j, -1j))])
    maps = (maps / maps.abs().square().sum(0).sqrt()).expand(slices, -1, -1, -1)
    mask = torch.rand(slices, 32, 40, generator=torch.Generator().manual_seed(0)) < 0.4
    return SenseOperator(maps, mask), rng(slices, 32, 40, dtype=torch.complex64), torch.tensor([0.03, 0.003])[:slices]


@torch.no_grad()
def test_slices_do_not_mix_with_a_2d_mask(rng):
    operator, x0, sigma = points(rng)
    model, adjoint, t = random_weights(), operator.normal(x0), torch.ones(2)
    together = model(operator, adjoint, adjoint, t, sigma)
    for i in range(2):
        alone = SenseOperator(operator.maps[i : i + 1], operator.mask[i : i + 1])
        x = model(alone, adjoint[i : i + 1], adjoint[i : i + 1], t[:1], sigma[i : i + 1])
        assert (x - together[i]).norm() < 1e-4 * x.norm()


def test_solves_are_as_accurate_as_needed(rng):
    """Without gradients fewer iterations are enough; with them, solves are as exact as they can be."""

    class Counted(SenseOperator):
        calls = 0

        def _normal(self, image):
            self.calls += 1
            return super()._normal(image)

    operator, x0, sigma = points(rng)
    model, adjoint, t = random_weights(), operator.normal(x0), torch.ones(2)
    operators = [Counted(operator.maps, operator.mask) for _ in range(2)]
    fine = model(operators[0], adjoint, adjoint, t, sigma).detach()
    with torch.no_grad():
        coarse = model(operators[1], adjoint, adjoint, t, sigma)
    assert 0 < (coarse - fine).norm() < 2e-3 * fine.norm()
    assert operators[1].calls < 0.9 * operators[0].calls
    exact = SenseOperator(operator.maps.to(torch.complex128), operator.mask)
    expected = model.double()(exact, adjoint.to(exact.dtype), adjoint, t.double(), sigma.double()).detach()
    assert (fine - expected).norm() < 1e-4 * expected.norm()


def test_every_parameter_learns(problem):
    operator, x0 = problem
    model, adjoint = random_weights(), operator.normal(x0)
    (model(operator, adjoint, adjoint, torch.full((2,), 0.3), NOISE) - x0).abs().square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_with_less_noise_the_data_have_more_weight(problem):
    """An untrained network with one cascade: x = (N + λI)⁻¹ (A*y + λ x̃), λ = 0.02 (σ₀/0.01)^1.5."""
    operator, x0 = problem
    adjoint, sigma = operator.normal(x0), torch.tensor([0.002, 0.04])
    model = Unrolled(cascades=1, width=4)
    damping = 0.02 * (sigma / 0.01) ** 1.5
    start = operator.solve(adjoint, damping)
    expected = operator.solve(adjoint + damping[:, None, None] * start, damping)
    assert torch.allclose(model(operator, adjoint, adjoint, torch.ones(2), sigma), expected, atol=1e-4)
    assert torch.isfinite(model(operator, adjoint, adjoint, torch.zeros(2), torch.zeros(2)).abs()).all()


def random_weights():
    """A network with random weights in place of zeros."""
    model = network().eval()
    for parameter in model.parameters():
        if parameter.abs().max() == 0:
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def gradients_of(model, operator, adjoint, target, bounded=True):
    """Norms of the gradients in the initial image and in that of every cascade, and the gradient of the weights."""
    kept = []

    class Watched(SenseOperator):
        def solve(self, *args, **kwargs):
            x = super().solve(*args, **kwargs)
            x.retain_grad()
            kept.append(x)
            return x

    watched = Watched(operator.maps, operator.mask)
    with pytest.MonkeyPatch.context() as patch:
        if not bounded:
            patch.setattr("upmri.networks.unrolled.bound_gradients", list)
        out = model(watched, adjoint, adjoint, torch.ones(2), NOISE)
    model.zero_grad()
    (out - target).abs().square().sum().backward()
    norms = torch.stack([torch.linalg.vector_norm(x.grad, dim=(1, 2)) for x in kept])
    return norms, torch.cat([p.grad.flatten() for p in model.parameters()])


def large_weights(cascades):
    """A network with weights so large that gradients grow."""
    torch.manual_seed(0)
    model = Unrolled(cascades=cascades, width=4, damping=3.0)
    for parameter in model.network.out.parameters():
        torch.nn.init.normal_(parameter, std=3.0)
    return model


def test_gradients_do_not_grow_from_cascade_to_cascade(problem):
    operator, x0 = problem
    model, adjoint = large_weights(6), operator.normal(x0)
    free, _ = gradients_of(model, operator, adjoint, x0, bounded=False)
    held, weights = gradients_of(model, operator, adjoint, x0)
    assert (free[0] > 30 * free[-1]).all()  # without the bound they grow
    assert torch.equal(held[-1], free[-1])
    assert (held <= 1.0001 * held[-1]).all()
    assert torch.isfinite(weights).all()


def test_gradients_that_do_not_grow_are_not_changed(problem):
    operator, x0 = problem
    model, adjoint = random_weights(), operator.normal(x0)
    free, expected = gradients_of(model, operator, adjoint, x0, bounded=False)
    assert (free[:-1] < free[-1]).all()
    held, weights = gradients_of(model, operator, adjoint, x0)
    assert torch.equal(held, free)
    assert torch.equal(weights, expected)


def test_the_gradient_of_each_slice_is_bounded_by_itself(problem):
    """The gradients of a slice do not depend on those of the other slice."""
    operator, x0 = problem
    model, adjoint = large_weights(3), operator.normal(x0)
    both, _ = gradients_of(model, operator, adjoint, x0)
    other = x0.clone()
    other[1] *= 100
    beside, _ = gradients_of(model, operator, adjoint, other)
    assert torch.allclose(both[:, 0], beside[:, 0], rtol=1e-4)
    assert (beside[-1, 1] > 10 * both[-1, 1]).all()


def test_a_point_of_the_path_is_a_second_measurement(problem):
    """Untrained, one cascade: least squares with y and x_t, weighted by their noise, twice over, by dense algebra."""
    operator, x0 = problem
    noisy, sigma, t = x0.flip(-1), torch.tensor([0.01, 0.03]), torch.tensor([0.05, 0.2])
    adjoint = operator.normal(x0)
    made = Unrolled(cascades=1, width=4)(operator, adjoint, noisy, t, sigma)
    for i in range(2):
        basis = torch.eye(16 * 20, dtype=torch.complex64).reshape(-1, 16, 20)
        one = SenseOperator(
            operator.maps[i : i + 1].expand(320, -1, -1, -1), operator.mask[i : i + 1].expand(320, -1, -1)
        )
        normal = one.normal(basis).reshape(320, 320).mT.to(torch.complex128)
        lam = 0.02 * (sigma[i].item() / 0.01) ** 1.5
        # the inverse variances of a pixel of x_t/(1−t) and of a sample of y
        pixel, sample = (1 - t[i].item()) ** 2 / (2 * t[i].item() ** 2), 1 / sigma[i].item() ** 2
        weight = pixel / sample
        b = (adjoint[i] + weight / (1 - t[i]) * noisy[i]).flatten().to(torch.complex128)
        matrix = normal + (lam + weight) * torch.eye(320)
        start = torch.linalg.solve(matrix, b)
        expected = torch.linalg.solve(matrix, b + lam * start)
        assert torch.allclose(made[i].flatten().to(torch.complex128), expected, atol=1e-4)


def test_the_point_has_no_effect_at_t_1_and_is_the_image_at_t_0(problem):
    operator, x0 = problem
    model, adjoint = random_weights(), operator.normal(x0)
    with torch.no_grad():
        end = [model(operator, adjoint, z, torch.ones(2), NOISE) for z in (x0, -x0)]
        beginning = model(operator, adjoint, x0, torch.zeros(2), NOISE)
    assert torch.equal(*end)
    assert (beginning - x0).norm() < 0.1 * (end[0] - x0).norm()


def test_the_u_net_may_be_of_half_precision(problem):
    operator, x0 = problem
    model, adjoint, t = random_weights(), operator.normal(x0), torch.ones(2)
    with torch.no_grad():
        whole = model(operator, adjoint, x0, t, NOISE)
        model.network.to(torch.bfloat16)
        half = model(operator, adjoint, x0, t, NOISE)
    assert half.dtype == torch.complex64
    assert 0 < (half - whole).norm() < 0.05 * whole.norm()


def test_a_constant_phase_of_the_data_is_a_phase_of_the_image(problem):
    operator, x0 = problem
    model, adjoint, t = random_weights(), operator.normal(x0), torch.full((2,), 0.3)
    factor = torch.polar(torch.tensor(1.0), torch.tensor(2.1))
    with torch.no_grad():
        image = model(operator, adjoint, x0, t, NOISE)
        assert (image - model(operator, adjoint, -x0, t, NOISE)).norm() > 1e-3 * image.norm()
        changed = model(operator, factor * adjoint, factor * x0, t, NOISE)
    assert torch.allclose(changed, factor * image, atol=1e-4)


def test_a_smooth_phase_has_hardly_any_effect(rng):
    """An image with a smooth phase of some periods and one without give nearly the same magnitude."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 48), torch.linspace(-1, 1, 40), indexing="ij")
    magnitude = (1 - x**2) * (1 - y**2) * (1 + 0.2 * rng(48, 40, dtype=torch.float32)) + 0j
    field = torch.polar(torch.ones(()), 6 * x * y + 4 * x**2 - 3 * y)
    maps = (rng(1, 3, 1, 1, dtype=torch.complex64) * torch.ones(1, 3, 48, 40)).contiguous()
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    operator = SenseOperator(maps, torch.ones(1, 1, 40, dtype=torch.bool))
    model, t, sigma = random_weights(), torch.ones(1), NOISE[:1]
    with torch.no_grad():
        plain, other = (
            model(operator, operator.normal(v[None]), 0 * v[None], t, sigma) for v in (magnitude, magnitude * field)
        )
    change = plain - magnitude  # the effect of the U-Net and of the damping
    assert (other * field.conj() - plain).norm() < 0.2 * change.norm()


def test_the_smooth_phase_is_that_of_the_low_frequencies(rng):
    """Against centred transforms and a window written out; high frequencies do not change it."""
    image = rng(2, 80, 90, dtype=torch.complex64)
    window = []
    for length in image.shape[1:]:
        at = range(-length // 2, length - length // 2)
        window.append(torch.tensor([0.5 + 0.5 * math.cos(math.pi * k / 32) if abs(k) < 32 else 0 for k in at]))
    low = ifft2c(fft2c(image) * window[0][:, None] * window[1])
    assert torch.allclose(smooth_phase_of(image), low / low.abs(), atol=1e-3)
    stripes = image * 0 + (-1) ** torch.arange(90)  # the highest frequency, far above the cut-off
    assert torch.allclose(smooth_phase_of(low + 5 * stripes), smooth_phase_of(low), atol=1e-2)


def test_where_the_image_is_0_the_phase_factor_is_0():
    assert torch.equal(smooth_phase_of(torch.zeros(3, 8, 8, dtype=torch.complex64)), torch.zeros(3, 8, 8) + 0j)


@pytest.mark.parametrize("draws", [(), (3,)])
def test_an_operator_of_a_user_gives_the_same(rng, assert_any_operator_serves, draws):
    maps = rng(2, 3, 16, 20)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    maps[:, :, 12:, :5] = 0
    sense, x0, noisy = SenseOperator(maps, torch.arange(20) % 3 != 0), rng(2, 16, 20), rng(*draws, 2, 16, 20)
    t, sigma = torch.tensor([0.3, 0.8]).double(), torch.tensor([0.02, 0.1]).double()

    def evaluate(model, operator):
        return model(operator, operator.normal(x0), noisy, t, sigma)

    assert_any_operator_serves(random_weights().double(), sense, evaluate)


def test_the_window_of_a_size_is_kept_while_others_are_used():
    """Recorded graphs read its memory as long as they are kept."""
    first = _window(16, 12, torch.device("cpu"))
    for height in range(20, 90):
        _window(height, 12, torch.device("cpu"))
    assert _window(16, 12, torch.device("cpu")) is first
