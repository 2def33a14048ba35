"""What a worker does when it starts."""

import os
import signal
from types import SimpleNamespace

import pytest

from upmri.cluster import place
from upmri.cluster.setup import Setup
from upmri.core.errors import InputError


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(place, "_own", None)
    before = signal.getsignal(signal.SIGINT)
    yield SimpleNamespace(name=3, memory_manager=SimpleNamespace(memory_pause_fraction=0.8))
    signal.signal(signal.SIGINT, before)


def test_workers_share_devices_and_get_variables(worker, monkeypatch):
    monkeypatch.setenv("UPMRI_MODELS", "/weights")
    setup = Setup.of_this_process(["cpu", "meta"], local=True)
    monkeypatch.delenv("UPMRI_MODELS")
    setup.setup(worker)
    assert os.environ["UPMRI_MODELS"] == "/weights"
    assert worker.memory_manager.memory_pause_fraction is False
    assert place.device_here("cuda:0,cuda:1") == "meta"


@pytest.mark.parametrize("local", [True, False])
def test_ctrl_c_is_for_the_client_of_workers_beside_it(worker, local):
    before = signal.getsignal(signal.SIGINT)
    Setup.of_this_process(["cpu"], local=local).setup(worker)
    assert signal.getsignal(signal.SIGINT) == (signal.SIG_IGN if local else before)


def test_another_version_is_refused(worker):
    with pytest.raises(RuntimeError, match=r"expected 0\.0"):
        Setup("0.0", {}, None).setup(worker)


def test_devices(monkeypatch):
    monkeypatch.setattr(place, "_own", None)
    assert place.devices("cuda:0, cuda:1") == ["cuda:0", "cuda:1"]
    assert place.device_here("cpu") == "cpu"
    assert place.device_here("cpu,meta") == "cpu"
    with pytest.raises(InputError, match="--device"):
        place.devices("cpu,")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert place.devices("all") == ["cuda:0", "cuda:1"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(InputError, match="no GPU"):
        place.devices("all")
