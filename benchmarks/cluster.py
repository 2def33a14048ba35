"""Many scans by many processes: speed, overhead, memory, and what is left after processes were killed.

    python benchmarks/cluster.py speed   # 200 scans: one process, a shard, one worker, two workers
    python benchmarks/cluster.py kill    # workers killed at ten random moments, the client once, bad scans
    python benchmarks/cluster.py shards  # two shards at once, and one that joins late
    python benchmarks/cluster.py many    # 10,000 tiny scans

Scans are simulated. Every process has one thread. Results are compared byte by byte with those of one process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

import upmri

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "UPMRI_TRUSTED": "1"}


def generate(folder: Path, count: int, size: int, bad: int = 0) -> None:
    """Write ``count`` simulated scans of one slice, and ``bad`` files that are cut off."""
    folder.mkdir(parents=True)
    brain = upmri.demo.brain()
    step, fold = max(1, brain.shape[1] // size), max(1, size // brain.shape[1])
    for number in range(count):
        image = np.kron(brain[number % len(brain)][None, ::step, ::step], np.ones((1, fold, fold)))
        upmri.simulate(image, coils=8, acceleration=4, seed=number).save(folder / f"{number:05}.h5")
    whole = (folder / "00000.h5").read_bytes()
    for number in range(bad):
        (folder / f"bad{number:02}.h5").write_bytes(whole[: len(whole) // 2])


def command(*words: str) -> list[str]:
    """Return the command line of `upmri recon`."""
    return [sys.executable, "-m", "upmri", "recon", *words]


def results(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each image below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.nii.gz")
    }


class Watched:
    """A command that runs, the memory of its own process, and how many records there are at each moment."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.start = time.perf_counter()
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True
        )
        self.seconds = 0.0
        self.memory: list[tuple[int, float]] = []  # records, MB
        self.worker = 0.0  # MB, the most of a worker
        self._folder = folder
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        process = psutil.Process(self.process.pid)
        while self.process.poll() is None:
            try:
                memory = process.memory_info().rss / 1e6
            except psutil.Error:
                break
            self.worker = max([self.worker, *map(_memory, children(process.pid))])
            self.memory.append((len(list((self._folder / ".upmri" / "records").rglob("[!.]*.json"))), memory))
            time.sleep(1.0)

    def finish(self) -> str:
        """Wait for the end; return what was printed."""
        out, err = self.process.communicate()
        self.seconds = time.perf_counter() - self.start
        self._thread.join()
        assert self.process.returncode in (0, 2), err
        return out + err

    def growth(self) -> str:
        """Return the memory of the client after a quarter of the scans and at the end."""
        most = self.memory[-1][0] if self.memory else 0
        later = [memory for done, memory in self.memory if done >= most / 4 and memory]  # 0 while it ends
        return f"{later[0]:.0f} → {later[-1]:.0f} MB, a worker {self.worker:.0f} MB" if later else "unknown"


def _memory(process: int) -> float:
    try:
        return psutil.Process(process).memory_info().rss / 1e6
    except psutil.Error:
        return 0.0


def rate(folder: Path) -> float:
    """Return the seconds per scan between the first and the last record, so without the start of processes."""
    times = sorted(path.stat().st_mtime for path in (folder / ".upmri" / "records").rglob("[!.]*.json"))
    return (times[-1] - times[0]) / (len(times) - 1)


def speed(work: Path, count: int, size: int, method: str) -> None:
    """Compare one process, a shard, one worker and two workers."""
    generate(work / "in", count, size)
    words = [str(work / "in"), "-m", method, "--device", "cpu"]
    plain = Watched(command(*words, "-o", str(work / "plain"), "-q"), work / "plain")
    plain.finish()
    expected = results(work / "plain")
    assert len(expected) == count
    times = sorted(path.stat().st_mtime for path in (work / "plain").glob("*.nii.gz"))
    print(f"{count} scans of {size}×{size} by {method}, one thread each, {psutil.cpu_count()} cores")
    each = {"plain": (times[-1] - times[0]) / (count - 1)}
    print(f"one process: {each['plain']:.3f} s per scan, {plain.seconds:.1f} s in all")
    for name, option in (
        ("shard", ("--shard", "1/1")),
        ("one", ("--cluster", "local:1")),
        ("two", ("--cluster", "local:2")),
    ):
        folder = work / name
        run = Watched(command(*words, "-o", str(folder), *option), folder)
        run.finish()
        each[name] = rate(folder)
        same = "identical" if results(folder) == expected else "DIFFERENT"
        seconds = f"{each[name]:.3f} s per scan, {run.seconds:.1f} s in all"
        print(f"{' '.join(option)}: {seconds}, {same}, client {run.growth()}")
    print(f"two workers against one: {each['one'] / each['two']:.2f} times as fast")
    print(f"overhead of Dask: {1e3 * (each['one'] - each['shard']):.1f} ms per scan")
    print(f"overhead of all (records, claims, hashes, Dask): {1e3 * (each['one'] - each['plain']):.1f} ms per scan")


def children(process: int) -> list[int]:
    """Return the workers of a client: processes that it spawned and that were not started for files."""
    try:
        found = psutil.Process(process).children()
        return [child.pid for child in found if "spawn_main" in " ".join(child.cmdline())]
    except psutil.Error:
        return []


def kill(work: Path, count: int, size: int, method: str) -> None:
    """Kill workers at ten random moments and the client once; in the end all is there once, and right."""
    bad = max(1, count // 20)
    generate(work / "in", count - bad, size, bad)
    words = [str(work / "in"), "-m", method, "--device", "cpu"]
    Watched(command(*words, "-o", str(work / "plain"), "-q"), work / "plain").finish()
    folder, dice, killed = work / "out", random.Random(0), 0
    client_killed, clients = False, 0
    while True:
        clients += 1
        run = Watched(command(*words, "-o", str(folder), "--cluster", "local:2"), folder)
        while run.process.poll() is None:
            time.sleep(dice.uniform(0.3, 2.0))
            workers = children(run.process.pid)
            if killed < 10 and workers:
                os.kill(dice.choice(workers), signal.SIGKILL)
                killed += 1
            if killed >= 5 and not client_killed:
                os.kill(run.process.pid, signal.SIGKILL)
                client_killed = True
                break
        if client_killed and run.process.wait() == -signal.SIGKILL:
            run.process.communicate()
            continue
        said = run.finish()
        break
    same = results(folder) == results(work / "plain")
    rows = json.loads((folder / "results.json").read_text())
    named = sorted(Path(row["scan"]).name for row in rows if "error" in row)
    print(f"{count - bad} good and {bad} bad scans by {method}, {clients} clients, {killed} workers killed")
    print(f"images {'identical to those of one process' if same else 'DIFFERENT'}: {len(results(folder))}")
    print(f"named as bad: {', '.join(named)} (expected {bad})")
    left = [path for path in (folder / ".upmri" / "claims").rglob("*") if path.is_file()]
    print(f"claims left: {len(left)}; last line: {said.strip().splitlines()[-1]}")


def shards(work: Path, count: int, size: int, method: str) -> None:
    """Run two shards at once, and all of it again by a third process that joins late."""
    generate(work / "in", count, size)
    folder = work / "out"
    words = [str(work / "in"), "-m", method, "--device", "cpu", "-o", str(folder)]
    runs = [Watched(command(*words, "--shard", part), folder) for part in ("1/2", "2/2")]
    while len(results(folder)) < 1:
        time.sleep(0.1)
    runs.append(Watched(command(*words, "--shard", "1/1"), folder))
    said = [run.finish().strip().splitlines()[0] for run in runs]
    done = [int(line.split(": ")[1].split(" done")[0]) for line in said]
    print("\n".join(said))
    print(f"{count} scans, done {' + '.join(map(str, done))} = {sum(done)}, images {len(results(folder))}")
    subprocess.run(command(*words, "--merge"), check=True, env=ENVIRONMENT)


def many(work: Path, count: int, size: int, method: str) -> None:
    """Reconstruct very many tiny scans."""
    generate(work / "in", 1, size)
    one = work / "in" / "00000.h5"
    for number in range(1, count):
        (work / "in" / f"{number:05}.h5").hardlink_to(one)
    folder = work / "out"
    for turn in ("first run", "second run, which finds all finished"):
        run = Watched(
            command(str(work / "in"), "-m", method, "-o", str(folder), "--cluster", "local:2", "--device", "cpu"),
            folder,
        )
        said = run.finish()
        print(f"{turn}: {run.seconds:.1f} s, client {run.growth()}; {said.strip().splitlines()[-1]}")
    rows = json.loads((folder / "results.json").read_text())
    page = (folder / "index.html").stat().st_size / 1e6
    print(
        f"{len(rows)} rows, {len(results(folder))} images, {1e3 * rate(folder):.1f} ms per scan, page of {page:.1f} MB"
    )


def main() -> None:
    """Measure what was named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["speed", "kill", "shards", "many"])
    parser.add_argument("--scans", type=int)
    parser.add_argument("--size", type=int)
    parser.add_argument("--method")
    parser.add_argument("--work", type=Path)
    words = parser.parse_args()
    usual = {
        "speed": (200, 96, "upmri"),
        "kill": (100, 96, "upmri"),
        "shards": (100, 96, "upmri"),
        "many": (10_000, 16, "sense"),
    }
    count, size, method = usual[words.what]
    folder = Path(tempfile.mkdtemp(dir=words.work))
    try:
        globals()[words.what](folder, words.scans or count, words.size or size, words.method or method)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
