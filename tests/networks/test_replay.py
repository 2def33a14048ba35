"""Recorded graphs: on a CPU a plain call, on a CUDA device the same values and gradients."""

import threading

import pytest
import torch

from upmri.networks.cnn import UNet
from upmri.networks.replay import replayed

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Twice(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x, scale):
        return scale * self.network(x)


def test_on_a_cpu_the_module_is_called(rng):
    calls = []

    class Record(torch.nn.Module):
        def forward(self, *inputs):
            calls.append(inputs)
            return inputs[0]

    x = rng(1, 2, 4, 4)
    assert replayed(Record(), x, x)(x, x) is x
    assert calls == [(x, x)]


@needs_cuda
@torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
def test_values_and_gradients_are_those_of_calls():
    torch.manual_seed(0)
    network = UNet(8).cuda()
    torch.nn.init.normal_(network.out.weight, std=0.3)
    module = Twice(network)
    for size in (16, 24, 16):
        x = torch.randn(2, 2, size, size, device="cuda", requires_grad=True)
        scale = torch.rand((), device="cuda", requires_grad=True)
        wanted = [x, scale, *network.parameters()]
        run = replayed(module, x, scale)
        ours = run(run(x, scale), scale)
        expected = module(module(x, scale), scale)
        assert torch.allclose(ours, expected, rtol=1e-3, atol=1e-4)
        for one, other in zip(
            torch.autograd.grad(ours.square().mean(), wanted),
            torch.autograd.grad(expected.square().mean(), wanted),
            strict=True,
        ):
            assert (one - other).norm() <= 0.05 * other.norm() + 1e-6  # a ReLU near 0 may differ


@needs_cuda
@torch.no_grad()
def test_weights_that_change_in_place_are_seen():
    network = UNet(8).cuda()
    x = torch.randn(1, 2, 16, 16, device="cuda")
    assert (replayed(network, x)(x) == 0).all()
    network.out.bias.fill_(2)
    assert (replayed(network, x)(x) == 2).all()


@needs_cuda
@torch.no_grad()
def test_another_thread_may_use_the_device_during_a_recording():
    ended, failures = threading.Event(), []

    def load():
        kept = []
        while not ended.is_set():
            try:
                kept.append(torch.ones(1 << 20).cuda())  # takes new memory, copies and waits
            except RuntimeError as failure:
                failures.append(failure)
                return

    thread = threading.Thread(target=load)
    thread.start()
    try:
        network = UNet(8).cuda()
        network.out.bias.fill_(2)
        for size in range(16, 144, 8):
            x = torch.randn(1, 2, size, size, device="cuda")
            assert (replayed(network, x)(x) == 2).all()
    finally:
        ended.set()
        thread.join()
    assert not failures
