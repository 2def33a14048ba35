"""Fixtures of all tests: random complex tensors, dense matrices of linear maps, the data folder."""

from __future__ import annotations

import errno
import gc
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor

# Modules and collected tests stay to the end: Python's garbage collector need not look at them again and again.
gc.disable()

# Tests run in parallel processes: one thread each is faster than several that share the cores.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # in processes that tests start, too
# A shell starts a job in the background with SIGINT ignored, and every process that it starts would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Weights of the user who runs the tests must not change their results.
os.environ.pop("UPMRI_MODELS", None)
# Files are read in this process: most tests look at readers, and some replace parts of them. tests/formats/child reads
# in a process of its own, as users do.
os.environ.setdefault("UPMRI_TRUSTED", "1")

# The same examples in every run; `make soak` tries many more.
settings.register_profile("quick", max_examples=30, deadline=None, derandomize=True, database=None)
settings.register_profile("soak", max_examples=300, deadline=None, derandomize=True, database=None)
settings.load_profile("soak" if os.environ.get("UPMRI_SOAK") else "quick")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Switch the garbage collector on again; it leaves alone what exists now, and comes more rarely."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True)
def gradients() -> Iterator[None]:
    """Fail a test that leaves gradients switched off, which tests after it in the same process need."""
    yield
    left_on = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert left_on, "gradients are switched off"


@pytest.fixture
def rng() -> Callable[..., Tensor]:
    """``rng(*shape)``: complex normal tensors, the same in every run."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int, dtype: torch.dtype = torch.complex128) -> Tensor:
        return torch.randn(*shape, dtype=dtype, generator=generator)

    return draw


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with real anatomies and scans. Without it tests are skipped, except in CI, where they fail."""
    folder = os.environ.get("UPMRI_DATA", "")
    if not folder or not Path(folder).is_dir():
        reason = f"UPMRI_DATA names no folder: {folder!r}" if folder else "UPMRI_DATA is not set"
        (pytest.fail if os.environ.get("UPMRI_CI") else pytest.skip)(reason)
    return Path(folder)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """``closed(folder)``: a folder that cannot be listed, also by root, who may list every real one."""
    listed = Path.iterdir

    def close(folder: Path) -> None:
        def iterdir(path: Path) -> Iterator[Path]:
            if path == folder:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return listed(path)

        monkeypatch.setattr(Path, "iterdir", iterdir)

    return close


@pytest.fixture
def popen() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    """``popen(command, **settings)``: a process that is killed and awaited when the test ends, also when it fails.

    One that a failed test leaves behind would raise a ResourceWarning in another test. With ``start_new_session`` all
    that it has started is killed with it.
    """

    def end(process: subprocess.Popen[Any], group: bool) -> None:
        if process.poll() is None:
            (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)

    with ExitStack() as stack:

        def start(command: list[Any], **settings: Any) -> subprocess.Popen[Any]:
            process = stack.enter_context(subprocess.Popen(command, **settings))
            stack.callback(end, process, settings.get("start_new_session", False))
            return process

        yield start


# A process that has imported torch, and forks for every line of its input; a fork ends as any program does.
FORKS = """
import json, os, sys, torch
for line in sys.stdin:
    order = json.loads(line)
    process = os.fork()
    if not process:
        break
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
else:
    sys.exit()
for number, (path, flags) in enumerate(zip(order["files"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))):
    os.dup2(os.open(path, flags), number)
os.environ.clear()
os.environ.update(order["environment"])
os.chdir(order["folder"])
sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place not in sys.path]
sys.argv[1:] = order["words"]
exec(compile(order["code"], "<string>", "exec"), {"__name__": "__main__"})
"""


@pytest.fixture(scope="session")
def forks() -> Iterator[subprocess.Popen[bytes]]:
    """The process of :func:`fresh`."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FORKS], bufsize=0, **pipes) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def fresh(
    forks: subprocess.Popen[bytes], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``fresh(code, *words, env=…, cwd=…)``: what ``python -c code *words`` does where torch alone is imported already.

    A process of its own, without the seconds that the import of torch takes; not for tests of the start. It is killed
    if it takes longer than ``timeout`` seconds.
    """

    def run(
        code: str, *words: Any, env: dict[str, str] | None = None, cwd: Path | None = None, timeout: float = 600
    ) -> Any:
        folder = tmp_path_factory.mktemp("fresh")
        files = [folder / name for name in ("stdout", "stderr")]
        for file in files:
            file.touch()
        order = {
            "code": code,
            "words": [str(word) for word in words],
            "environment": dict(os.environ if env is None else env),
            "folder": str(cwd or Path.cwd()),
            "files": [os.devnull, *map(str, files)],
        }
        forks.stdin.write(json.dumps(order).encode() + b"\n")
        number = int(forks.stdout.readline())
        in_time, _, _ = select.select([forks.stdout], [], [], timeout)
        if not in_time:
            os.kill(number, signal.SIGKILL)
        status = int(forks.stdout.readline())
        if not in_time:
            raise subprocess.TimeoutExpired(code, timeout)
        return subprocess.CompletedProcess(["-c", *order["words"]], status, *(file.read_text() for file in files))

    return run


def dense(apply: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype = torch.complex128) -> Tensor:
    """The matrix of a linear map on tensors of that shape, column by column."""
    size = int(torch.tensor(shape).prod())
    units = torch.eye(size, dtype=dtype).reshape(size, *shape)
    return torch.stack([apply(unit).flatten() for unit in units], dim=1)


@pytest.fixture(name="dense")
def _dense() -> Callable[..., Tensor]:
    return dense
