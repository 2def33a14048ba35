"""The network of cine: its start by dense algebra, frames in a circle, series apart, gradients."""

import pytest
import torch

from upmri.networks.cnn import UNet
from upmri.networks.dynamic import Dynamic, TimeNormReLU, TimeUNet
from upmri.physics.low_rank import low_rank_blocks
from upmri.physics.sense import SenseOperator
from upmri.physics.time_average import average_image, to_frames
from upmri.physics.total_variation import smooth_over_time

FRAMES, SERIES = 4, 2
SIGMA = torch.full((SERIES * FRAMES,), 0.01)


@pytest.fixture
def problem(rng):
    maps = rng(SERIES, 3, 12, 16, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.rand(SERIES * FRAMES, 1, 16, generator=torch.Generator().manual_seed(0)) < 0.4
    operator = SenseOperator(to_frames(maps, FRAMES), mask)
    return operator, operator.normal(rng(SERIES * FRAMES, 12, 16, dtype=torch.complex64))


def network(trained=True, **settings):
    torch.manual_seed(0)
    made = Dynamic(**{"cascades": 2, "width": 4} | settings)
    if trained:
        torch.nn.init.normal_(made.network.out.weight, std=0.3)
    return made.eval()


def turned(operator, frames):
    """The operator with the slices in another order."""
    return SenseOperator(operator.maps[frames], operator.mask[frames])


def test_an_untrained_network_is_alternating_directions(problem):
    operator, adjoint = problem
    found = network(trained=False, damping=0.3, low_rank=0.5)(operator, adjoint, SIGMA, FRAMES)
    x = to_frames(average_image(operator, adjoint, FRAMES), FRAMES)
    x, dual = operator.solve(adjoint + 0.3 * x, 0.3), 0
    for k in range(2):
        total = x + dual
        v = low_rank_blocks(total, FRAMES, 8, 0.5 * 0.01 * (8 + 2), [3 * k, 5 * k])
        z, _ = smooth_over_time(v, FRAMES, SIGMA[:, None, None])
        dual = total - z
        x = operator.solve(adjoint + 0.3 * (z - dual), 0.3)
    assert torch.allclose(found, x, atol=1e-4)


@torch.no_grad()
def test_series_do_not_mix(problem):
    operator, adjoint = problem
    model, first = network(), list(range(FRAMES))
    alone = model(turned(operator, first), adjoint[first], SIGMA[first], FRAMES)
    assert torch.allclose(alone, model(operator, adjoint, SIGMA, FRAMES)[first], atol=1e-5)


@torch.no_grad()
def test_frames_are_in_a_circle_if_the_series_is_periodic(problem):
    operator, adjoint = problem
    order = [1, 2, 3, 0]
    operator, adjoint, sigma = turned(operator, range(FRAMES)), adjoint[:FRAMES], SIGMA[:FRAMES]
    for periodic in (True, False):
        model = network(periodic=periodic)
        straight = model(operator, adjoint, sigma, FRAMES)
        rolled = model(turned(operator, order), adjoint[order], sigma, FRAMES)
        assert torch.allclose(rolled, straight[order], atol=1e-4) == periodic


@torch.no_grad()
def test_a_frame_depends_on_the_others(problem):
    operator, adjoint = problem
    model, changed = network(), adjoint.clone()
    changed[1] *= 1.5
    difference = (model(operator, changed, SIGMA, FRAMES) - model(operator, adjoint, SIGMA, FRAMES)).abs().amax((1, 2))
    assert (difference[:FRAMES] > 1e-3).all()
    assert (difference[FRAMES:] == 0).all()


@torch.no_grad()
def test_a_phase_factor_of_the_data_is_one_of_the_image(problem):
    operator, adjoint = problem
    model, factor = network(), torch.polar(torch.tensor(1.0), torch.tensor(0.7))
    expected = factor * model(operator, adjoint, SIGMA, FRAMES)
    assert torch.allclose(model(operator, factor * adjoint, SIGMA, FRAMES), expected, atol=1e-4)


def test_one_frame_is_a_series_too(problem):
    operator, adjoint = problem
    assert network()(operator, adjoint, SIGMA, 1).shape == adjoint.shape


def test_all_weights_get_gradients(problem):
    operator, adjoint = problem
    model = network().train()
    model(operator, adjoint, SIGMA, FRAMES).abs().square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
    assert model.log_damping.grad != 0


def test_any_operator_serves(rng, assert_any_operator_serves):
    maps = rng(1, 3, 12, 16, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.rand(1, 1, 16, generator=torch.Generator().manual_seed(1)) < 0.6
    sense = SenseOperator(to_frames(maps, 3), mask)
    x = rng(3, 12, 16, dtype=torch.complex64)

    def evaluate(model, operator):
        return model(operator, operator.normal(x), SIGMA[:3], 3)

    assert_any_operator_serves(network(), sense, evaluate, tolerance=0.03)


@pytest.mark.parametrize("periodic", [True, False])
def test_the_layer_over_time_is_a_convolution_norm_and_relu(periodic):
    torch.manual_seed(0)
    layer, x = TimeNormReLU(4), torch.randn(2 * 3, 4, 5, 6)
    torch.nn.init.normal_(layer.bias)
    series = x.reshape(2, 3, 4, 5, 6).permute(0, 3, 4, 2, 1).reshape(-1, 4, 3)  # (series · pixel, channel, frame)
    padded = torch.nn.functional.pad(series, (1, 1), mode="circular" if periodic else "replicate")
    kernel = torch.stack(layer.weights.weight.chunk(3), -1)  # of the frame before, of the frame, and of the one after
    total = torch.nn.functional.conv1d(padded, kernel, layer.bias).reshape(2, 5, 6, 4, 3).permute(0, 4, 3, 1, 2)
    expected = layer.norm(total.reshape(6, 4, 5, 6)).relu()
    assert torch.allclose(layer(x, 3, periodic), expected, atol=1e-5)


def test_sizes_that_do_not_halve(rng):
    maps = torch.ones(2, 1, 9, 13, dtype=torch.complex64)
    operator = SenseOperator(maps, torch.ones(1, 1, 13))
    x = rng(2, 9, 13, dtype=torch.complex64)
    assert network()(operator, x, SIGMA[:2], 2).shape == x.shape


@torch.no_grad()
def test_without_weights_over_time_the_unet_is_that_of_single_images(rng):
    torch.manual_seed(0)
    series, x = TimeUNet(4, inputs=5), rng(FRAMES, 5, 13, 9, dtype=torch.float32)
    torch.nn.init.normal_(series.out.weight)
    for name, weight in series.named_parameters():
        if ".time." in name:
            weight.zero_()
    single = UNet(4, inputs=5)
    weights = {name: weight for name, weight in series.state_dict().items() if ".time." not in name}
    single.load_state_dict({n.replace("first", "0").replace("second", "1"): w for n, w in weights.items()})
    assert torch.allclose(series(x, FRAMES, True), single(x))
