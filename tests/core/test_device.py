import pytest
import torch

from upmri.core.device import device_name, pick_device
from upmri.core.errors import InputError


@pytest.mark.parametrize("there", [False, True])
def test_auto_is_an_accelerator_if_there_is_one(monkeypatch, there):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert pick_device("auto") == torch.device("cuda" if there else "cpu")


def test_a_device_by_name():
    assert pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["", "abacus", "cpu:x", "cuda:99", "meta", None])
def test_a_device_that_does_not_exist(name):
    with pytest.raises(InputError) as error:
        pick_device(name)
    assert error.value.field == "device"
    assert repr(name) in error.value.message


def test_names_of_devices(monkeypatch):
    count = torch.get_num_threads()
    assert device_name("cpu") == f"CPU, {count} thread{'s' * (count != 1)}"
    monkeypatch.setattr("upmri.core.device.pick_device", torch.device)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card {device.index}")
    assert device_name("cuda:1") == "card 1"
