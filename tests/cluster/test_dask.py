"""Dask as the engine: a real cluster of separate processes on this machine, which are killed at random moments."""

import os
import random
import signal
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from distributed import LocalCluster

from upmri.cluster.all_tasks import run_tasks
from upmri.cluster.dask_engine import dask_engine
from upmri.cluster.engine import Call, OnDevices
from upmri.cluster.perform import Done, FileTask
from upmri.cluster.records import TaskRecords
from upmri.core.errors import InputError
from upmri.formats import atomic


@dataclass(frozen=True)
class Slow:
    """A work of some milliseconds that writes whole files, and notes the process of each call that ended."""

    log: str
    seconds: float = 0.01
    stamp: str = "slow"

    def __call__(self, task, *, overwrite):
        text = Path(task.inputs[0]).read_text()
        if text == "bad":
            raise InputError("is bad")
        if text == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        with atomic.staged(Path(task.output), overwrite=overwrite) as stage:
            stage.write_text(text.upper())
        with Path(self.log).open("a") as log:
            log.write(f"{task.name} {os.getpid()}\n")
        return Done([Path(task.output)], {"scan": task.inputs[0]})


def make(folder, count, bad=()):
    (folder / "in").mkdir()
    (folder / "out").mkdir()
    tasks = []
    for number in range(count):
        source = folder / "in" / f"{number}.txt"
        source.write_text("bad" if number in bad else f"scan {number}")
        tasks.append(FileTask(str(number), (str(source),), str(folder / "out" / f"{number}.out")))
    return tasks


def check(tasks, folder, bad=()):
    """Every good task is there, whole, and every bad one is named; nothing else is left."""
    for task in tasks:
        record = TaskRecords(folder).read(task.name)
        if int(task.name) in bad:
            assert record.state == "bad"
            assert "is bad" in record.line
        else:
            assert Path(task.output).read_text() == f"SCAN {task.name}"
            assert record.state == "done"
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert names == {f"{task.name}.out" for task in tasks if int(task.name) not in bad}


@pytest.fixture(scope="module")
def engine():
    with dask_engine("local:2", "cpu") as made:
        yield made


def workers(engine):
    return list(engine._client.run(os.getpid).values())


def spawned():
    """Workers of this process as the system has them, also while they start."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return found


def test_all_done_by_two_processes_and_a_bad_one_named(engine, tmp_path):
    tasks = make(tmp_path, 30, bad={7, 9})
    report = run_tasks(engine, Slow(str(tmp_path / "log"), 0.05), tasks, tmp_path / "out")
    assert report.counts == Counter(done=28, bad=2)
    check(tasks, tmp_path / "out", bad={7, 9})
    processes = {line.split()[1] for line in (tmp_path / "log").read_text().splitlines()}
    assert processes == {str(number) for number in workers(engine)}
    again = run_tasks(engine, Slow(str(tmp_path / "log")), tasks, tmp_path / "out")
    assert again.counts == Counter(finished=28, bad=2)


def test_only_loopback_is_listened_on_with_tls(engine):
    found = []
    for process in (psutil.Process(), *spawned()):  # other children may be servers of other tests
        found += [c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert found
    assert set(found) == {"127.0.0.1"}
    assert engine._client.scheduler.address.startswith("tls://")


@pytest.mark.parametrize("moments", [1, pytest.param(10, marks=pytest.mark.soak)])
def test_workers_killed_at_random_moments(engine, tmp_path, moments):
    dice = random.Random(moments)
    bad = {5, 25}
    tasks = make(tmp_path, 40 * moments, bad=bad)
    killed = []

    def kill():
        for _ in range(moments):
            time.sleep(dice.uniform(0.1, 0.6))
            while not (found := spawned()):
                time.sleep(0.05)
            process = dice.choice(found)
            process.kill()
            killed.append(process.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    report = run_tasks(engine, Slow(str(tmp_path / "log"), 0.05), tasks, tmp_path / "out")
    thread.join()
    assert len(killed) == moments
    assert report.counts["done"] + report.counts["finished"] == len(tasks) - 2
    check(tasks, tmp_path / "out", bad)
    assert not list((tmp_path / "out" / ".upmri" / "claims").rglob("*.*"))


@pytest.mark.soak
def test_a_task_that_ends_its_worker_is_named_and_the_rest_is_done(engine, tmp_path):
    tasks = make(tmp_path, 10)
    Path(tasks[3].inputs[0]).write_text("deadly")
    report = run_tasks(engine, Slow(str(tmp_path / "log")), tasks, tmp_path / "out")
    assert report.counts["done"] + report.counts["finished"] == 9
    assert "too large for the memory" in report.wrong["3"]
    assert TaskRecords(tmp_path / "out").read("3").state == "bad"


@pytest.mark.soak
def test_workers_that_ended_for_good_are_started_again(engine, tmp_path):
    cluster = engine._client.cluster
    for worker in list(cluster.workers.values()):
        cluster.sync(worker.close)
    tasks = make(tmp_path, 4)
    report = run_tasks(engine, Slow(str(tmp_path / "log")), tasks, tmp_path / "out")
    assert report.counts["done"] == 4


def test_one_process_for_each_device(tmp_path):
    tasks = make(tmp_path, 6)
    queue = deque(Call(Slow(str(tmp_path / "log"), 0.05), task, str(tmp_path / "out"), "slow") for task in tasks)
    outcomes = [outcome.state for _, outcome in OnDevices(["cpu", "cpu"]).run(queue)]
    assert outcomes == ["done"] * 6
    check(tasks, tmp_path / "out")


@pytest.mark.soak
def test_a_device_process_that_is_killed_is_replaced(tmp_path):
    """The call beside it is not given up."""
    tasks = make(tmp_path, 2)
    Path(tasks[0].inputs[0]).write_text("deadly")
    report = run_tasks(OnDevices(["cpu", "cpu"]), Slow(str(tmp_path / "log"), seconds=1.0), tasks, tmp_path / "out")
    assert set(report.wrong) == {"0"}
    assert report.counts["done"] + report.counts["finished"] == 1


def test_a_scheduler_that_runs_already(tmp_path):
    tasks = make(tmp_path, 4)
    with (
        LocalCluster(n_workers=1, threads_per_worker=3, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        dask_engine(cluster.scheduler_address) as engine,
    ):
        report = run_tasks(engine, Slow(str(tmp_path / "log")), tasks, tmp_path / "out")
    assert report.counts == Counter(done=4)


@pytest.mark.parametrize("where", ["nowhere", "local:0", "local:x"])
def test_wrong_places(where):
    with pytest.raises(InputError, match="--cluster"), dask_engine(where):
        pass


def test_ctrl_c_stays_what_it_was(fresh):
    """dask_jobqueue changes it in the process that imports it first."""
    code = """
import signal
from upmri.cluster.dask_engine import dask_engine
try:
    dask_engine("nowhere").__enter__()
except ValueError:
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    assert fresh(f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{code}").stdout == "True\n"


def test_a_scheduler_that_does_not_answer(monkeypatch):
    monkeypatch.setattr("upmri.cluster.dask_engine._WAIT", 0.5)
    with pytest.raises(InputError, match="no scheduler of Dask answers"), dask_engine("tcp://127.0.0.1:9"):
        pass
