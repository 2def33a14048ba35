"""Layers of the U-Nets; their kernels are compared with them where there is a CUDA device."""

import pytest
import torch
import torch.nn.functional as nnf

from upmri.core.kernels import uses_kernels
from upmri.networks.layers import ConvNormReLU, Convolution, fill_channels, halve, join, log_parameter

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_a_layer_is_a_convolution_a_group_norm_and_a_relu(rng):
    layer = ConvNormReLU(3, 12).double()
    x = rng(2, 3, 7, 6, dtype=torch.float64)
    conv, norm, _ = layer
    expected = nnf.conv2d(x, conv.weight, conv.bias, padding=1).unflatten(1, (4, 3))
    mean, var = expected.mean((2, 3, 4), keepdim=True), expected.var((2, 3, 4), keepdim=True, correction=0)
    expected = ((expected - mean) / (var + 1e-5).sqrt()).flatten(1, 2)
    assert torch.allclose(layer(x), (norm.weight[:, None, None] * expected + norm.bias[:, None, None]).clamp_min(0))


@pytest.mark.parametrize(("inputs", "outputs"), [(2, 32), (32, 2), (12, 10), (8, 16)])
@pytest.mark.parametrize("biased", [False, True])
def test_zeros_for_tensor_cores_change_nothing(rng, inputs, outputs, biased):
    """Neither the output nor the gradients; channels are then a multiple of eight."""
    x, weight, bias = (rng(*s, dtype=torch.float64) for s in ((2, inputs, 5, 6), (outputs, inputs, 3, 3), (outputs,)))
    leaves = [t.requires_grad_() for t in ((x, weight, bias) if biased else (x, weight))]
    expected = nnf.conv2d(*leaves, padding=1)
    *filled, count = fill_channels(x, weight, bias if biased else None)
    assert filled[0].shape[1] % 8 == filled[1].shape[0] % 8 == filled[1].shape[1] % 8 == 0
    found = nnf.conv2d(*filled, padding=1)[:, :count]
    assert torch.allclose(found, expected)
    incoming = rng(*expected.shape, dtype=torch.float64)
    pairs = zip(*(torch.autograd.grad(out, leaves, incoming) for out in (found, expected)), strict=True)
    assert all(torch.allclose(a, b) for a, b in pairs)


def test_a_convolution_is_pytorchs(rng):
    layer, x = Convolution(3, 5, 3), rng(2, 3, 7, 6, dtype=torch.float32)
    assert torch.equal(layer(x), nnf.conv2d(x, layer.weight, layer.bias, padding=1))


def test_halving_and_joining(rng):
    x, skip = rng(2, 3, 4, 6, dtype=torch.float32), rng(2, 5, 8, 12, dtype=torch.float32)
    assert torch.allclose(halve(x)[:, :, 1, 2], x[:, :, 2:4, 4:6].mean((2, 3)))
    joined = join(x, skip)
    assert joined.shape == (2, 8, 8, 12)
    assert torch.equal(joined[:, :3, 5, 7], x[:, :, 2, 3])
    assert torch.equal(joined[:, 3:], skip)


def test_a_cpu_has_no_kernels(rng):
    assert not uses_kernels(rng(1, 2, 4, 4, dtype=torch.float32))


@needs_cuda
@pytest.mark.parametrize(("channels", "size"), [(32, (40, 33)), (96, (20, 17)), (12, (5, 5)), (3, (8, 8))])
def test_the_kernels_agree_with_the_layers(channels, size):
    torch.manual_seed(0)
    layer = ConvNormReLU(4, channels).cuda()
    x = torch.randn(3, 4, *size, device="cuda", requires_grad=True)
    flow = torch.randn(3, channels, *size, device="cuda")
    double = ConvNormReLU(4, channels).cuda().double()
    double.load_state_dict(layer.state_dict())
    y = x.detach().double().requires_grad_()
    assert uses_kernels(x)
    assert not uses_kernels(y)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        ours = torch.autograd.grad((layer(x) * flow).sum(), [x, *layer.parameters()])
        expected = torch.autograd.grad((double(y) * flow).sum(), [y, *double.parameters()])
    for one, other in zip(ours, expected, strict=True):
        assert (one - other).norm() < 5e-3 * other.norm()  # a ReLU near 0 may differ


@needs_cuda
def test_the_kernels_between_levels_agree():
    low = torch.randn(2, 12, 4, 5, device="cuda", requires_grad=True)
    skip = torch.randn(2, 7, 8, 10, device="cuda", requires_grad=True)
    flow = torch.randn(2, 19, 8, 10, device="cuda")
    ours = torch.autograd.grad((join(low, skip) * flow).sum(), [low, skip])
    plain = torch.cat([nnf.interpolate(low, scale_factor=2, mode="nearest"), skip], 1)
    for one, other in zip(ours, torch.autograd.grad((plain * flow).sum(), [low, skip]), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    flow = torch.randn(2, 7, 4, 5, device="cuda")
    ours = torch.autograd.grad((halve(skip) * flow).sum(), skip)[0]
    assert torch.allclose(ours, torch.autograd.grad((nnf.avg_pool2d(skip, 2) * flow).sum(), skip)[0])


def test_the_logarithm_of_a_number_is_that_of_a_tensor_and_imports_no_compiler(fresh):
    for value in (0.02, 0.5, 0.0):
        assert torch.equal(log_parameter(value), torch.tensor(value).log())
    assert bool(log_parameter(-1.0).isnan())
    code = "import sys, upmri; upmri.prior('brain'); sys.exit('torch._dynamo' in sys.modules)"
    assert fresh(code).returncode == 0
