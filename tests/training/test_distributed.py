"""Processes that train together, and the copy of the network in bfloat16."""

import signal
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import upmri
from upmri.core.errors import InputError
from upmri.core.settings import build
from upmri.methods.upmri_objective import UpmriObjective
from upmri.training import train
from upmri.training.config import read_config
from upmri.training.distributed import PassNetwork, Process

GUARD = 240  # seconds after which a failing test stops to wait


@contextmanager
def two_processes(runs, paths, **settings):
    """Two processes that train together, as ``torchrun`` would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with ExitStack() as stack:
        processes = []
        for rank in range(2):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(stack.enter_context(runs.start(paths, **ranks, **shared, **settings)))
            stack.callback(processes[-1].kill)
        yield processes


def finish(processes):
    """Wait for all; return code, stdout and stderr of each."""
    texts = [process.communicate(timeout=GUARD) for process in processes]
    return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def assert_failed(ended):
    """Both ended with an error of Python; once, torch aborted a process after it had printed its error."""
    assert {code for code, _, _ in ended} <= {1, -signal.SIGABRT}, ended
    assert all("Error" in stderr for _, _, stderr in ended), ended


def fail(name, times=0):
    """Code that makes a function of process 0 fail, after it has worked so many times."""
    return f"""
def work(*args, before={name}, left=[{times}], **settings):
    left[0] -= 1
    if left[0] < 0:
        raise OSError("no space left")
    return before(*args, **settings)
if rank == 0:
    {name} = work
"""


def pairs(make, folder, *changes):
    """Each run for one process and for two; from the fourth step on Adam may amplify rounding beyond the bounds."""
    data = make(folder)["train"]
    whole = [make(folder, batch=4, steps=3, validation={**data, "limit": 2}) | change for change in changes]
    return [[run | {"output": str(folder / f"{n}-{i}")} for n in (1, 2)] for i, run in enumerate(whole)]


def moved(runs, config):
    """Change of the weights since the start, in one vector."""
    settings, tensors = read_config(config), runs.state(config)
    torch.manual_seed(0)
    begun = build(upmri.methods.find_method(settings.method).objective, settings.objective, "objective").network()
    return torch.cat([(tensors[f"network.{name}"] - p.detach()).flatten() for name, p in begun.named_parameters()])


def assert_alike(runs, one, two):
    """To rounding; Adam amplifies that where the gradient is nearly 0, step by step, so norms are compared."""
    for name in ("loss", "gradient"):
        assert runs.logged(two, name) == pytest.approx(runs.logged(one, name), rel=1e-4)
    assert [entry["step"] for entry in runs.entries(two)] == [entry["step"] for entry in runs.entries(one)]
    assert runs.logged(two, "gain") == pytest.approx(runs.logged(one, "gain"), abs=2e-3)
    assert (moved(runs, two) - moved(runs, one)).norm() < 2e-3 * moved(runs, one).norm()


@pytest.fixture(scope="module")
def together(make_config, tmp_path_factory, runs):
    """Five runs of two processes, one after another: two good ones, two with NaN, and one that fails."""
    folder = tmp_path_factory.mktemp("together")
    objectives = [{"cascades": 2, "width": 16, "path_every": n} for n in (0, 2)]
    good = pairs(make_config, folder, {"objective": objectives[0], "cache": None}, {"objective": objectives[1]})
    nan = [
        make_config(folder, {"damping": 0.03}, steps=8, log_every=n, save_every=3, output=str(folder / f"nan-{n}"))
        for n in (1, 100)
    ]
    lost = make_config(folder, cache=None, output=str(folder / "lost"))
    before = """
def loss(self, network, problem):
    value = plain(self, network, problem)
    return value * float("nan") if rank == 1 and problem.step == 3 and self.damping == 0.03 else value
UpmriObjective.loss = loss
"""
    files = [runs.write_config(folder, c) for c in (*(two for _, two in good), *nan, lost)]
    with two_processes(runs, files, before=before + fail("begin.prepare", 6)) as processes:
        for one, _ in good:
            train(one)
        return good, nan, lost, finish(processes)


@pytest.mark.soak
def test_two_processes_have_the_same_new_scans(make_config, tmp_path, runs):
    """The first prepares them, the second reads them."""
    data = make_config(tmp_path)["train"] | {"varied": 0.5, "redraw": 1}
    ((one, two),) = pairs(make_config, tmp_path, {"train": data, "validation": None})
    with two_processes(runs, [runs.write_config(tmp_path, two)]) as processes:
        train(one)
        assert [code for code, _, _ in finish(processes)] == [0, 0]
    for name in ("loss", "gradient"):
        assert runs.logged(two, name) == pytest.approx(runs.logged(one, name), rel=1e-4)
    assert len(set(runs.logged(one, "loss"))) == 3
    assert not list(tmp_path.glob("*/redrawn"))


def test_two_processes_do_what_one_does(together, runs):
    """With and without the path, also when there is nothing in the cache yet."""
    good, _, _, ended = together
    for one, two in good:
        assert (Path(two["output"]) / "weights.safetensors").exists(), ended
        assert_alike(runs, one, two)


def test_processes_diverge_together(together, runs):
    """When one of them has NaN both stop, at once or in the next step."""
    _, nan, _, ended = together
    for _, stdout, stderr in ended:
        lines = [line.split(":")[0] for line in stdout.splitlines()]
        assert lines == ["diverged step 4", "diverged step 5"], stderr
    assert [runs.step_of(settings) for settings in nan] == [3, 3]


def test_no_process_waits_for_one_that_failed(together):
    """Here the one that prepares the slices: the other one ends too, without the help of ``torchrun``."""
    _, _, lost, ended = together
    assert_failed(ended)
    assert "no space left" in ended[0][2]
    assert "Connection closed by peer" in ended[1][2]
    assert not (Path(lost["output"]) / "checkpoint.safetensors").exists()


@pytest.mark.soak
@pytest.mark.parametrize("where", ["loop.validate", "loop.checkpoint.save_state", "loop.save_weights"])
def test_no_process_waits_for_one_that_fails_later(config, write, where, runs):
    settings = config(validation={**config()["train"], "limit": 2})
    with two_processes(runs, [write(settings)], before=fail(where)) as processes:
        ended = finish(processes)
    assert_failed(ended)
    assert "no space left" in ended[0][2]
    assert "Connection closed by peer" in ended[1][2]


@pytest.mark.soak
def test_two_processes_by_the_paper_and_in_bfloat16(make_config, tmp_path, write, runs):
    paper = {"method": "upmri-paper", "objective": {"size": "tiny", "iterations": 4}}
    both = pairs(make_config, tmp_path, paper, {"precision": "bf16"})
    with two_processes(runs, [write(two) for _, two in both]) as processes:
        for one, _ in both:
            train(one)
        for code, _, stderr in finish(processes):
            assert code == 0, stderr
    assert_alike(runs, *both[0])
    one, two = both[1]
    assert runs.logged(two, "loss") == pytest.approx(runs.logged(one, "loss"), rel=0.02)


def test_a_batch_that_cannot_be_shared(config, monkeypatch):
    process = Process(0, 3, torch.device("cpu"))
    monkeypatch.setattr(Process, "find", lambda _: process)
    with pytest.raises(InputError, match="4 slices cannot be shared by 3") as error:
        train(config(batch=4))
    assert error.value.field == "batch"


def test_settings_of_the_user_s_program_are_restored(config, monkeypatch):
    """After a training, and after one that fails, on a GPU and without."""
    used = []

    @contextmanager
    def device(where):
        used.append(where)
        yield
        used.append("restored")

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    where = torch.device("cuda", 1)
    with Process(0, 1, where).in_use():
        assert (torch.backends.cudnn.benchmark, used) == (True, [where])
    assert (torch.backends.cudnn.benchmark, used) == (False, [where, "restored"])
    with pytest.raises(OSError, match="no memory"), Process(0, 1, where).in_use():
        raise OSError("no memory")
    assert not torch.backends.cudnn.benchmark
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    train(config(steps=1))
    assert torch.backends.cudnn.benchmark


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_training_on_a_gpu_restores_the_settings_of_the_program(config, monkeypatch):
    searched, plain = [], UpmriObjective.loss
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setattr(
        UpmriObjective, "loss", lambda *args: searched.append(torch.backends.cudnn.benchmark) or plain(*args)
    )
    last = torch.cuda.device_count() - 1
    with torch.cuda.device(last):
        train(config(steps=1, device="cuda:0"))
        assert (torch.cuda.current_device(), torch.backends.cudnn.benchmark, searched) == (last, False, [True])


def test_one_process_is_alone(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    process = Process.find("cpu")
    assert (process.rank, process.world, process.device, process.leads) == (0, 1, torch.device("cpu"), True)
    process.wait()  # for nobody
    values = torch.tensor([1.0, 2.0])
    assert torch.equal(process.mean(values), values)


def small_network():
    """A network with a parameter of its own beside its U-Net, as all networks here have it."""
    network = nn.Sequential(nn.Linear(3, 2))
    network.register_parameter("log_damping", nn.Parameter(torch.tensor(0.3)))
    return network


def test_single_precision_works_on_the_trained_weights_themselves():
    network = small_network()
    passes = PassNetwork(network, Process(0, 1, torch.device("cpu")), half=False)
    assert passes.module is network
    network(torch.ones(3)).sum().backward()
    gradient = network[0].weight.grad
    passes.refresh()
    passes.hand_over()
    assert network[0].weight.grad is gradient


@pytest.mark.parametrize("method", ["upmri", "modl", "varnet"])
def test_what_is_compiled_is_called(method, monkeypatch):
    """A VarNet calls the members of a list, and not the list."""
    network = upmri.methods.find_method(method).objective(width=4).network()
    compiled, called = set(), set()
    monkeypatch.setattr(nn.Module, "compile", lambda part, **_: compiled.add(part))
    PassNetwork(network, Process(0, 1, torch.device("cpu")), half=False, compiled=True)
    for part in network.modules():
        part.register_forward_hook(lambda part, *_: called.add(part))
    problem = upmri.Problem.from_scan(upmri.simulate(torch.ones(1, 16, 16), coils=2, acceleration=2))
    more = [torch.zeros_like(problem.adjoint), torch.ones(1), problem.sigma] if method == "upmri" else []
    network(problem.operator, problem.adjoint, *more)
    assert compiled
    assert compiled <= called


def test_bfloat16_works_on_a_copy_and_hands_its_gradients_over():
    network = small_network()
    passes = PassNetwork(network, Process(0, 1, torch.device("cpu")), half=True)
    copied = passes.module
    assert copied[0].weight.dtype == torch.bfloat16
    assert copied.log_damping.dtype == torch.float32  # only the U-Net is in bfloat16
    with torch.no_grad():
        network[0].weight += 1
    passes.refresh()
    assert torch.equal(copied[0].weight, network[0].weight.bfloat16())
    (copied(torch.ones(3, dtype=torch.bfloat16)).sum() * copied.log_damping).backward()
    expected = {name: p.grad.float() for name, p in copied.named_parameters()}
    passes.hand_over()
    for name, p in network.named_parameters():
        assert p.dtype == p.grad.dtype == torch.float32
        assert torch.equal(p.grad, expected[name])
    assert all(p.grad is None for p in copied.parameters())
