"""Dask.distributed as the engine: workers of this machine, of a scheduler that runs, or of a Slurm cluster.

Dask sends pickled objects between its processes, so who can connect to one can run code in it. Where this module starts
the processes, they use TLS with a certificate made for this run, listen on loopback unless they are on other machines,
and serve no pages.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from upmri.cluster.engine import LOSSES, Call, lost
from upmri.cluster.perform import Outcome
from upmri.cluster.place import devices
from upmri.core.errors import InputError
from upmri.core.parallel import cores
from upmri.core.settings import read_mapping

_Callable = TypeVar("_Callable", bound=Callable[[], Any])
MISSING = "needs Dask, which is not installed: pip install 'upmri[cluster]'"
_CORES = 4  # of a worker without a GPU
_WAIT = 30.0  # seconds for a scheduler to answer
_LOOK = 3.0  # seconds between looks for missing workers
_LEAST_AHEAD = 64  # calls that the scheduler has beside those at work
_NO_PAGES = "export DASK_DISTRIBUTED__WORKER__HTTP__ROUTES='[]'"  # for the workers of jobs
_SETTINGS = {
    "distributed.scheduler.allowed-failures": LOSSES,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # A worker with much memory in use would not be given more tasks, and memory that torch keeps is never returned.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.comm.timeouts.connect": "60s",
    "distributed.deploy.lost-worker-timeout": "5s",
    "logging": {"distributed": "critical"},
}


class DaskEngine:
    """Calls as tasks of Dask; a call whose worker is lost is done again by another one.

    Parameters
    ----------
    client
        Connection to the scheduler, a ``distributed.Client``.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, queue: deque[Call]) -> Iterator[tuple[Call, Outcome]]:
        """Do all calls; one whose workers are lost again and again is given up.

        Dask suspects every call that a lost worker had. So calls that it has given up are done again, one by one.
        """
        from distributed.scheduler import KilledWorker

        suspects: deque[Call] = deque()
        while queue or suspects:
            alone = not queue
            for call, result in self.results(queue if queue else deque([suspects.popleft()])):
                if isinstance(result, KilledWorker) and not alone:
                    suspects.append(call)
                elif isinstance(result, KilledWorker):
                    yield call, lost(call)
                elif isinstance(result, BaseException):
                    line = f"{call.task.inputs[0]}: {type(result).__name__}: {result}"
                    yield call, Outcome(call.task.name, "failed", line)
                else:
                    yield call, result

    def results(self, queue: deque[_Callable]) -> Iterator[tuple[_Callable, Any]]:
        """Call everything in a queue by the workers; yield each with what it returned, or the error it raised.

        A limited number is with the scheduler at any time, so that memory does not grow.
        """
        from distributed import as_completed

        flying: dict[str, _Callable] = {}
        ended = as_completed()
        number = 0
        while queue or flying:
            most = _LEAST_AHEAD if number % _LEAST_AHEAD else self._most_ahead()
            while queue and len(flying) < most:
                call = queue.popleft()
                number += 1
                future = self._client.submit(call, key=f"upmri-{os.getpid()}-{id(self)}-{number}", pure=False)
                flying[str(future.key)] = call
                ended.add(future)
            future = next(ended)
            call = flying.pop(str(future.key))
            if future.status == "cancelled":  # the scheduler was restarted
                queue.append(call)
                continue
            yield call, future.exception() if future.status == "error" else future.result()

    def _most_ahead(self) -> int:
        return max(_LEAST_AHEAD, 3 * sum(self._client.nthreads().values()))


@contextmanager
def dask_engine(where: str, device: str = "auto") -> Iterator[DaskEngine]:
    """Start or join a cluster; it ends with the context if it was started.

    Parameters
    ----------
    where
        ``local`` or ``local:N`` (N workers of this machine), ``slurm:FILE.yaml``, or the address of a scheduler
        (``tcp://HOST:PORT``, ``tls://HOST:PORT``) or its file (``.json``).
    device
        Devices of the workers of this machine; ``auto``: one worker for each GPU, or for every four cores.
    """
    try:
        import cryptography  # noqa: F401 - for the keys of a run
        import dask
        import distributed

        with _own_interrupt():
            import dask_jobqueue  # noqa: F401

        from upmri.cluster.setup import Setup
    except ImportError as error:
        raise InputError(MISSING, field="--cluster") from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a lost worker is normal
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_SETTINGS))
        names = [device]
        if where == "local" or where.startswith("local:"):
            count, names = _local_workers(where, device)
            cluster: Any = stack.enter_context(_local(count))
        elif where.startswith("slurm:"):
            cluster = stack.enter_context(_slurm(Path(where.removeprefix("slurm:"))))
        else:
            cluster = None
        try:
            if cluster is not None:
                client = distributed.Client(cluster, timeout=_WAIT)
            elif where.endswith(".json"):
                client = distributed.Client(scheduler_file=_file(where), timeout=_WAIT)
            else:
                client = distributed.Client(_address(where), timeout=_WAIT)  # TLS as the settings of Dask have it
        except (OSError, ValueError, RuntimeError) as error:
            raise InputError(f"no scheduler of Dask answers at {where}: {error}", field="--cluster") from error
        stack.callback(client.close)
        client.register_plugin(
            Setup.of_this_process(names, local=cluster is not None and not where.startswith("slurm"))
        )
        yield DaskEngine(client)


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep what Ctrl-C does: ``dask_jobqueue`` lets it end the program with status 0, as if all were done."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


def _local_workers(where: str, device: str) -> tuple[int, list[str]]:
    """Return the number of workers of this machine and their devices."""
    import torch

    if device in ("auto", "all") and torch.cuda.is_available():
        names = devices("all")
    else:
        names = devices("cpu" if device == "auto" else device)
    on_cpu = names == ["cpu"]
    text = where.partition(":")[2]
    if text and not (text.isdecimal() and 1 <= int(text) <= 4096):
        raise InputError(f"expected a number of workers, as in local:4, got {where!r}", field="--cluster")
    return int(text) if text else (max(1, cores() // _CORES) if on_cpu else len(names)), names


@contextmanager
def _local(count: int) -> Iterator[Any]:
    import dask
    from distributed import LocalCluster
    from distributed.security import Security

    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores() // count))
    variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    spawn = {"distributed.nanny.pre-spawn-environ": dict.fromkeys(variables, threads) | {"OMP_WAIT_POLICY": "PASSIVE"}}
    with dask.config.set(spawn):
        for left in range(LOSSES, -1, -1):
            try:
                cluster = LocalCluster(
                    n_workers=count, threads_per_worker=1, processes=True, host="127.0.0.1", protocol="tls://",
                    dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0",
                    security=Security.temporary(),
                )  # fmt: skip
                break
            except RuntimeError:  # a worker was killed while it started
                if not left:
                    raise
        with cluster, _kept(cluster, count):
            yield cluster


@contextmanager
def _kept(cluster: Any, count: int) -> Iterator[None]:
    """Start workers again that ended for good: one that is killed while it starts is not replaced by Dask."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(_LOOK):
            cluster.scale(count)  # starts what is missing, and nothing else

    thread = threading.Thread(target=keep, name="workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _slurm(path: Path) -> Iterator[Any]:
    """Start a scheduler here and its workers as jobs: settings of dask_jobqueue.SLURMCluster, and ``jobs``."""
    from dask_jobqueue.slurm import SLURMCluster
    from distributed.security import Security

    settings = dict(read_mapping(path))
    jobs = settings.pop("jobs", None)
    if not isinstance(jobs, int) or jobs < 1:
        raise InputError(f"expected a number of jobs above 0, got {jobs!r}", field="jobs", path=path)
    defaults: dict[str, Any] = {
        "cores": 1, "processes": 1, "protocol": "tls://", "security": Security.temporary(),
        "shared_temp_directory": str(Path.cwd()),
        "job_script_prologue": [_NO_PAGES, *settings.pop("job_script_prologue", ())],
        "worker_extra_args": ["--no-dashboard", *settings.pop("worker_extra_args", ())],
        "scheduler_options": {"dashboard_address": "127.0.0.1:0"} | dict(settings.pop("scheduler_options", {})),
    }  # fmt: skip
    if settings.get("protocol", "tls://") != "tls://":
        del defaults["security"], defaults["shared_temp_directory"]
    try:
        cluster = SLURMCluster(**defaults | settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"not settings of dask_jobqueue.SLURMCluster: {error}", path=path) from error
    with cluster:
        cluster.scale(jobs=jobs)
        yield cluster


def _file(name: str) -> str:
    if not Path(name).is_file():
        raise InputError("expected the file of a scheduler, there is none", field="--cluster", path=name)
    return name


def _address(text: str) -> str:
    if ":" not in text.removeprefix("tcp://").removeprefix("tls://"):
        raise InputError(
            f"expected local, slurm:FILE.yaml or the address of a scheduler, HOST:PORT, got {text!r}", field="--cluster"
        )
    return text
