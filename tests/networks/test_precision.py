"""16 bits at inference."""

import copy

import pytest
import torch

from upmri.networks import precision
from upmri.networks.precision import ShortPasses, for_inference, note_change, short_type
from upmri.networks.unrolled import Unrolled


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Unrolled(cascades=1, width=4).requires_grad_(False)


@pytest.fixture(autouse=True)
def _has_bfloat16(monkeypatch):
    monkeypatch.setattr(precision, "short_type", lambda _: torch.bfloat16)


@torch.no_grad()
def test_submodules_are_short_and_own_parameters_are_not(network):
    fast = for_inference(network)
    assert {p.dtype for p in fast.network.parameters()} == {torch.bfloat16}
    assert fast.log_damping.dtype == torch.float32
    assert {p.dtype for p in network.parameters()} == {torch.float32}


@torch.no_grad()
def test_the_copy_is_kept_and_follows_the_weights(network):
    """In place: what is recorded of its passes stays valid."""
    fast = for_inference(network)
    assert for_inference(network) is fast
    network.network.out.bias.fill_(3)
    assert for_inference(network) is fast
    assert fast.network.out.bias.float().tolist() == [3, 3]
    assert for_inference(copy.deepcopy(network)) is not fast
    network.network.out.bias.data = torch.zeros(2)  # other memory
    assert for_inference(network) is not fast


@torch.no_grad()
def test_changes_that_no_version_counts(network):
    """As by optimisers on an accelerator: weights in training are copied every time, others where that is said."""
    bias = network.network.out.bias
    fast = for_inference(network)
    bias.data.fill_(3)
    note_change([bias])
    assert for_inference(network).network.out.bias.float().tolist() == [3, 3]
    network.requires_grad_(True)
    assert for_inference(network) is fast
    bias.data.fill_(4)
    assert for_inference(network).network.out.bias.float().tolist() == [4, 4]


def test_passes_in_16_bits_train_weights_in_32(network):
    network.requires_grad_(True)
    passes = ShortPasses(network)
    assert {p.dtype for p in passes.network.network.parameters()} == {torch.bfloat16}
    with torch.no_grad():
        network.network.out.bias.fill_(1 + 2**-12)
    passes.refresh()
    assert passes.network.network.out.bias.tolist() == [1, 1]
    passes.network.network.out.bias.square().sum().backward()
    passes.hand_over()
    assert network.network.out.bias.grad.tolist() == [2, 2]
    assert network.network.out.bias.grad.dtype == torch.float32
    assert network.network.out.weight.grad is None
    assert passes.network.network.out.bias.grad is None


def test_buffers_go_with_the_passes():
    """Means that the passes change come back; a constant keeps its precision."""
    network = torch.nn.Sequential(torch.nn.BatchNorm2d(1, momentum=1.0), torch.nn.BatchNorm2d(1, momentum=0.0))
    network[1].running_mean.fill_(1 + 2**-12)
    passes = ShortPasses(network)
    for count in (1, 2):
        passes.refresh()
        passes.network(torch.full((1, 1, 2, 2), 3.0, dtype=torch.bfloat16))
        passes.hand_over()
        assert [network[0].running_mean.item(), network[0].num_batches_tracked.item()] == [3, count]
    assert network[1].running_mean.item() == 1 + 2**-12


def test_where_gradients_are_recorded_it_is_the_network_itself(network):
    assert for_inference(network) is network


@torch.no_grad()
def test_other_precisions_stay(network):
    double = network.double()
    assert for_inference(double) is double


@torch.no_grad()
def test_a_processor_without_16_bits_uses_the_network_itself(network, monkeypatch):
    monkeypatch.setattr(precision, "short_type", lambda _: None)
    assert for_inference(network) is network


def test_which_processors_have_16_bits(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    for has in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda has=has: has)
        assert short_type(torch.device("cpu")) == (torch.bfloat16 if has else None)
    for capability, expected in (((9, 0), torch.float16), ((6, 1), None)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        assert short_type(torch.device("cuda")) == expected
    assert short_type(torch.device("meta")) is None
