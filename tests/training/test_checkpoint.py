import json
import pickle
import resource
from functools import partial

import pytest
import torch
from torch import nn

from upmri.core.errors import InputError
from upmri.training import checkpoint
from upmri.training.muon import Muon

FACTS = {"step": 3, "seconds": 1.5, "config": "…"}
ADAMW = partial(torch.optim.AdamW, lr=0.1)


def make(seed=0, width=5, optimiser=ADAMW):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Conv2d(2, width, 3), nn.Conv2d(width, width, 3), nn.Conv2d(width, 1, 1))
    copies = {
        kind: {name: torch.randn_like(p) for name, p in network.named_parameters()} for kind in ("average", "best")
    }
    return network, copies, optimiser(network.parameters())


def step(network, optimiser, seed):
    x = torch.randn(2, 2, 6, 6, generator=torch.Generator().manual_seed(seed))
    network(x).square().mean().backward()
    optimiser.step()
    optimiser.zero_grad()


def state(network, copies, optimiser):
    tensors = {f"network {name}": p.detach().clone() for name, p in network.named_parameters()}
    tensors |= {f"{kind} {name}": tensor.clone() for kind, held in copies.items() for name, tensor in held.items()}
    for name, p in network.named_parameters():
        tensors |= {f"{key} {name}": value.clone() for key, value in optimiser.state[p].items()}
    return tensors


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) and a[key].dtype == b[key].dtype for key in a)


@pytest.fixture
def trained():
    network, copies, optimiser = make()
    for i in range(3):
        step(network, optimiser, i)
    return network, copies, optimiser


@pytest.fixture
def path(trained, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save_state(path, *trained, FACTS)
    return path


def test_bit_for_bit(trained, path):
    other = make(seed=1)
    assert not same(state(*other), state(*trained))
    assert checkpoint.load_state(path, *other) == FACTS
    assert same(state(*other), state(*trained))


def test_training_continues_as_without_the_file(trained, path):
    other = make(seed=1)
    checkpoint.load_state(path, *other)
    for i in range(3, 8):
        for network, _, optimiser in (trained, other):
            step(network, optimiser, i)
    assert same(state(*other), state(*trained))


def test_muon_continues_as_without_the_file(tmp_path):
    kind = partial(Muon, lr=0.1, weight_decay=0.1)
    trained, other = make(width=32, optimiser=kind), make(seed=1, width=32, optimiser=kind)
    for i in range(3):
        step(trained[0], trained[2], i)
    checkpoint.save_state(tmp_path / "checkpoint.safetensors", *trained, FACTS)
    checkpoint.load_state(tmp_path / "checkpoint.safetensors", *other)
    for i in range(3, 6):
        for network, _, optimiser in (trained, other):
            step(network, optimiser, i)
    assert same(state(*other), state(*trained))
    with pytest.raises(InputError, match="another network"):
        checkpoint.load_state(tmp_path / "checkpoint.safetensors", *make(width=32))


def test_layouts_are_kept(trained, path):
    """Strides decide which kernels run, so they must be those of an uninterrupted run."""
    network, copies, _ = make(seed=1)
    network = network.to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(network.parameters())
    checkpoint.load_state(path, network, copies, optimiser)
    weight = network[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert all(optimiser.state[weight][m].stride() == weight.stride() for m in ("exp_avg", "exp_avg_sq"))
    assert torch.equal(optimiser.state[weight]["exp_avg"], trained[2].state[trained[0][0].weight]["exp_avg"])


@pytest.mark.parametrize("change", ["wider", "deeper", "shallower", "broadcast"])
def test_another_network_is_refused(trained, path, change):
    """Also where names agree, or shapes would broadcast; and nothing is changed."""
    network, copies, optimiser = make(seed=1, width=6 if change == "wider" else 5)
    if change == "broadcast":
        small = make(width=1)
        step(small[0], small[2], 0)
        checkpoint.save_state(path, *small, FACTS)
    elif change != "wider":
        layers = [*network, nn.Conv2d(1, 1, 1)] if change == "deeper" else network[:1]
        network = nn.Sequential(*layers)
        copies = {kind: {n: torch.zeros_like(p) for n, p in network.named_parameters()} for kind in ("average", "best")}
        optimiser = torch.optim.AdamW(network.parameters())
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    with pytest.raises(InputError, match="another network") as error:
        checkpoint.load_state(path, network, copies, optimiser)
    assert error.value.path == str(path)
    assert all(torch.equal(p, before[name]) for name, p in network.named_parameters())


@pytest.mark.parametrize("length", [0, 4, 100, -1])
def test_a_damaged_file_is_refused(path, length):
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match="damaged") as error:
        checkpoint.load_state(path, *make())
    assert error.value.path == str(path)


def test_a_kill_between_writing_and_renaming_leaves_the_old_one(trained, path, monkeypatch):
    before, bytes_ = state(*trained), path.read_bytes()
    step(trained[0], trained[2], 9)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save_state(path, *trained, FACTS | {"step": 4})
    assert path.read_bytes() == bytes_
    assert list(path.parent.iterdir()) == [path]  # the staged file is gone
    other = make(seed=1)
    assert checkpoint.load_state(path, *other) == FACTS
    assert same(state(*other), before)
    checkpoint.save_state(path, *trained, FACTS | {"step": 4})
    assert checkpoint.load_state(path, *other)["step"] == 4
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("junk", [b"", b"\0" * 50, b"half of a file"])
def test_a_leftover_is_ignored(trained, path, junk):
    path.with_name(f".{path.name}.new").write_bytes(junk)
    other = make(seed=1)
    assert checkpoint.load_state(path, *other) == FACTS
    assert same(state(*other), state(*trained))


def test_no_pickle(trained, path, monkeypatch):
    """The file is a JSON header and numbers, to the last byte; neither side calls pickle."""

    def refuse(*_, **__):
        raise AssertionError("pickle")

    for module in (pickle, torch):
        for name in ("load", "loads", "dump", "dumps", "save", "Pickler", "Unpickler"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, refuse)
    checkpoint.save_state(path, *trained, FACTS)
    checkpoint.load_state(path, *make())
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert json.loads(header.pop("__metadata__")["facts"]) == FACTS
    ends = sorted(entry["data_offsets"] for entry in header.values())
    assert [begin for begin, _ in ends] == [0, *(end for _, end in ends[:-1])]
    assert 8 + length + ends[-1][1] == len(data)
    assert {entry["dtype"] for entry in header.values()} == {"F32"}


@pytest.mark.parametrize("limit", [0, 100, 1000])
def test_on_a_full_disk_the_old_one_stays(trained, path, limit):
    before = path.read_bytes()
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    try:
        with pytest.raises(InputError, match="File too large") as error:
            checkpoint.save_state(path, *trained, FACTS | {"step": 4})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert error.value.path == str(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
